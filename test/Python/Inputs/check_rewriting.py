# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that are written anew: run in PyTorch beside their models; and one step with checks, compiled."""

import logging
import math

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from memopt import export

logging.getLogger("torch").setLevel(logging.ERROR)


class _Copy(torch.autograd.Function):
    """Autograd lacks it, for programs before their decompositions have none."""

    @staticmethod
    def forward(ctx, into, value):
        return value.expand_as(into).to(into.dtype).clone()

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient


library = torch.library.Library("aten", "IMPL")
library.impl("copy", lambda into, value, non_blocking=False: _Copy.apply(into, value), "Autograd")


class Model(nn.Module):
    """A linear layer and what a case makes of it."""

    def __init__(self, function, inside, outside, **parameters):
        super().__init__()
        self.linear, self.function = nn.Linear(inside, outside), function
        for name, value in parameters.items():
            setattr(self, name, value if isinstance(value, nn.Module) else nn.Parameter(value))

    def forward(self, **batch):
        return self.function(self, **batch)


CASES = {}


def case(inside=6, outside=5, **parameters):
    def register(function):
        CASES[function.__name__] = (function, inside, outside, parameters)
        return function
    return register


def check(name):
    torch.manual_seed(0)
    function, inside, outside, parameters = CASES[name]
    model = Model(function, inside, outside, **{key: make() for key, make in parameters.items()})
    batch = {"x": torch.randn(12, inside), "t": torch.randint(-2, outside, (12,)), "keep": torch.rand(12) < 0.5}
    batch = {key: value for key, value in batch.items() if key in function.__code__.co_varnames}
    program = export.export_program(export.TrainingStep(model), batch, training=True)
    expected = model(**{key: value.clone() for key, value in batch.items()})
    module = program.module()
    found = module(**{key: value.clone() for key, value in batch.items()})
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, msg=lambda text: f"{name}: {text}")
    mine = dict(module.named_parameters())
    for key, parameter in model.named_parameters():
        wanted = torch.autograd.grad(expected, parameter, retain_graph=True, allow_unused=True)[0]
        got = torch.autograd.grad(found, mine[f"net.{key}"], retain_graph=True, allow_unused=True)[0]
        if wanted is not None:
            wanted = torch.view_as_real(wanted) if wanted.is_complex() else wanted
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}, gradient of {key}: {text}")
    sizes = [size for node in program.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor) for size in node.meta["val"].shape]
    assert all(isinstance(size, int) for size in sizes), f"{name}: {sizes}"
    print(f"ok {name}")


# Masks ----------------------------------------------------------------------------------------------------------

@case()
def rows(self, x, t):
    y = self.linear(x)
    kept = t >= 0
    return F.cross_entropy(y[kept], t[kept]) + y[~kept].pow(2).mean() + y[y > 0].log().sum()


@case()
def written(self, x, keep):
    y = self.linear(x)
    out = torch.zeros_like(y)
    out[keep] = y[keep] * y[keep].sum(1, keepdim=True)
    out[~keep] = y[~keep][:, 0:1]
    out[out > 1] = 1
    return out.square().sum()


@case()
def places(self, x, keep):
    y = self.linear(x)
    (found,) = torch.where(keep)
    total = torch.zeros(4, 5).index_add(0, found % 4, y[found].tanh())
    most = torch.full((4, 5), -9.0).scatter_reduce(0, (found % 4)[:, None].expand(-1, 5), y[found], "amax")
    return total.sum() + most.exp().sum() + torch.masked_select(y, y < 0).std() / keep.nonzero().size(0)


@case()
def two_masks(self, x, keep):
    y = self.linear(x)
    order = torch.arange(12)
    first, last = order < keep.sum(), order >= 12 - keep.sum()
    return (y[first] * y[last]).sum() + torch.cat([y[first], y[last], y]).amax(0).sum()


# Complex numbers ------------------------------------------------------------------------------------------------

@case(weight=lambda: torch.randn(5, 3, dtype=torch.cfloat))
def spectrum(self, x):
    z = torch.fft.fft(self.linear(x)) @ self.weight
    z = z / (1 + z.abs()) + torch.polar(z.abs(), z.imag) * 1j
    return torch.fft.irfft(z, n=6).square().sum() + z.angle().sum() + (z * z.conj()).real.mean()


@case(outside=200)
def long_spectra(self, x):
    y = self.linear(x)
    z = torch.fft.rfft(y, norm="ortho")
    return (torch.fft.irfft(z * torch.exp(-z.abs()), n=200, norm="ortho") * y).sum() + torch.fft.fft2(y).abs().mean()


@case(outside=64)
def short_time(self, x):
    window = torch.hann_window(16)
    z = torch.stft(self.linear(x), 16, 4, window=window, return_complex=True)
    return torch.istft(z * z.abs(), 16, 4, window=window, length=64).square().mean()


# Branches and loops ---------------------------------------------------------------------------------------------

@case()
def branch(self, x):
    return torch.cond(x.mean() > 0, lambda x: self.linear(x).tanh(), lambda x: self.linear(x) * 2, (x,)).sum()


