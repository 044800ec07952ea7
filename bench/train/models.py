# SPDX-License-Identifier: Apache-2.0
"""The three models of the training benches, in plain PyTorch, with their batch and loss."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def mlp():
    """784-2048-2048-2048-10: four big matrices, so the wire decides."""
    return nn.Sequential(
        nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
        nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))


class BasicBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18():
    """ResNet-18 in CIFAR form: 3x3 stem, no pooling at the start, 11.2 million parameters."""
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    channels_in = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(channels_in, channels, stride), BasicBlock(channels, channels, 1)]
        channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2)
                   for z in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CharTransformer(nn.Module):
    """A decoder over characters: 6 layers of width 320, 7.5 million parameters."""

    def __init__(self, vocabulary=65, context=128, dim=320, heads=8, layers=6):
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        self.position = nn.Parameter(torch.randn(context, dim) / math.sqrt(dim))
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, tokens):
        x = self.token(tokens) + self.position[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def images(shape, batch, generator):
    return (torch.randn(batch, *shape, generator=generator),
            torch.randint(0, 10, (batch,), generator=generator))


def characters(batch, generator, context=128, vocabulary=65):
    tokens = torch.randint(0, vocabulary, (batch, context + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def cross_entropy(output, target):
    return F.cross_entropy(output.flatten(0, -2) if output.dim() > 2 else output, target.flatten())


# name -> (module factory, batch factory(generator), batch size of one rank)
MODELS = {
    "mlp": (mlp, lambda g: images((784,), 64, g), 64),
    "resnet18": (resnet18, lambda g: images((3, 32, 32), 32, g), 32),
    "transformer": (CharTransformer, lambda g: characters(8, g), 8),
}
