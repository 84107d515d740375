# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gamma, beta and Dirichlet draws with gradients by their parameters, and Poisson draws: as many that means and gradients are known."""

import torch
from torch import distributions, nn

import memopt
from memopt.rewriting.gamma_draws import gamma_slope
from rewriting import Model, case, check_all, compare_step


@case()
def written_through_aliases(self, x):
    """Other values, and the gradient as it was."""
    y = self.linear(x)
    z = y * 2
    y.detach().clamp_(min=0.1)
    z.data.mul_(0.5).add_(1)
    return (y * z).sum() + y.square().sum() + z.exp().sum()


@case()
def infinite_through_an_alias(self, x):
    """Infinities are written over, and stand beside what is; gradients come through both."""
    y = self.linear(x)
    far = y + torch.where(y.detach() > 0.3, float("inf"), 0.0)
    far.detach().clamp_(max=3.0)
    near = y + torch.where(y.detach() < -0.3, float("-inf"), 0.0)
    near.detach()[:, 0] = 1.0
    kept = near.exp()  # of what stays infinite
    near.data.nan_to_num_(neginf=-2.0)
    return (far * y).sum() + near.square().sum() + kept.sum()


@case()
def differentiated_through_an_alias(self, x):
    y = self.linear(x)
    y.detach().clamp_(min=0.1)
    given = torch.autograd.grad(y.pow(3).sum(), self.linear.weight, create_graph=True)[0]
    return given.square().sum() + y.sum()


def check_slopes():
    """All of PyTorch's formulas, where they meet, too."""
    torch.manual_seed(0)
    shape = 10 ** torch.empty(100000, dtype=torch.float64).uniform_(-2, 3)
    drawn = torch._standard_gamma(shape).clamp(min=1e-30)
    torch.testing.assert_close(gamma_slope(shape, drawn), torch._standard_gamma_grad(shape, drawn), rtol=1e-10, atol=1e-12)


class Draws(nn.Module):
    def __init__(self):
        super().__init__()
        self.shape = nn.Parameter(torch.tensor([0.4, 1.5, 3.0, 20.0], dtype=torch.float64))
        self.weights = nn.Parameter(torch.tensor([0.7, 2.0, 6.0], dtype=torch.float64))
        self.two = nn.Parameter(torch.tensor([0.5, 2.0], dtype=torch.float64))

    def forward(self, rates):
        count = (rates.shape[0],)
        poisson = distributions.Poisson(rates).sample()
        return (distributions.Gamma(self.shape, 2.0).rsample(count).mean(0).sum()
                + distributions.Dirichlet(self.weights).rsample(count).square().mean(0).sum()
                + distributions.Beta(self.two[0], self.two[1]).rsample(count).square().mean()
                + 0.1 * poisson.mean(0).sum() + 0.01 * (poisson - rates).square().mean(0).sum())


def compute_means(shape, weights, two):
    """Of the draws above, what the loss is the mean of; rates below have means 0.3, 4 and 60."""
    total, pair = weights.sum(), two.sum()
    return ((shape / 2).sum() + (weights * (weights + 1)).sum() / (total * (total + 1)) + two[0] * (two[0] + 1) / (pair * (pair + 1))
            + 0.11 * 64.3)


def check_means():
    model = Draws()
    parameters = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    rates = torch.tensor([0.3, 4.0, 60.0], dtype=torch.float64).expand(40000, 3).contiguous()
    step = memopt.compile(model, None, {"rates": rates}, optimizer=torch.optim.SGD(model.parameters(), 1.0))
    loss, expected = step({"rates": rates}), compute_means(*parameters)
    expected.backward()
    assert abs(loss - expected.item()) < 0.06, (loss, expected)
    step.sync()
    for before, after in zip(parameters, model.parameters()):
        torch.testing.assert_close((before - after).detach(), before.grad, rtol=0.02, atol=0.01)
    print("ok means")


if __name__ == "__main__":
    check_all()
    compare_step("infinite through an alias", lambda: (Model(infinite_through_an_alias, 6, 5), {"x": torch.randn(12, 6)}))
    check_slopes()
    check_means()
