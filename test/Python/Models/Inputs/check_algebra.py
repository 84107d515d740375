# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of matrices of several sizes in compiled steps, beside PyTorch's in float64. A loss and a gradient may be as far from
these as a few times what PyTorch's own are in the type of the step. Vectors count where their signs do not."""

import torch
from torch import nn

import memopt

MOST = 3


def symmetric(w):
    return w @ w.mT / w.shape[-1] + torch.eye(w.shape[-1], dtype=w.dtype)


def regular(w):
    return w + 2 * w.shape[-1] ** 0.5 * torch.eye(w.shape[-1], dtype=w.dtype)


def spread(w):
    """With values far enough apart for the gradients of vectors."""
    return w / w.shape[-1] ** 0.5 + torch.diag(torch.arange(1, w.shape[-1] + 1, dtype=w.dtype))


def cholesky(w, t):
    low = torch.linalg.cholesky(symmetric(w))
    return (low * t).sum() + low.diagonal(dim1=-2, dim2=-1).log().sum() + (torch.cholesky_solve(t, low) * t).sum()


def solve(w, t):
    a = regular(w)
    return (torch.linalg.solve(a, t) * t).sum() + torch.linalg.slogdet(a).logabsdet.sum() + (torch.linalg.inv(a).mT * t).sum()


def triangles(w, t):
    a = regular(w)
    return ((torch.linalg.solve_triangular(a, t, upper=True) * t).sum()
            + (torch.linalg.solve_triangular(a.mT, t, upper=True, left=False) * t).sum()
            + (torch.linalg.solve_triangular(0.1 * w / w.shape[-1], t, upper=False, unitriangular=True) * t).sum())


def lu(w, t):
    p, low, up = torch.linalg.lu(w)
    factors = torch.linalg.lu_factor(regular(w))
    return ((p @ low) * t).sum() + (up * t).sum() + (torch.linalg.lu_solve(*factors, t) * t).sum()


def qr(w, t):
    q, r = torch.linalg.qr(w)
    tall, _ = torch.linalg.qr(w[..., : w.shape[-1] // 2 + 1])
    return (q * t).sum() + (r * t).sum() + (tall.square() * t[..., : tall.shape[-1]]).sum()


def reflections(w, t):
    """Also with fewer factors than vectors, and with those that reflect nothing."""
    vectors, factors = w / w.shape[-1], t[..., 0].abs() / 2
    factors = torch.where(factors < 0.1, 0, factors)
    some = factors[..., : w.shape[-1] // 2 + 1]
    return ((torch.linalg.householder_product(vectors, factors) * t).sum() + (torch.linalg.householder_product(vectors, some) * t).sum()
            + (torch.ormqr(vectors, factors, t) * t).sum() + (torch.ormqr(vectors, factors, t, left=False, transpose=True) * t).sum())


def few(w, t):
    """Few right sides, whose gradients are made without products of whole matrices."""
    low, side = torch.linalg.cholesky(symmetric(w)), t[..., :1]
    return (torch.cholesky_solve(side, low) * t).sum() + (torch.linalg.solve_triangular(low, side, upper=False) * t).sum()


def eigh(w, t):
    values, vectors = torch.linalg.eigh(spread(w + w.mT))
    return (values * t[..., 0]).sum() + (vectors.square() * t).sum() + torch.linalg.eigvalsh(symmetric(w)).log().sum()


def svd(w, t):
    u, s, vh = torch.linalg.svd(spread(w), full_matrices=False)
    wide = torch.linalg.svdvals(w[..., : w.shape[-1] // 2 + 1, :])
    return (s * t[..., 0]).sum() + (u.square() * t).sum() + (vh.square() * t).sum() + wide.square().sum() + (
        torch.linalg.pinv(regular(w)) * t).sum()


SIZES = {3: (5,), 40: (3,), 200: ()}
LAST = ()  # dimensions behind a matrix's own
CASES = [(function, n, dtype) for function in (cholesky, few, solve, triangles, lu, qr, reflections, eigh, svd) for n in SIZES
         for dtype in (torch.float32, torch.float64) if n < 200 or dtype == torch.float32]
CASES += [(function, 600, torch.float32) for function in (cholesky, solve, eigh)]


class Model(nn.Module):
    def __init__(self, function, w):
        super().__init__()
        self.function, self.w = function, nn.Parameter(w.clone())

    def forward(self, t):
        return self.function(self.w, t)


def differentiate(function, w, t, dtype):
    w = w.detach().clone().to(dtype).requires_grad_()
    loss = function(w, t.to(dtype))
    loss.backward()
    return loss.item(), w.grad


def distance(found, expected):
    return ((found.double() - expected).abs().max() / expected.abs().max()).item()


def check(function, n, dtype):
    name = f"{function.__name__} of {n} rows in {dtype}"
    torch.manual_seed(n)
    w, t = (torch.randn(*SIZES.get(n, ()), n, n, *LAST, dtype=dtype) for _ in range(2))
    loss, gradient = differentiate(function, w, t, torch.float64)
    own_loss, own_gradient = differentiate(function, w, t, dtype)
    # The step's gradient, off the parameter that it changes.
    rate = 1 / gradient.abs().max().item()
    model = Model(function, w)
    step = memopt.compile(model, None, {"t": t}, optimizer=torch.optim.SGD(model.parameters(), lr=rate))
    found_loss = step({"t": t})
    found = (w - step.state_dict()["model"]["w"]) / rate
    least = 4e-6 if dtype == torch.float32 else 1e-11  # the parameter was rounded, too
    far, own_far = distance(found, gradient), distance(own_gradient, gradient)
    assert far <= max(MOST * own_far, least), f"{name}: a gradient is off by {far}, PyTorch's by {own_far}"
    # A loss of parts that cancel is as exact as these: what one element adds to it, to first order.
    size = max(abs(loss), (gradient * w).abs().max().item())
    far, own_far = abs(found_loss - loss) / size, abs(own_loss - loss) / size
    assert far <= max(MOST * own_far, least), f"{name}: the loss is off by {far}, PyTorch's by {own_far}"
    print(f"ok {name}")


def check_no_answer():
    """What PyTorch raises an error for, one matrix of a batch here, leaves no number, and the step refuses it."""
    for name, function, bad in (("cholesky", torch.linalg.cholesky, -1.0), ("inverse", torch.linalg.inv, 0.0)):
        model = Model(lambda w, t: function(w * t).square().sum(), torch.eye(3).expand(2, 3, 3))
        step = memopt.compile(model, None, {"t": torch.ones(2, 3, 3)}, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
        t = torch.ones(2, 3, 3)
        assert abs(step({"t": t}) - 6) < 1e-5, name
        before = step.state_dict()["model"]["w"]
        t[1] = bad
        try:
            step({"t": t})
        except memopt.Error as error:
            assert "loss" in str(error), error
        else:
            raise AssertionError(f"{name}: a matrix without an answer was trained on")
        assert torch.equal(before, step.state_dict()["model"]["w"]), name
        print(f"ok {name} of a matrix that has none")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in CASES:
        check(*case)
    check_no_answer()
