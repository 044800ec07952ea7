# SPDX-License-Identifier: Apache-2.0
"""The ranks that train together: joining, leaving, and a few collectives for a user's own values."""

import atexit
import os
import time
import weakref
from datetime import timedelta

import torch.distributed as dist

from thinwire._load import CommError, ConfigError, native

_current = None
_wrapped, _beside = {}, {}    # groups of torch.distributed to the Group over each, and to that beside it
_meetings = weakref.WeakKeyDictionary()


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


def _publish_through(store, key, own, timeout_s):
    """Rank 0 puts its address under `key`, the others wait for it, in slices so that Ctrl-C is heard."""
    if own:
        store.set(key, own)
    end = time.monotonic() + timeout_s
    while True:
        try:
            store.wait([key], timedelta(seconds=0.5))
            return store.get(key).decode()
        except RuntimeError as error:  # the slice is over
            if time.monotonic() >= end:
                raise CommError(f"init: rank 0 has not published its address within {timeout_s:g} s") from error


def _publish_through_agent(own, timeout_s):
    """Under torchrun the agent listens at MASTER_ADDR:MASTER_PORT; rank 0's address goes through its store."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
                          timeout=timedelta(seconds=timeout_s))
    return _publish_through(store, "thinwire/address/" + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), own,
                            timeout_s)


def _timeout(given):
    return given or float(os.environ.get("THINWIRE_TIMEOUT", 300))


def _known_store(process_group):
    """The store of a torch.distributed group, or a ConfigError that says why there is none."""
    if not isinstance(process_group, dist.ProcessGroup):
        what = "this process is no member of it" if process_group == dist.GroupMember.NON_GROUP_MEMBER else \
            f"got a {type(process_group).__name__}"
        raise ConfigError(f"process_group: must be a group of torch.distributed that this process belongs to; {what}")
    known = dist.distributed_c10d._world.pg_map.get(process_group)
    if known is None:
        raise ConfigError("process_group: torch.distributed does not know this group; was it destroyed?")
    return known[1]


def _meet_through(process_group, timeout_s, interface=None, run_id=None):
    """JoinOptions of the group's ranks, and the prefix in its store: one of its own for each meeting, as often on all
    of its members."""
    store, seconds = _known_store(process_group), _timeout(timeout_s)
    nth = _meetings[process_group] = _meetings.get(process_group, -1) + 1
    options = native.JoinOptions("", process_group.rank(), process_group.size(), seconds, interface or "",
                                 run_id or "")
    options.set_publish(lambda own: _publish_through(store, f"thinwire/{nth}/address", own, seconds))
    return options, dist.PrefixStore(f"thinwire/{nth}", store)


def over_process_group(process_group, *, timeout_s=None, interface=None, run_id=None):
    """The Group over a torch.distributed group, the same one each time. Collective over its members the first time."""
    _known_store(process_group)
    if process_group not in _wrapped:
        options, store = _meet_through(process_group, timeout_s, interface, run_id)
        _wrapped[process_group] = Group(native.Context(options, process_group, store), "c10d")
    return _wrapped[process_group]


def beside_process_group(process_group, *, timeout_s=None):
    """A Group of the same ranks with connections of its own, so that calls on `process_group` stay the caller's. The
    same one each time. Collective over its members the first time."""
    _known_store(process_group)
    if process_group not in _beside:
        transport = "tcp" if process_group.size() > 1 else "none"
        _beside[process_group] = Group(native.Context(transport, _meet_through(process_group, timeout_s)[0]), transport)
    return _beside[process_group]


def _join_arguments(address, rank, ranks, timeout_s, interface, run_id):
    given = {"address": address, "rank": rank, "ranks": ranks}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 3:
        options = native.JoinOptions.from_environment(timeout_s or 0.0, interface or "", run_id or "")
        if options.ranks > 1 and not options.address and not options.has_publish:
            options.set_publish(lambda own: _publish_through_agent(own, _timeout(timeout_s)))
        return options
    if missing and ranks != 1:
        raise ConfigError(f"init: address, rank and ranks go together; {' and '.join(missing)} not given")
    return native.JoinOptions(address or "", rank or 0, ranks, timeout_s or 300.0, interface or "", run_id or "")


def init(transport=None, *, address=None, rank=None, ranks=None, process_group=None, timeout_s=None,
         interface=None, run_id=None):
    """Joins the group of this run and makes it the current one. Collective.

    transport      "tcp" (default with more than one rank), "c10d" (torch.distributed's Gloo), "mpi", "none"
    address, rank, ranks   "HOST:PORT" of rank 0 and this rank's place; default: from torchrun, mpirun or srun
    process_group  a group of torch.distributed to work over, for example dist.group.WORLD; its calls are Thinwire's
                   until shutdown(): calls of your own on it in between would mix with ours
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
        if any(value is not None for value in (transport, address, rank, ranks)):
            raise ConfigError("init: process_group says who takes part; leave out transport, address, rank and ranks")
        _current = over_process_group(process_group, timeout_s=timeout_s, interface=interface, run_id=run_id)
        return _current
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
    """Leaves the current group in order, and those over or beside process groups; without any it does nothing."""
    global _current
    groups = {id(group): group for group in [*_wrapped.values(), *_beside.values(), _current] if group is not None}
    _wrapped.clear()
    _beside.clear()
    _current = None
    for group in groups.values():
        group.shutdown()


atexit.register(shutdown)
