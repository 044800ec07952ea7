# SPDX-License-Identifier: Apache-2.0
"""The wrapper around a user's module. The work is done by the C++ engine; this file is about being pleasant."""

import contextlib
import copy
import json

import torch
from torch import nn
from torch._compile import _disable_dynamo  # loads the compiler when it is first needed, not with thinwire

from thinwire._load import ConfigError, UnsupportedError, native
from thinwire.group import current_group, over_process_group

# Arguments of PyTorch's DDP: None accepts any value, otherwise the values accepted, and what to do instead.
_DDP_ARGUMENTS = {
    "dim": ((0,), "batches are split along dimension 0"),
    "output_device": ((None,), "the module's outputs stay where it makes them"),
    "find_unused_parameters": (None, "unused parameters are always handled"),
    "init_sync": ((True,), "parameters always start as those of rank 0"),
    "check_reduction": (None, "checks are always on"),
    "gradient_as_bucket_view": (None, "gradients are always views of their bucket"),
    "static_graph": (None, "what one step learns is used in the next, and checked"),
    "delay_all_reduce_named_params": ((None,), "use exclude= and average those gradients yourself"),
    "param_to_hook_all_reduce": ((None,), "use exclude= and average those gradients yourself"),
    "mixed_precision": ((None,), "use torch.autocast around the forward"),
    "device_mesh": ((None,), "use group=thinwire.init(...)"),
    "skip_all_reduce_unused_params": (None, "unused parameters are always handled"),
}


_DDP_METHODS = {
    "join": "loop over thinwire.batches(loader), which ends on all ranks together",
    "register_comm_hook": "say with form= what travels (thinwire.ddp_hook is for PyTorch's own wrapper)",
}


def _check_ddp_arguments(arguments):
    for name, value in arguments.items():
        if name not in _DDP_ARGUMENTS:
            raise ConfigError(native.unknown_name("argument", name, sorted(_DDP_ARGUMENTS) + _OWN_ARGUMENTS))
        accepted, instead = _DDP_ARGUMENTS[name]
        if accepted is not None and value not in accepted:
            raise ConfigError(f"DataParallel: {name}={value!r} is not taken; {instead}")


_OWN_ARGUMENTS = ["accumulate", "algorithm", "broadcast_buffers", "bucket_cap_mb", "device_ids", "exclude", "form", "forms",
                  "group", "grouping", "order", "plan", "process_group", "quality", "replan", "seed"]


def _forms_to_choose_from(quality, forms, plan, fixed):
    """What plan="auto" may send, or None where nothing is to be chosen."""
    if plan is None and (quality is not None or forms is not None):
        plan = "auto"
    if plan != "auto":
        if quality is not None or forms is not None:
            raise ConfigError(f"DataParallel: quality and forms choose a plan, and plan={plan!r} is one; give one of them")
        return None
    for name, value in fixed.items():
        if value:
            raise ConfigError(f"DataParallel: plan='auto' chooses {name}, which is given as {value!r}; give one of them"
                              + (" (forms=[...] says what may be chosen)" if name == "form" else ""))
    if forms is None:
        return native.forms_of(quality or "same")
    if quality is not None:
        raise ConfigError("DataParallel: forms and quality both say what may be chosen; give one")
    forms = forms.split(";") if isinstance(forms, str) else list(forms)
    return forms if "none" in forms else ["none", *forms]


def _tensors_in(value):
    """Tensors of a nested output that take part in autograd, in a fixed order."""
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors_in(item)]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _tensors_in(item)]
    if hasattr(value, "__dataclass_fields__"):
        return [t for name in value.__dataclass_fields__ for t in _tensors_in(getattr(value, name))]
    return []


