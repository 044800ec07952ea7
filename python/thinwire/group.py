# SPDX-License-Identifier: Apache-2.0
"""The ranks that train together: joining, leaving, and a few collectives for a user's own values."""

import atexit
import os

from thinwire._load import ConfigError, UnsupportedError, native

_current = None


class Group:
    """A set of ranks joined over one transport. Made by `init`; collective to make.

    rank, ranks   this rank and the number of ranks
    transport     the transport's spec, for example "tcp"
    description   one line for people: interface and addresses
    """

    def __init__(self, context, transport):
        self._context = context
        self.transport = transport

    rank = property(lambda self: self._context.rank)
    ranks = property(lambda self: self._context.ranks)
    description = property(lambda self: self._context.describe())

    def average(self, tensor):
        """Replaces `tensor` on every rank by the mean over ranks, in rank order. Collective, blocking, in place.

        A contiguous CPU tensor of a floating or complex type. Returns the tensor.
        """
        self._context.average(tensor)
        return tensor

    def broadcast(self, tensor, root=0):
        """Replaces `tensor` on every rank by that of `root`. Collective, blocking, in place."""
        self._context.broadcast(tensor, root)
        return tensor

    def barrier(self, name="barrier"):
        """Returns when all ranks have called it; at the deadline a CommError names the missing."""
        self._context.barrier(name)

    def shutdown(self):
        """Leaves in order, so that the others do not take it for a death. May be called twice."""
        self._context.shutdown()


def _publish_through_agent(own):
    """Under torchrun the agent listens at MASTER_ADDR:MASTER_PORT; rank 0's address goes through its store."""
    from datetime import timedelta

    from torch.distributed import TCPStore

    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
                     timeout=timedelta(seconds=300))
    key = "thinwire/address/" + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if own:
        store.set(key, own)
    return store.get(key).decode()


def _join_arguments(address, rank, ranks, timeout_s, interface, run_id):
    given = {"address": address, "rank": rank, "ranks": ranks}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 3:
        options = native.JoinOptions.from_environment(timeout_s or 0.0, interface or "", run_id or "")
        if options.ranks > 1 and not options.address and not options.has_publish:
            options.set_publish(_publish_through_agent)
        return options
    if missing and ranks != 1:
        raise ConfigError(f"init: address, rank and ranks go together; {' and '.join(missing)} not given")
    return native.JoinOptions(address or "", rank or 0, ranks, timeout_s or 300.0, interface or "", run_id or "")


def init(transport=None, *, address=None, rank=None, ranks=None, process_group=None, timeout_s=None,
         interface=None, run_id=None):
    """Joins the group of this run and makes it the current one. Collective.

    transport      "tcp" (default with more than one rank), "c10d" (torch.distributed's Gloo), "mpi", "none"
    address, rank, ranks   "HOST:PORT" of rank 0 and this rank's place; default: from torchrun, mpirun or srun
    process_group  refused: groups of torch.distributed are not carried yet
    timeout_s      the deadline of every wait; default 300, or THINWIRE_TIMEOUT
    interface      network interface to use; default: the one that routes to rank 0
    Returns the Group. Called again while a group is current it returns that one, if no argument asks for another.
    """
    global _current
    asked = any(value is not None for value in (transport, address, rank, ranks, process_group, interface, run_id))
    if _current is not None:
        if asked:
            raise ConfigError("init: a group is current already; call thinwire.shutdown() first")
        return _current
    if process_group is not None:
        raise UnsupportedError("init: a process_group of the caller's own is not carried yet; "
                               "leave it out: under torchrun thinwire joins by itself and opens its own connections")
    options = _join_arguments(address, rank, ranks, timeout_s, interface, run_id)
    transport = transport or ("none" if options.ranks == 1 else "tcp")
    context = native.Context(transport, options)
    _current = Group(context, transport)
    return _current


def is_initialized():
    return _current is not None


def current_group():
    """The group that `init` made; joined from the environment on first use."""
    return _current if _current is not None else init()


def rank():
    return current_group().rank


def ranks():
    return current_group().ranks


def average(tensor):
    """Mean over ranks, in place, blocking: see Group.average."""
    return current_group().average(tensor)


def broadcast(tensor, root=0):
    """The value of rank `root` on all ranks, in place, blocking."""
    return current_group().broadcast(tensor, root)


def barrier(name="barrier"):
    current_group().barrier(name)


def shutdown():
    """Leaves the current group in order; without one it does nothing."""
    global _current
    if _current is not None:
        _current.shutdown()
        _current = None


atexit.register(shutdown)
