# SPDX-License-Identifier: Apache-2.0
"""What rank processes do with thinwire.DataParallel. Each function returns something JSON can hold."""

import copy
import io
import logging
import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

import thinwire as tw


def small_model(seed=0, batch_norm=False):
    torch.manual_seed(seed)
    layers = [nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)]
    if batch_norm:
        layers.insert(1, nn.BatchNorm1d(8))
    return nn.Sequential(*layers)


def deep(layers=4, width=64):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))


def data(step, rank, rows=4):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, 6, generator=generator), torch.randn(rows, 3, generator=generator)


def tw_rank():
    return int(os.environ["THINWIRE_RANK"])


def values(module):
    return [p.detach().flatten().tolist() for p in module.parameters()]


def train(steps=4, model_seed_by_rank=False, set_to_none=True, compile="", optimizer="sgd", accumulate=1,
          algorithm="", grouping=None, form="none", order="plan"):
    rank, ranks = tw.rank(), tw.ranks()
    module = small_model(rank if model_seed_by_rank else 0)
    if compile == "inside":
        module = torch.compile(module, backend="aot_eager")
    model = tw.DataParallel(module, accumulate=accumulate, algorithm=algorithm, grouping=grouping, form=form,
                            order=order)
    run = torch.compile(model, backend="aot_eager") if compile == "outside" else model
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    opt = make(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        opt.zero_grad(set_to_none=set_to_none)
        for part in range(accumulate):
            x, y = data(step * accumulate + part, rank)
            loss = nn.functional.mse_loss(run(x), y) / accumulate
            loss.backward()
        opt.step()
        losses.append(loss.item())
    return {"parameters": values(model), "losses": losses, "ranks": ranks}


def steps_of(model, rank, steps=4):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        opt.zero_grad()
        x, y = data(step, rank)
        nn.functional.mse_loss(model(x), y).backward()
        opt.step()
    return values(model)


def joined(steps=4, ranks=2, optimizer="sgd", accumulate=1):
    """The reference: one process on the joined batch."""
    module = small_model()
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    opt = make(module.parameters(), lr=0.1)
    for step in range(steps):
        opt.zero_grad()
        for part in range(accumulate):
            pairs = [data(step * accumulate + part, rank) for rank in range(ranks)]
            x, y = (torch.cat(z) for z in zip(*pairs))
            (nn.functional.mse_loss(module(x), y) / accumulate).backward()
        opt.step()
    return values(module)


def front():
    """Everything about the wrapper that is not arithmetic."""
    module = small_model(batch_norm=True)
    module.note = "mine"
    model = tw.DataParallel(module)
    twin = copy.deepcopy(model)
    x, y = data(0, tw.rank())
    seen = []
    first = next(module.parameters())
    first.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
    nn.functional.mse_loss(model(x), y).backward()
    nn.functional.mse_loss(twin(x), y).backward()
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    plain = small_model(1, batch_norm=True)
    plain.load_state_dict(torch.load(buffer))
    return {
        "keys": sorted(model.state_dict()), "plain_keys": sorted(module.state_dict()), "note": model.note,
        "hook_calls": len(seen), "names": [name for name, _ in model.named_parameters()],
        "twin_equal": all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), twin.parameters())),
        "twin_own": next(twin.parameters()) is not first,
        "step": model.last_step(),
    }


def autocast(steps=3):
    """bf16 autocast around the forward: on each step, whether the gradients are those of one process that runs every
    rank's batch in turn and takes the mean."""
    model, alone = tw.DataParallel(small_model()), small_model()
    opt, control = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, alone))
    equal, dtypes = [], set()

    def backward(module, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = module(x)
        dtypes.add(str(out.dtype))
        nn.functional.mse_loss(out.float(), y).backward()

    for step in range(steps):
        opt.zero_grad()
        backward(model, *data(step, tw.rank()))
        sums = None
        for rank in range(tw.ranks()):
            control.zero_grad()
            backward(alone, *data(step, rank))
            own = [p.grad.clone() for p in alone.parameters()]
            sums = own if sums is None else [a + b for a, b in zip(sums, own)]
        for p, total in zip(alone.parameters(), sums):
            p.grad = total / tw.ranks()
        dtypes |= {str(p.grad.dtype) for p in model.parameters()}
        equal.append(all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), alone.parameters())))
        opt.step()
        control.step()
    return {"equal": equal, "dtypes": sorted(dtypes), "parameters": values(model)}


