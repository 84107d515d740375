# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows in the order of their experts, cut where the next one begins: slices between numbers that follow from the data."""

import copy
import warnings

import numpy
import torch
import torch.nn.functional as F
from torch import nn

import memopt
from rewriting import Model, case, check_all, compare_step

EXPERTS = 5


def make_experts():
    return nn.ModuleList(nn.Sequential(nn.Linear(6, 7), nn.SiLU(), nn.Linear(7, 4)) for _ in range(EXPERTS))


def route(self, x, count=2):
    """The experts of each row, their weights, and the rows in the order of the experts."""
    weights, chosen = self.linear(x).softmax(-1).topk(count)
    return weights, chosen, chosen.view(-1).argsort(stable=True)


@case(experts=make_experts)
def one_behind_the_other(self, x):
    """As DeepSeek's layers: the pieces together are all rows again."""
    weights, chosen, order = route(self, x)
    counts = chosen.new_zeros(len(x), EXPERTS).scatter_(1, chosen, 1).sum(0).tolist()
    rows, pieces, start = x[order // 2], [], 0
    for expert, count in zip(self.experts, counts):
        end = start + count
        pieces.append(expert(rows[start:end]))
        start = end
    pieces = torch.cat(pieces)
    back = torch.empty_like(pieces)
    back[order] = pieces
    return (back.view(*chosen.shape, -1) * weights.unsqueeze(-1)).sum(1).square().mean()


@case(experts=make_experts)
def split_at_counts(self, x):
    weights, chosen, order = route(self, x)
    counts = torch.bincount(chosen.view(-1), minlength=EXPERTS)
    parts = [expert(part) for expert, part in zip(self.experts, torch.split(x[order // 2], counts.tolist()))]
    out = torch.cat(parts) * weights.view(-1)[order, None]
    return torch.zeros(len(x), 4).index_add(0, order // 2, out).square().mean()


@case(experts=make_experts)
def between_offsets(self, x):
    """The ends are elements of a tensor."""
    weights, chosen, order = route(self, x)
    offsets = F.pad(chosen.view(-1).bincount(minlength=EXPERTS).cumsum(0), (1, 0))
    out = torch.zeros(len(x), 4)
    for place, expert in enumerate(self.experts):
        rows = order[offsets[place]:offsets[place + 1]]
        out.index_add_(0, rows // 2, expert(x[rows // 2]) * weights.view(-1)[rows, None])
    return out.square().mean()


@case(experts=make_experts)
def written_between(self, x):
    _, chosen, order = route(self, x, 1)
    rows, out, start = x[order], torch.zeros(len(x), 4), 0
    for expert, end in zip(self.experts, chosen.view(-1).bincount(minlength=EXPERTS).cumsum(0).tolist()):
        out[start:end] = expert(rows[start:end]) + 1
        start = end
    return out.exp().mean() + rows[:start].sum()


def _skipping(count_of, is_left_out):
    """As DeepSeek's layers where no gradient is taken: experts without rows are left out, and the pieces of the others put together."""
    def compute(self, x):
        weights, chosen, order = route(self, x)
        counts = count_of(chosen.new_zeros(len(x), len(self.experts)).scatter_(1, chosen, 1).sum(dim=0))
        rows, pieces, start = x[order // 2], [], 0
        for number, count in enumerate(counts):
            end = start + count
            if is_left_out(count):
                continue
            pieces.append(self.experts[number](rows[start:end]))
            start = end
        pieces = torch.cat(pieces, dim=0) if len(pieces) else rows.new_empty(0)
        back = torch.empty_like(pieces)
        back[order] = pieces
        return back.view(*chosen.shape, -1).type(weights.dtype).mul_(weights.unsqueeze(dim=-1)).sum(dim=1).square().mean()
    return compute


def written_over(self, x):
    """As one behind the other, but each piece is written where it was cut."""
    weights, chosen, order = route(self, x)
    rows, start = x[order // 2].clone(), 0
    out = torch.zeros(len(rows), 4, dtype=x.dtype)
    for expert, count in zip(self.experts, torch.bincount(chosen.view(-1), minlength=len(self.experts)).tolist()):
        if count > 0:
            out[start:start + count] = expert(rows[start:start + count])
        start += count
    return (out * weights.view(-1)[order, None]).square().mean()


LEAVING_OUT = {
    "numbers of Python": _skipping(lambda counts: counts.tolist(), lambda count: count == 0),
    "an array of NumPy's": _skipping(lambda counts: counts.cpu().numpy(), lambda count: count == 0),
    "a truth value": _skipping(lambda counts: counts.tolist(), lambda count: not count > 0),
    "written over": written_over,
}


def check_left_out(name, function, experts=16):
    """More experts than rows, so that in each batch others have none. Beside PyTorch in float64: losses and parameters of some steps."""
    torch.manual_seed(0)
    own = nn.ModuleList(nn.Sequential(nn.Linear(6, 7), nn.SiLU(), nn.Linear(7, 4)) for _ in range(experts))
    model = Model(function, 6, experts, experts=own).double()
    reference = copy.deepcopy(model)
    batches = [{"x": torch.randn(5, 6, dtype=torch.float64) * (1 + step)} for step in range(6)]
    optimizers = [torch.optim.AdamW(other.parameters(), lr=0.02, weight_decay=0.1) for other in (model, reference)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", memopt.NumbersWarning)  # of sides that are left out
        step = memopt.compile(model, None, batches[0], optimizer=optimizers[0])
    patterns = set()
    for batch in batches:
        optimizers[1].zero_grad()
        loss = reference(**batch)
        loss.backward()
        patterns.add(tuple(expert[0].weight.grad is not None and bool(expert[0].weight.grad.any()) for expert in reference.experts))
        optimizers[1].step()
        torch.testing.assert_close(torch.tensor(step(batch), dtype=torch.float64), loss.detach(), rtol=1e-7, atol=1e-9)
    assert len(patterns) > 1 and all(not all(used) for used in patterns), patterns
    step.sync()
    for (key, own), expected in zip(model.named_parameters(), reference.parameters()):
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-11, msg=lambda text: f"{name}, {key}: {text}")
    print(f"ok left out: {name}")


def minimind(self, x):
    """An array of NumPy's, and experts of which some have no rows: those are left as they are."""
    weights, chosen, order = route(self, x)
    ends, out = chosen.view(-1).bincount(minlength=EXPERTS).cpu().numpy().cumsum(0), torch.zeros(len(x), 4)
    for place, end in enumerate(ends):
        start = 0 if place == 0 else ends[place - 1]
        if start == end:
            continue
        rows = order[start:end]
        found = self.experts[place](x[rows // 2])
        found.mul_(weights.view(-1, 1)[rows])
        out.scatter_add_(0, (rows // 2).view(-1, 1).repeat(1, 4), found)
    return out.square().mean()


def make_minimind():
    model = Model(minimind, 6, EXPERTS, experts=make_experts())
    with torch.no_grad():
        model.linear.bias[2] = -100.0
    return model, {"x": torch.randn(12, 6)}


class WithNumPy(nn.Module):
    """A function of NumPy's, and an array that becomes a tensor again."""

    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(3, 2), function

    def forward(self, x):
        y = self.linear(x)
        return y.sum() * self.function(y.detach().numpy())


def check_numpy():
    for function in (lambda array: float(numpy.mean(array)), lambda array: torch.from_numpy(array).mean()):
        model = WithNumPy(function)
        try:
            memopt.compile(model, None, {"x": torch.randn(4, 3)}, optimizer=torch.optim.SGD(model.parameters(), 0.1))
        except memopt.Refused as error:
            assert "NumPy inside the step is not supported" in str(error), error
            continue
        raise AssertionError("nothing is refused")
    print("ok numpy")


if __name__ == "__main__":
    check_numpy()
    check_all()
    compare_step("experts without rows", make_minimind)
    for kind in LEAVING_OUT:
        check_left_out(kind, LEAVING_OUT[kind])