@case(outside=6)
def loop(self, x):
    w = self.linear.weight * 0.3
    with torch.no_grad():
        _, z = torch._higher_order_ops.while_loop(
            lambda i, z: (i < 9) & (z.abs().max() > 0.05), lambda i, z: (i + 2, torch.tanh(z @ w.mT + 0.1 * x)),
            (torch.tensor(1), torch.ones_like(x)))
    return torch.tanh(self.linear(z)).sum()


@case()
def regions(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = self.linear(x)
    return y.float().square().sum() + torch.polar(y.float().square(), y.float()).real.mean()


# Layers ---------------------------------------------------------------------------------------------------------

@case(rnn=lambda: nn.GRU(5, 3, bidirectional=True, batch_first=True))
def packed(self, x, keep):
    lengths = keep.reshape(3, 4).sum(1).clamp(min=1)
    rows = nn.utils.rnn.pack_padded_sequence(self.linear(x).reshape(3, 4, 5), lengths, batch_first=True, enforce_sorted=False)
    found, last = self.rnn(nn.utils.rnn.PackedSequence(rows.data.tanh(), *rows[1:]))
    found, _ = nn.utils.rnn.pad_packed_sequence(found, batch_first=True, total_length=4)
    return found.square().sum() + last.exp().mean()


@case()
def speech(self, x, t):
    logits = self.linear(x).reshape(6, 2, 5).log_softmax(-1)
    return F.ctc_loss(logits, t[:6].clamp(min=1).reshape(2, 3), torch.tensor([6, 2]), torch.tensor([2, 3]), zero_infinity=True)


# Gradients that a model takes itself ---------------------------------------------------------------------------

@case()
def penalty(self, x):
    x = x.requires_grad_()
    y = self.linear(x).tanh().pow(3).sum(1)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(g[:, 0].sum(), x, create_graph=True)
    (fixed,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    return (g.norm(dim=1) - 1).square().mean() + second.sum() + (y[:, None] * fixed).sum()


@case(conv=lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2))
def convolution(self, x):
    image = x[:, :, None].repeat(1, 3, 6).reshape(12, 2, 9, 6).requires_grad_()
    (g,) = torch.autograd.grad(F.relu(self.conv(image)).square().sum(), image, create_graph=True)
    return g.square().mean()


@case()
def transforms(self, x):
    energy = lambda z: self.linear(z).sin().sum()
    by_row = torch.func.grad(energy)(x)
    return by_row.square().sum() + torch.func.jacrev(lambda z: self.linear(z).exp()[:2])(x[0]).square().sum()


def compare_step(name, make):
    """A step beside PyTorch's, in the parameters behind it."""
    losses, results = [], []
    for compiled in (False, True):
        torch.manual_seed(0)
        model, batch = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if compiled:
            step = memopt.compile(model, None, batch, optimizer=optimizer)
            losses.append(step(batch))
            results.append(step.state_dict()["model"])
        else:
            loss = model(**batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            results.append(model.state_dict())
    assert abs(losses[0] - losses[1]) < 1e-5 * abs(losses[0]), (name, losses)
    for key, value in results[0].items():
        torch.testing.assert_close(results[1][key], value, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}, {key}: {text}")
    print(f"ok {name}")


def check_formulas():
    """Gradients that are formulas, which PyTorch does not run as a part of a program."""
    @torch.library.custom_op("rewriting::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x ** 3
    cube.register_fake(torch.empty_like)
    cube.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0], setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))

    def decompose(self, x):
        a = self.linear(x)
        a = a @ a.mT + torch.eye(3)
        low = torch.linalg.cholesky(a)
        return (torch.linalg.solve(a, x[:, :1]).sum() + torch.linalg.solve_triangular(low, x, upper=False).square().sum()
                + torch.linalg.slogdet(a).logabsdet + torch.inverse(a).sum() + cube(a).mean()
                + torch.fft.fft(self.weight).abs().sum() + self.norm(x).exp().sum())
    compare_step("formulas", lambda: (Model(decompose, 3, 3, weight=torch.randn(3, dtype=torch.cfloat),
                                            norm=nn.BatchNorm1d(3, momentum=None)), {"x": torch.randn(3, 3)}))


def check_checks():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 3)

        def forward(self, x):
            assert (x >= 0).all(), "counts must not be negative"
            if x.max() > 100:
                raise ValueError("counts must be small")
            torch._check((x.sum() < 1000).item(), lambda: "too many counts")
            return self.linear(x)
    model = Counts()
    batch = torch.rand(4, 6), torch.randint(3, (4,))
    step = memopt.compile(model, F.cross_entropy, batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert math.isfinite(step(batch))
    before = step.state_dict()["model"]["linear.weight"]
    try:
        step((batch[0] - 2, batch[1]))
    except memopt.Error as error:
        for text in ("counts must not be negative", "counts must be small", "too many counts", "check_rewriting.py:"):
            assert text in str(error), error
    else:
        raise AssertionError("a batch that the model refuses was trained on")
    assert torch.equal(before, step.state_dict()["model"]["linear.weight"])
    print("ok checks")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in CASES:
        check(name)
    check_formulas()
    check_checks()
