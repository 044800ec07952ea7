# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/train/fronts: the steps that `thinwire train` takes, written in Python."""

import json
import os
import statistics
import sys
import time

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

import thinwire as tw


def read_idx(path):
    with open(path, "rb") as file:
        data = file.read()
    dims = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dims)]
    return torch.frombuffer(bytearray(data[4 + 4 * dims:]), dtype=torch.uint8).reshape(shape)


def share(folder, rank):
    """This rank's half of the batch, as the tool's loader gives it: whitened pixels."""
    images, labels = read_idx(f"{folder}/images").float() / 255, read_idx(f"{folder}/labels").long()
    images = ((images - images.mean()) / images.std(correction=0)).unsqueeze(1)
    half = len(labels) // 2
    return images[rank * half:(rank + 1) * half].contiguous(), labels[rank * half:(rank + 1) * half].contiguous()


class Mlp(nn.Module):
    """As the tool's mlp{sizes=784-2048-2048-2048-10}."""

    def __init__(self):
        super().__init__()
        sizes = [784, 2048, 2048, 2048, 10]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Cnn(nn.Module):
    """As the tool's cnn{width=16,hidden=128}."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def main():
    model, steps, rate, folder, checkpoint, out = sys.argv[1:]
    torch.set_num_threads(1)
    tw.init()
    rank = tw.rank()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= tw.ranks():
        each = len(cores) // tw.ranks()
        os.sched_setaffinity(0, cores[rank * each:(rank + 1) * each])
    module = {"mlp": Mlp, "cnn": Cnn}[model]()
    module.load_state_dict(load_file(f"{checkpoint}/model.safetensors"))
    net = tw.DataParallel(module, grouping="size_cap{bytes=4MiB}")
    optimizer = torch.optim.SGD(net.parameters(), lr=float(rate))
    x, y = share(folder, rank)
    times, sums = [], torch.zeros(3, dtype=torch.float64)
    for _ in range(int(steps)):
        begin = time.perf_counter()
        optimizer.zero_grad()
        output = net(x)
        loss = F.cross_entropy(output, y)
        sums[0], sums[1], sums[2] = loss.item(), (output.detach().argmax(1) == y).sum().item(), len(y)
        loss.backward()
        optimizer.step()
        tw.average(sums)  # the tool's line of progress speaks of all ranks
        times.append(time.perf_counter() - begin)
    if rank == 0:
        with open(out, "w") as file:
            json.dump([statistics.median(times), sums[0].item()], file)
    tw.shutdown()


if __name__ == "__main__":
    main()
