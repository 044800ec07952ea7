# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/train/against_ddp: DDP, Thinwire and compute alone, one step each in turn, on equal batches."""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist

import models
import thinwire as tw


def interface_bytes():
    """Bytes sent on all interfaces of this network namespace but loopback."""
    total = 0
    with open("/proc/net/dev") as table:
        for line in table:
            name, _, fields = line.partition(":")
            if fields and name.strip() != "lo":
                total += int(fields.split()[8])
    return total


class Arm:
    """One way to train: its own copy of the model, its own optimizer, timed one step at a time."""

    def __init__(self, name, module, wrap):
        self.name = name
        self.net = wrap(module)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def step(self, x, y):
        sent, cpu, begin = interface_bytes(), time.process_time(), time.perf_counter()
        self.optimizer.zero_grad()
        loss = models.cross_entropy(self.net(x), y)
        forward = time.perf_counter() - begin
        loss.backward()
        self.optimizer.step()
        step = time.perf_counter() - begin
        dist.barrier()  # so that the last byte of both directions is counted
        return {"step_s": step, "forward_s": forward, "cpu_s": time.process_time() - cpu,
                "wire_bytes": interface_bytes() - sent}


def same_parameters(a, b):
    """Largest difference between the two trained models, relative to the largest value."""
    scale = max(p.abs().max().item() for p in a.parameters())
    return max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters())) / scale


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(models.MODELS), default="mlp")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--arms", nargs="+", default=["ddp", "thinwire", "compute"])
    parser.add_argument("--out", required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tw.init()
    make, batch, _ = models.MODELS[args.model]

    def module():
        torch.manual_seed(0)
        return make()

    ways = {"ddp": torch.nn.parallel.DistributedDataParallel, "thinwire": tw.DataParallel, "compute": lambda m: m}
    arms = [Arm(name, module(), ways[name]) for name in args.arms]
    generator = torch.Generator().manual_seed(1 + rank)
    rows = []
    for pair in range(-args.warm_up, args.pairs):
        x, y = batch(generator)
        # The order changes from pair to pair, so that drift hits both alike.
        order = arms if pair % 2 == 0 else [arms[1], arms[0], *arms[2:]]
        for arm in order:
            dist.barrier()
            row = arm.step(x, y)
            slowest = torch.tensor([row["step_s"], row["forward_s"]], dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            row["step_s"], row["forward_s"] = slowest.tolist()
            if pair >= 0:
                rows.append({"pair": pair, "arm": arm.name, **row})
        if pair == -1 and "thinwire" in args.arms:
            difference = same_parameters(arms[0].net.module, arms[1].net.module)
            if difference > 1e-4:
                raise SystemExit(f"results differ before timing: {difference:.2e} relative")
    if rank == 0:
        with open(args.out, "w") as out:
            json.dump({"model": args.model, "ranks": ranks, "torch": torch.__version__,
                       "parameters": sum(p.numel() for p in arms[0].net.parameters()), "rows": rows}, out)
    dist.barrier()
    tw.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    main()