def arguments():
    """DDP's arguments: the sentence of each refusal."""
    texts = {}
    accepted = {"find_unused_parameters": True, "gradient_as_bucket_view": True, "static_graph": True,
                "bucket_cap_mb": 10, "check_reduction": True, "dim": 0, "broadcast_buffers": False, "device_ids": None}
    tw.DataParallel(small_model(), **accepted)
    for name, value in {"dim": 1, "mixed_precision": "x", "find_unused_paramters": True, "accumulate": 0,
                        "form": "nonne", "grouping": "size_cup", "device_ids": [0], "init_sync": False,
                        "algorithm": "ring", "order": "any", "output_device": 0, "process_group": 3, "plan": "none.json"}.items():
        try:
            tw.DataParallel(small_model(), **{name: value})
            texts[name] = ""
        except tw.ConfigError as error:
            texts[name] = str(error)
    model = tw.DataParallel(small_model())
    for name in ("join", "register_comm_hook"):
        try:
            getattr(model, name)
        except AttributeError as error:
            texts[name] = str(error)
    return texts


def uneven(batches_of=(5, 3)):
    """KF-11 (i): w after each step, on both ranks."""
    rank = tw.rank()

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return self.w * x

    model = tw.DataParallel(Scale())
    opt = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = [torch.full((4,), 1.0 if rank == 0 else 3.0) for _ in range(batches_of[rank])]
    steps = []
    for x in tw.batches(loader):
        opt.zero_grad()
        model(x).mean().backward()
        opt.step()
        steps.append(model.w.item())
    return steps


def weighted():
    """KF-11 (ii): 2 samples whose gradients sum to 10, 1 sample whose gradient is 3."""
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return self.w * x

    model = tw.DataParallel(Scale())
    batch = torch.tensor([4.0, 6.0]) if tw.rank() == 0 else torch.tensor([3.0])
    for x in tw.batches([batch]):
        model(x).mean().backward()
    return model.w.grad.item()


def bare_loop_stops():
    """A bare loop whose rank 1 stops early: the others get an error that names it."""
    model = tw.DataParallel(small_model())
    for step in range(2 if tw.rank() == 1 else 4):
        x, y = data(step, tw.rank())
        try:
            nn.functional.mse_loss(model(x), y).backward()
        except tw.CommError as error:
            return str(error)
    time.sleep(8)  # alive, but taking no part
    return ""


def interrupted():
    """Rank 0 waits for a rank that does not come; Ctrl-C ends the wait."""
    model = tw.DataParallel(small_model())
    x, y = data(0, tw.rank())
    if tw.rank() == 1:
        time.sleep(6)
        return -1
    loss = nn.functional.mse_loss(model(x), y)
    sent = []
    threading.Timer(1.0, lambda: (sent.append(time.monotonic()), signal.raise_signal(signal.SIGINT))).start()
    try:
        loss.backward()
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    return -1


