# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/train/forms: every arm one step in turn, on equal batches."""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import models
import thinwire as tw
from against_ddp_rank import Arm


def ddp_fp16(module):
    net = DistributedDataParallel(module)
    net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return net


def ddp_powersgd(module):
    """In one bucket: with several it aborts on Gloo. Its first two steps are dense."""
    net = DistributedDataParallel(module, bucket_cap_mb=1024)
    net.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2),
                           powerSGD_hook.powerSGD_hook)
    return net


def ours(module, arm):
    """A form; or a grouping that sends part of the buckets in each step, with the memory it needs."""
    if arm.startswith("covap"):
        return tw.DataParallel(module, grouping=arm, form="ef{schedule=ramp}|none")
    return tw.DataParallel(module, form=arm)


def way(arm):
    return {"compute": lambda module: module, "ddp": DistributedDataParallel, "ddp fp16": ddp_fp16,
            "ddp powersgd": ddp_powersgd}.get(arm, lambda module: ours(module, arm))


def spread(net):
    """The largest difference of a parameter between ranks."""
    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    low, high = flat.clone(), flat.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return (high - low).abs().max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tw.init()
    make, batch, _ = models.MODELS["mlp"]
    arms = []
    for name in args.arms:
        torch.manual_seed(0)
        arms.append(Arm(name, make(), way(name)))
    generator = torch.Generator().manual_seed(1 + rank)
    rows = []
    for turn in range(-args.warm_up, args.rounds):
        x, y = batch(generator)
        first = turn % len(arms)  # each arm stands everywhere in the order, so that drift hits all alike
        for arm in arms[first:] + arms[:first]:
            dist.barrier()
            row = arm.step(x, y)
            slowest = torch.tensor([row["step_s"]], dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            if turn >= 0:
                rows.append({"turn": turn, "arm": arm.name, **row, "step_s": slowest.item()})
        if turn == -1:
            for arm in arms:
                if arm.name != "compute" and spread(arm.net) != 0:
                    raise SystemExit(f"{arm.name}: ranks differ by {spread(arm.net):.2e} before timing")
    if rank == 0:
        with open(args.out, "w") as out:
            json.dump({"torch": torch.__version__, "rows": rows}, out)
    dist.barrier()
    tw.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    main()
