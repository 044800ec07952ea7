# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/comm/against_gloo: all-reduces of raw c10d Gloo. Sizes come from the file COMMANDS, one a line.

Measures as `thinwire bench comm --size -` does, and prints the same figures as one JSON object a size.
"""

import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist

BLOCK_S = 2e-3


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def block(data, calls):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(data)
    return (time.perf_counter() - begin) / calls


def over_ranks(value, op):
    value = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(value, op=op)
    return value


def check(count, rank, ranks):
    index = torch.arange(count)
    data = ((index * 7 + rank) % 64).float()
    dist.all_reduce(data)
    expected = sum(((index * 7 + r) % 64).float() for r in range(ranks))
    assert torch.equal(data, expected), f"all_reduce of {count} elements is wrong"


def main(commands, seconds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    checked = set()
    with open(commands) as lines:
        for line in lines:
            size = int(line)
            if size not in checked:
                check(size // 4, rank, ranks)
                checked.add(size)
            data = torch.zeros(size // 4)
            pace = over_ranks([min(block(data, 1), block(data, 2))], dist.ReduceOp.MAX).item()
            calls = max(1, min(1000, int(BLOCK_S / pace)))
            times = [0.0] * max(1, min(1000, int(seconds / (calls * pace))))
            before = cpu_s()
            for i in range(len(times)):
                times[i] = block(data, calls)
            used = over_ranks([cpu_s() - before], dist.ReduceOp.SUM).item()
            time_s = over_ranks(times, dist.ReduceOp.MAX).sort().values[len(times) // 2].item()
            if rank == 0:
                print(json.dumps({"bytes": size, "time_s": time_s,
                                  "cpu_s_per_gb": used / (2 * (ranks - 1) * size * calls * len(times) / 1e9)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