def _replace_tensors(value, marked):
    """`value` with its autograd tensors taken from the iterator `marked`, in the order of _tensors_in."""
    if isinstance(value, torch.Tensor):
        return next(marked) if value.requires_grad else value
    if isinstance(value, dict):
        made = {key: _replace_tensors(item, marked) for key, item in value.items()}
        if type(value) is dict:
            return made
        filled = copy.copy(value)
        filled.update(made)
        return filled
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replace_tensors(item, marked) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_replace_tensors(item, marked) for item in value)
    if hasattr(value, "__dataclass_fields__"):
        filled = copy.copy(value)
        for name in value.__dataclass_fields__:
            object.__setattr__(filled, name, _replace_tensors(getattr(value, name), marked))
        return filled
    return value


class DataParallel(nn.Module):
    """Trains `module` on all ranks as one process would on the joined batch.

    When backward returns, .grad of every parameter holds the mean over ranks: of plain means where ranks have equal
    sample counts, weighted by samples where counts are stated (`thinwire.batches`) and differ. Parameters and buffers
    start as those of rank 0. Nothing but the forward and backward of the module is collective afterwards.

    module             any module; its parameters may be shared, frozen, of mixed dtypes, unused in a step
    group              from `thinwire.init`; default: the current one
    process_group      a group of torch.distributed in its place
    form               what travels: memories, then a codec, for example "none" or "ef|topk{ratio=0.01}"
    grouping           how gradients are merged into messages: "size_cap{bytes=1MiB}", "wfbp", "single", "exact"
    algorithm          of the exchanges: "direct", "gather", "shard"; default: chosen
    plan               path of a plan file in place of `grouping` and `form`, as `thinwire plan --out` writes it; or
                       "auto": the first eight steps are measured, then the links and forms for some seconds, and the plan
                       with the shortest predicted step takes over. Rank 0 says which, and why; `choice()` tells programs
    quality            what plan="auto" may change: nothing but messages ("same", the default), "bounded" loss (half a
                       point), "free"; the optimizer is taken to have momentum
    forms              the forms plan="auto" may choose, in place of a quality: a list
    replan             with plan="auto": where steps take another time than was predicted, the links are measured again, and
                       a plan that is a tenth quicker takes over
    order              in which messages start: that of the plan, or "agreed": as they become ready on all ranks, for models
                       whose branches change from step to step
    accumulate         exchange only with every k-th backward
    exclude            names of parameters that stay local, the same on all ranks
    broadcast_buffers  buffers follow rank 0 at every training forward
    bucket_cap_mb      as DDP's: the same as grouping="size_cap{bytes=...}"
    seed               of forms that draw numbers, the same on all ranks

    The other arguments of PyTorch's DistributedDataParallel are accepted where they change nothing, and refused with
    the replacement named where they would. Sparse gradients and create_graph are refused in words at backward.
    Attributes of the module are reached through the wrapper; state_dict has the module's own names. What a person should
    know, as values that are not finite, goes to the logger "thinwire" as a warning.
    """

    def __init__(self, module, device_ids=None, *, group=None, process_group=None, form="none", grouping=None,
                 algorithm="", plan=None, quality=None, forms=None, replan=True, order="plan", accumulate=1,
                 exclude=(), broadcast_buffers=True, bucket_cap_mb=None, seed=0, **ddp_arguments):
        super().__init__()
        _check_ddp_arguments(ddp_arguments)
        if device_ids:
            raise ConfigError(f"DataParallel: device_ids={device_ids!r} is not taken; models are trained on the CPU")
        if bucket_cap_mb is not None:
            if grouping is not None:
                raise ConfigError("DataParallel: bucket_cap_mb and grouping say the same thing twice; give one")
            grouping = f"size_cap{{bytes={int(bucket_cap_mb * 1024 * 1024)}}}"
        chosen_from = _forms_to_choose_from(quality, forms, plan, {"form": "" if form == "none" else form,
                                                                   "grouping": grouping, "algorithm": algorithm})
        if not isinstance(accumulate, int) or accumulate < 1:
            raise ConfigError(f"DataParallel: accumulate must be a whole number of at least 1, got {accumulate!r}")
        if process_group is not None:
            if group is not None:
                raise ConfigError("DataParallel: process_group and group say the same thing twice; give one")
            group = over_process_group(process_group)
        self._own = {
            "group": group or current_group(),
            "options": native.DataParallelOptions(form, grouping or "size_cap", algorithm,
                                                  "" if chosen_from else plan or "", chosen_from, replan, order,
                                                  list(exclude), broadcast_buffers, seed),
            "accumulate": accumulate, "backwards": 0, "sync": True, "engine": None,
        }
        self.module = module
        self._engine()

    def _engine(self):
        own = self._own
        if own["engine"] is None:
            own["engine"] = native.DataParallel(
                own["group"]._context, own["options"],
                [(name, p) for name, p in self.module.named_parameters()],
                [(name, b) for name, b in self.module.named_buffers() if b is not None])
        return own["engine"]

    def forward(self, *args, **kwargs):
        self._begin()
        return self._mark(self.module(*args, **kwargs))

    @_disable_dynamo
    def _begin(self):
        own = self._own
        training = self.module.training and torch.is_grad_enabled()
        if training:
            last = own["backwards"] % own["accumulate"] == own["accumulate"] - 1
            own["backwards"] += 1
            self._engine().begin(own["sync"] and last)

    @_disable_dynamo
    def _mark(self, output):
        if not (self.module.training and torch.is_grad_enabled()):
            return output
        tensors = _tensors_in(output)
        if not tensors:
            return output
        return _replace_tensors(output, iter(self._engine().mark(tensors)))

    @contextlib.contextmanager
    def no_sync(self):
        """Backwards of forwards made inside add up locally; the first one outside exchanges the sum."""
        before, self._own["sync"] = self._own["sync"], False
        try:
            yield
        finally:
            self._own["sync"] = before

    def finish(self):
        """Ends a backward by hand: for a loss that does not come from this wrapper's output. Collective."""
        self._engine().finish()

    def last_step(self):
        """What the last exchanged step cost: a dict of compute_s, exposed_s and wire_bytes of this rank."""
        return self._engine().last_step()

    def set_form(self, form):
        """What travels from the next step on. Collective. What memories hold back goes on in those of the same name."""
        self._engine().set_form(form)

    def set_plan(self, path):
        """The plan of a file in place of the present one, from the next step on. Collective. It holds until what the model
        trains changes."""
        self._engine().set_plan(path)

    def choice(self):
        """With plan="auto", once it has chosen: a dict of the plan chosen, what it should take, and what was rejected
        (on rank 0; on the others the plan alone). Before: None."""
        text = self._engine().choice()
        return json.loads(text) if text else None

    def form_state(self):
        """What the memories and codecs of all ranks keep, as a dict of tensors on rank 0 and an empty one elsewhere:
        save it beside state_dict() and the optimizer's. Collective."""
        return dict(self._engine().form_state())

    def load_form_state(self, state):
        """Takes up what form_state() gave on rank 0; the same dict on all ranks, of which there may be others than then.
        Collective."""
        self._engine().load_form_state(list(state.items()))

    # The wrapper reads and writes the state of the module itself, so that a checkpoint loads into plain PyTorch.
    def state_dict(self, *args, **kwargs):
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args, **kwargs):
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args, **kwargs):
        return self.module.named_buffers(*args, **kwargs)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            if name in _DDP_METHODS and not hasattr(self.module, name):
                raise AttributeError(f"DataParallel has no {name}(); {_DDP_METHODS[name]}") from None
            return getattr(self.module, name)

    def __deepcopy__(self, memo):
        """A copy with a module of its own. It joins the exchange at its first training forward, on all ranks."""
        made = self.__class__.__new__(self.__class__)
        nn.Module.__init__(made)
        made._own = {**self._own, "engine": None, "backwards": 0}
        made.module = copy.deepcopy(self.module, memo)
        return made

    def __getstate__(self):
        raise UnsupportedError("DataParallel: a wrapper is tied to its group; save state_dict() instead")
