# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training over thin links.

    import thinwire as tw

    tw.init()                                   # finds its ranks: torchrun, mpirun, srun, or arguments
    model = tw.DataParallel(model)
    for x, y in tw.batches(loader):
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()         # gradients are averaged when this returns
        optimizer.step()

Errors: ConfigError (what was written is wrong, on all ranks alike), CommError (a peer or the transport failed; the
group is dead), DataError (malformed bytes or file), UnsupportedError (cannot be done here).
"""

from thinwire._load import native as _native

from thinwire._load import CommError, ConfigError, DataError, Error, UnsupportedError
from thinwire.group import (Group, average, barrier, broadcast, current_group, init, is_initialized, rank, ranks,
                            shutdown)
from thinwire.data_parallel import DataParallel
from thinwire.batches import batches
from thinwire.ddp import DDPState, ddp_hook

__version__ = _native.version

__all__ = [
    "CommError", "ConfigError", "DDPState", "DataError", "DataParallel", "Error", "Group", "UnsupportedError", "average",
    "barrier", "batches", "broadcast", "current_group", "ddp_hook", "init", "is_initialized", "rank", "ranks", "shutdown",
]
