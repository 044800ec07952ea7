# SPDX-License-Identifier: Apache-2.0
"""Uneven numbers of batches and uneven batches: a loader whose ranks end together."""

import torch

from thinwire._load import ConfigError
from thinwire.group import current_group


def count_samples(batch):
    """Samples in a batch: the length of its first tensor."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)) and batch:
        return count_samples(batch[0])
    raise TypeError(f"batches: cannot count the samples of a {type(batch).__name__}; pass count=")


def batches(loader, *, count=count_samples, group=None):
    """Yields the batches of `loader` and states their sample counts, so that gradients are averaged over samples.

    Collective, one tiny exchange a batch. Ranks may have different numbers of batches: all loops end together, after
    as many batches as the longest loader has. A rank whose loader has ended gets its last batch again, with weight
    zero: it runs the same loop body, so that its optimizer takes the same steps, and its gradients do not count.
    With equal counts everywhere the average is the plain mean, bit for bit.

    count   samples in a batch; default: the length of its first tensor
    """
    group = group or current_group()
    iterator, last = iter(loader), None
    try:
        while True:
            try:
                last = next(iterator)
                own = count(last)
            except StopIteration:
                own = 0
            counts = group._context.gather_counts(own)
            if not any(counts):
                return
            if last is None:
                raise ConfigError(f"batches: rank {group.rank} has no batch at all; give every rank at least one")
            group._context.state_counts(counts)
            yield last
    finally:
        group._context.state_counts([])