def gil():
    """How far another thread counts while the main thread waits half a second for a late rank."""
    if tw.rank() == 1:
        time.sleep(0.5)
        tw.average(torch.ones(4))
        return 0
    count, stop = [0], threading.Event()

    def work():
        while not stop.is_set():
            count[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    tw.average(torch.ones(4))
    stop.set()
    thread.join()
    return count[0]


def quick_average():
    """KF-55 in Python."""
    x = torch.full((1_000_000,), tw.rank() + 1.0)
    results = []
    for _ in range(10):
        x.fill_(tw.rank() + 1.0)
        tw.average(x)
        results.append(bool((x == 1.5).all()))
    return results


def torch_group():
    dist.init_process_group("gloo", init_method="file://" + os.environ["THINWIRE_ADDRESS"][5:] + ".store",
                            rank=int(os.environ["THINWIRE_RANK"]), world_size=int(os.environ["THINWIRE_SIZE"]))
    return dist.group.WORLD


def over_process_group(how="init", again=False):
    """Training over a torch.distributed group of the caller's own, the whole world."""
    world = torch_group()
    for _ in range(2 if again else 1):
        tw.shutdown()
        if how == "init":
            tw.init(process_group=world)
            result = train()
        else:
            model = tw.DataParallel(small_model(), process_group=world)
            result = {"parameters": steps_of(model, dist.get_rank()), "ranks": model._own["group"].ranks}
    tw.shutdown()
    total = torch.ones(3)  # the group is the caller's again
    dist.all_reduce(total)
    dist.destroy_process_group()
    return {**result, "own_sum": total.tolist()}


def over_part_of_the_world():
    """Ranks 1 and 2 of three train over a group of their own; rank 0 is no member."""
    torch_group()
    part = dist.new_group([1, 2])
    rank = dist.get_rank()
    if rank == 0:
        try:
            tw.init(process_group=part)
        except tw.ConfigError as error:
            return str(error)
    model = tw.DataParallel(small_model(), process_group=part)
    twice = tw.DataParallel(small_model(), process_group=part)  # a second model on the same group
    result = {"parameters": steps_of(model, rank - 1), "rank": model._own["group"].rank,
              "same_group": twice._own["group"] is model._own["group"]}
    return result


def refused():
    """What cannot be done is refused in words."""
    texts = {}
    sparse = tw.DataParallel(nn.Embedding(5, 2, sparse=True))
    try:
        sparse(torch.tensor([1, 2])).sum().backward()
    except tw.UnsupportedError as error:
        texts["sparse"] = str(error)
    create_graph = tw.DataParallel(small_model())
    x, y = data(0, 0)
    try:
        nn.functional.mse_loss(create_graph(x), y).backward(create_graph=True)
    except tw.UnsupportedError as error:
        texts["create_graph"] = str(error)
    return texts


def forms(form, path, steps=6):
    """Six steps in one go, and three, a file, and three; then another form in the middle of a run."""
    rank = tw.rank()

    def some(model, first, last):
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(first, last):
            opt.zero_grad()
            x, y = data(step, rank)
            nn.functional.mse_loss(model(x), y).backward()
            opt.step()

    whole = tw.DataParallel(small_model(), form=form, seed=3)
    some(whole, 0, steps)
    first = tw.DataParallel(small_model(), form=form, seed=3)
    some(first, 0, steps // 2)
    state = first.form_state()
    if rank == 0:
        torch.save({"module": first.state_dict(), "form": state}, path)
    tw.barrier()
    saved = torch.load(path)
    second = tw.DataParallel(small_model(1), form=form, seed=3)
    second.load_state_dict(saved["module"])
    second.load_form_state(saved["form"])
    some(second, steps // 2, steps)
    resumed = values(second)
    payload = second.last_step()["payload_bytes"]
    second.set_form("none")
    some(second, steps, steps + 1)
    dense = second.last_step()["payload_bytes"]
    return {"whole": values(whole), "changed": values(second), "keys": sorted(state), "payload": payload, "dense": dense,
            "resumed": resumed}


def chosen(forms=None, quality=None, steps=12, freeze_at=None, accumulate=1):
    """A plan that is chosen while the model trains on a slow link, beside whole gradients from the start."""
    tw.init("throttle{rate=8mbit}|tcp")

    def some(model):
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        seen = []
        for step in range(steps):
            if step == freeze_at:
                model.module[0].weight.requires_grad_(False)
            opt.zero_grad()
            for part in range(accumulate):
                x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1000 * step + 100 * part + tw.rank()))
                model(x).square().mean().backward()
            opt.step()
            seen.append(model.last_step()["payload_bytes"])
        return seen

    said = []
    logging.getLogger("thinwire").addFilter(lambda record: said.append(record.getMessage()) or True)
    model = tw.DataParallel(deep(), plan="auto", forms=forms, quality=quality, replan=False, accumulate=accumulate)
    before = model.choice()
    bytes_of = some(model)
    plain = tw.DataParallel(deep(), accumulate=accumulate)
    some(plain)
    return {"before": before, "choice": model.choice(), "bytes": bytes_of, "parameters": values(model),
            "plain": values(plain), "said": said}


def contradictions():
    texts = []
    for arguments in ({"plan": "auto", "form": "sign"}, {"plan": "auto", "grouping": "wfbp"}, {"quality": "god"},
                      {"plan": "some.json", "quality": "same"}, {"forms": ["sign"], "quality": "same"},
                      {"forms": ["ef|topq"]}, {"plan": "auto", "algorithm": "gather"}):
        try:
            tw.DataParallel(small_model(), **arguments)
            texts.append("")
        except tw.ConfigError as error:
            texts.append(str(error))
    return texts


def other_instructions(forms, steps=3):
    """Rank 1 goes without the wide vector instructions; both train on the same samples. Parameters, and what memories
    keep of each rank, form by form."""
    rank = tw_rank()
    if rank == 1:
        os.environ["THINWIRE_SIMD"] = "scalar"    # read once, by the first kernel
    out = {}
    for form in forms:
        model = tw.DataParallel(deep(), form=form)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            x = torch.randn(8, 64, generator=torch.Generator().manual_seed(step))
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
        state = model.form_state()
        kept = [[state[key].tolist() for key in sorted(state) if key.startswith(f"rank{r}/")] for r in (0, 1)]
        out[form] = {"parameters": values(model), "kept": kept}
    return out
