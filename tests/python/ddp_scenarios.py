# SPDX-License-Identifier: Apache-2.0
"""What rank processes do with PyTorch's own wrapper and our hook. Each function returns something JSON can hold."""

import copy
import pickle

import torch
import torch.distributed as dist
from torch import nn

import thinwire as tw
from scenarios import data, deep, small_model, torch_group, tw_rank, values


def wrapped_by_torch(module, form=None, bucket_mb=25, kept=None):
    """PyTorch's own wrapper with our hook (unless form is None), and the state of it."""
    ddp = nn.parallel.DistributedDataParallel(module, bucket_cap_mb=bucket_mb)
    if form is None and kept is None:
        return ddp, None
    if kept is None:
        state = tw.DDPState(ddp, form=form)
    else:
        state = pickle.loads(kept)
        state.attach(ddp)
    ddp.register_comm_hook(state, tw.ddp_hook)
    return ddp, state


def run_steps(model, first, last, width):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first, last):
        generator = torch.Generator().manual_seed(1000 * step + tw_rank())
        opt.zero_grad()
        model(torch.randn(8, width, generator=generator)).square().mean().backward()
        opt.step()


def torch_ddp(form, bucket_mb=25, steps=6):
    """PyTorch's wrapper with our hook: in one go, and with a pickled state in the middle of the run; plain, and the
    same form through our own wrapper."""
    torch_group()
    width = 64
    whole, state = wrapped_by_torch(deep(), form, bucket_mb)
    run_steps(whole, 0, steps, width)
    first, before = wrapped_by_torch(deep(), form, bucket_mb)
    run_steps(first, 0, steps // 2, width)
    second, after = wrapped_by_torch(copy.deepcopy(first.module), bucket_mb=bucket_mb, kept=pickle.dumps(before))
    run_steps(second, steps // 2, steps, width)
    plain, _ = wrapped_by_torch(deep(), None, bucket_mb)
    run_steps(plain, 0, steps, width)
    ours = tw.DataParallel(deep(), form=form, grouping="single")
    run_steps(ours, 0, steps, width)
    result = {"whole": values(whole.module), "resumed": values(second.module), "plain": values(plain.module),
              "ours": values(ours.module), "kept": len(state._engine.state()), "steps": after._engine.step()}
    tw.shutdown()
    dist.destroy_process_group()
    return result


def torch_ddp_keeps_all(steps=5):
    """Constant gradients, several buckets, which DDP makes anew after its first step: what has come out and what is
    kept add up to what went in. Then a step with a NaN, which must leave what is kept as it is."""
    torch_group()
    rank = dist.get_rank()
    module = deep()
    model, state = wrapped_by_torch(module, "ef|topk{ratio=0.05}", bucket_mb=0.02)
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(rank))
    own = torch.autograd.grad(module(x).square().mean(), list(module.parameters()))
    came = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    layouts = []
    for _ in range(steps):
        model.zero_grad()
        model(x).square().mean().backward()
        layouts.append(sum(1 for key in state._engine.state() if "residual" in key))
        for name, p in module.named_parameters():
            came[name] += 2 * p.grad
    kept = {key.split("/")[-1].split("[")[0]: value for key, value in state._engine.state().items()}
    produced = {name: steps * g.flatten() for (name, _), g in zip(module.named_parameters(), own)}
    missing = {name: produced[name] - kept[name] for name in produced}    # what this rank has sent
    for value in missing.values():
        dist.all_reduce(value)
    off = max((missing[name] - came[name].flatten()).abs().max().item() for name in missing)
    model.zero_grad()
    (model(x).square().mean() * (float("nan") if rank == 1 else 1)).backward()
    nan = all(p.grad.isnan().all().item() for p in module.parameters())
    same = max((kept[key.split("/")[-1].split("[")[0]] - value).abs().max().item()
               for key, value in state._engine.state().items())
    tw.shutdown()
    dist.destroy_process_group()
    return {"off": off, "nan": nan, "moved": same, "entries": layouts}


def torch_ddp_refuses():
    torch_group()
    ddp = nn.parallel.DistributedDataParallel(small_model())
    texts = []
    for attempt in (lambda: tw.DDPState(small_model()), lambda: tw.DDPState(ddp, form="ef|topq"),
                    lambda: tw.DDPState(ddp, form="eff|topk"), lambda: tw.DDPState(ddp, form="topk{ratio=2}")):
        try:
            attempt()
            texts.append("")
        except tw.ConfigError as error:
            texts.append(str(error))
    loaded = pickle.loads(pickle.dumps(tw.DDPState(ddp, form="cast{f16}")))
    ddp.register_comm_hook(loaded, tw.ddp_hook)
    try:
        ddp(data(0, 0)[0]).sum().backward()
        texts.append("")
    except Exception as error:
        texts.append(str(error))
    tw.shutdown()
    dist.destroy_process_group()
    return texts
