# SPDX-License-Identifier: Apache-2.0
"""Forms for people who stay with PyTorch's DistributedDataParallel: its communication hook."""

import torch
from torch.nn.parallel import DistributedDataParallel

from thinwire._load import ConfigError, native
from thinwire.group import beside_process_group


class DDPState:
    """What `ddp_hook` needs, and keeps from step to step.

        ddp = DistributedDataParallel(model)
        state = thinwire.DDPState(ddp, form="ef|topk{ratio=0.01}")
        ddp.register_comm_hook(state, thinwire.ddp_hook)

    ddp        the wrapped model, on the CPU
    form       memories, then a codec: as in `thinwire.DataParallel`
    algorithm  of the exchanges; default: chosen
    seed       of forms that draw numbers, the same on all ranks
    group      whose connections are used; default: connections of Thinwire's own between the ranks of DDP's group

    Collective to make. DDP decides what is in a bucket and when it leaves, and may decide anew: memories go by
    parameter. The state can be pickled, residuals and all, by each rank for itself; after loading it call
    `attach(ddp)` on the model wrapped anew. A step with a value that is not finite on some rank does not count:
    gradients come out as NaN on all, so that a GradScaler skips it, and memories stay as they were.
    """

    def __init__(self, ddp, form="none", *, algorithm="", seed=0, group=None):
        self.form, self.algorithm, self.seed = form, algorithm, seed
        self._kept = (0, {})
        self._rank = None
        self.attach(ddp, group=group)

    def attach(self, ddp, *, group=None):
        """Takes up work for `ddp`, with what the state holds. Collective."""
        if not isinstance(ddp, DistributedDataParallel):
            raise ConfigError(f"DDPState: must be given a DistributedDataParallel, got a {type(ddp).__name__}")
        kept = self._kept if self._engine is None else (self._engine.step(), self._engine.state())
        group = group or beside_process_group(ddp.process_group)
        if self._rank not in (None, group.rank):
            raise ConfigError(f"DDPState: this is the state of rank {self._rank}, and this is rank {group.rank}")
        self._rank = group.rank
        self._engine = native.Buckets(group._context, self.form, self.algorithm, self.seed)
        self._engine.load(*kept)
        self._names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
        self._parameters = list(ddp.module.parameters())    # so that no other gets one of these ids
        self._futures = []

    _engine = None

    def __getstate__(self):
        if self._futures:
            raise ConfigError("DDPState: a backward is under way; save between steps")
        kept = self._kept if self._engine is None else (self._engine.step(), self._engine.state())
        return {"form": self.form, "algorithm": self.algorithm, "seed": self.seed, "rank": self._rank, "kept": kept}

    def __setstate__(self, saved):
        self.form, self.algorithm, self.seed = saved["form"], saved["algorithm"], saved["seed"]
        self._rank, self._kept, self._futures = saved["rank"], saved["kept"], []


def ddp_hook(state, bucket):
    """The hook for `DistributedDataParallel.register_comm_hook`: the mean over ranks, in the state's form."""
    if state._engine is None:
        raise ConfigError("ddp_hook: this state was loaded; call attach(ddp) on it first")
    flat = bucket.buffer()
    try:
        members = [(state._names[id(parameter)], parameter) for parameter in bucket.parameters()]
    except KeyError:
        raise ConfigError("ddp_hook: a bucket holds a parameter that the model did not have when the state was made; "
                          "call attach(ddp) on it") from None
    future = torch.futures.Future()
    state._futures.append((future, flat))
    state._engine.start(bucket.index(), members, flat)
    if bucket.is_last():    # DDP waits for all of them next, and there is no more to overlap with
        done, state._futures = state._futures, []
        state._engine.finish()
        for each, mean in done:
            each.set_result(mean)
    return future
