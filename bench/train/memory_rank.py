# SPDX-License-Identifier: Apache-2.0
"""One rank of the memory bench: eight steps, then the peak resident memory of this process in bytes."""

import os
import sys

import torch
import torch.distributed as dist


def main():
    arm, model, out = sys.argv[1:]
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    import models

    torch.set_num_threads(1)
    make, batch, _ = models.MODELS[model]
    torch.manual_seed(0)
    if arm == "ddp":
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        net = torch.nn.parallel.DistributedDataParallel(make(), gradient_as_bucket_view=True)
    else:
        import thinwire as tw

        rank = tw.init().rank
        net = tw.DataParallel(make())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1 + rank)
    for _ in range(8):
        x, y = batch(generator)
        optimizer.zero_grad()
        models.cross_entropy(net(x), y).backward()
        optimizer.step()
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    if rank == 0:
        with open(out, "w") as file:
            file.write(str(peak))
    if arm == "ddp":
        dist.barrier()
        dist.destroy_process_group()
    else:
        tw.barrier()
        tw.shutdown()


if __name__ == "__main__":
    main()
