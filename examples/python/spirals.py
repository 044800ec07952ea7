# SPDX-License-Identifier: Apache-2.0
"""One's own training loop: torchrun --nproc-per-node 2 examples/python/spirals.py"""

import math

import torch
from torch import nn

import thinwire


def spirals(count, generator):
    """Points on two spirals, and which of the two each lies on."""
    label = torch.arange(count) % 2
    angle = torch.rand(count, generator=generator) * 6 + 1
    phase = angle + label * math.pi
    return torch.stack([angle * phase.cos(), angle * phase.sin()], 1) / 7, label


def main():
    group = thinwire.init()  # finds its rank in torchrun's environment
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    model = thinwire.DataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    generator = torch.Generator().manual_seed(1 + group.rank)  # other points on every rank
    for step in range(1, 401):
        x, y = spirals(64, generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # the gradients are averaged over all ranks when this returns
        optimizer.step()
        if group.rank == 0 and step % 100 == 0:
            print(f"step {step}, loss {loss.item():.3f}")

    with torch.no_grad():
        x, y = spirals(1000, generator)
        right = (model(x).argmax(1) == y).float().mean().item()
    print(f"rank {group.rank} of {group.ranks}: accuracy {right:.3f}")
    thinwire.shutdown()


if __name__ == "__main__":
    main()
