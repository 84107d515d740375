#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models at random: views, writes in place, regions without gradients, branches by the data and buffers that the model writes itself.

Each seed is one model. A statement is kept where PyTorch can run the model with it, so all models are ones that train there. Three steps in
memopt are compared with PyTorch's in float64. A refusal is printed and is no failure; a difference is one."""

import argparse
import copy
import importlib.util
import random
import sys
import warnings
from pathlib import Path

import torch

import memopt

ROWS, COLUMNS, STEPS = 6, 8, 3

HEADER = '''import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Reverse(torch.autograd.Function):
    """A gradient that its forward pass does not have."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.factor * gradient, None


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.round(2 * x) / 2

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * (x.abs() < 1)


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.mark_non_differentiable(found := x > y)
        return x * y, x + y, found

    @staticmethod
    def backward(ctx, first, second, _):
        x, y = ctx.saved_tensors
        return first * y + second, (first * x).clamp(-1, 1) if ctx.needs_input_grad[1] else None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn, self.table = nn.BatchNorm1d(8), nn.Embedding(5, 8)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.directed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.cumulative, self.instance = nn.BatchNorm1d(8, momentum=None), nn.InstanceNorm1d(6, track_running_stats=True)
        self.cell, self.many = nn.GRUCell(8, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.a, self.b, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.weight = nn.Parameter(torch.randn(8, 8) * 0.3)
        self.register_buffer("queue", torch.zeros(3, 8))
        self.register_buffer("mean", torch.ones(8))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
'''


class Writer:
    """The statements of one model. `names` are values of six rows and eight columns that are there at the place of the next statement."""

    def __init__(self, seed, rows, others):
        self.random = random.Random(seed)
        self.made = 0
        self.rows = rows      # the share of statements about rows that the data choose
        self.others = others  # of the rest, the share of calls of modules, gradients written by hand, hooks and the like

    def fresh(self):
        self.made += 1
        return f"v{self.made}"

    def pick(self, *choices):
        return self.random.choice(choices)

    def value(self, names):
        """An expression of shape [6, 8]."""
        name, other = self.random.choice(names), self.random.choice(names)
        return self.pick(
            f"self.a({name})", f"self.b({name})", f"torch.tanh({name})", f"{name} * {other}", f"{name} + 0.5 * {other}",
            f"torch.sigmoid({name}) * {other}", f"self.norm({name})", f"F.linear({name}, self.weight)", f"{name} @ self.weight",
            f"F.gelu({name})", f"{name}.clone()", f"{name}.softmax(1)", f"{name} - {name}.mean(1, keepdim=True)",
            f"torch.where({name} > 0, {other}, {name})", f"{name} + self.mean", f"{name}.detach()", f"{name} * self.queue.mean()",
            f"{name} + self.queue.repeat(2, 1)", f"{name}.flip(0)", f"{name}.roll(1, 1)", f"torch.cat([{name}[:3], {other}[3:]])",
            f"torch.stack([{name}[:, :4], {other}[:, 4:]], 1).reshape(6, 8)", f"{name}.masked_fill({other} > 0.5, 0.1)",
            f"{name}.clamp(-1, 1)", f"{name}.view(3, 16).view(6, 8)", f"{name}.t().contiguous().t()", f"{name}.detach() * 0.5",
            f"{name}.gather(1, {other}.argsort(1))", f"{name}.cumsum(1) * 0.2", f"{name}.reshape(-1).reshape(6, 8)",
            f"{name}.square().mean(1, keepdim=True) * {other}", f"{name} + self.count", f"{name}[{other}.mean(1).argsort()]",
            f"{name}", f"{name}.expand(6, 8)", f"{name}.abs()",
            f"{name} * {other}.sum().sigmoid()", f"F.normalize({name}, dim=1)", f"{name}.view_as({other})", f"{name}[:]",
            f"torch.zeros_like({name})", f"torch.empty_like({name}).copy_({other})", f"{name}.new_ones(6, 8)")

    def view(self, names):
        """A view, the shape of which is known by its kind alone: what is written there is a number or fits all shapes."""
        name = self.random.choice(names)
        text = name
        for _ in range(self.pick(1, 1, 2)):
            text += self.pick("[:3]", "[:, :4]", ".t()", ".view(-1)", ".flatten()", "[0]", "[-1]", ".unsqueeze(0)", "[::2]",
                              ".chunk(2)[1]", ".chunk(2, 1)[0]", ".unbind()[1]", ".split(2)[0]", ".narrow(0, 1, 2)", ".diagonal()",
                              "[1:]", "[..., 1]", ".select(0, 1)", ".transpose(0, 1)", ".view(2, -1)", ".reshape(2, -1)", ".squeeze()",
                              ".movedim(0, -1)", "[:, ::3]", ".swapaxes(0, -1)", ".detach()", "[None]",
                              ".view_as(x)", ".tensor_split(3)[1]", "[int(self.count) % 3]", "[self.count % 3]",
                              ".permute(1, 0)", ".unflatten(0, (2, -1))")
        return text

    def write(self, target, names):
        name = self.random.choice(names)
        return self.pick(
            f"{target}.mul_(0.5)", f"{target}.add_(0.25)", f"{target}.add_({name}.mean())", f"{target}.tanh_()", f"{target}.zero_()",
            f"{target}.fill_(0.3)", f"{target}.clamp_(-0.5, 0.5)", f"{target}.copy_({name}[0, 0].clone())", f"{target}.mul_({name}.sum().sigmoid())",
            f"{target}.masked_fill_({target} > 0.2, 0.2)", f"{target}.add_({target}.mean(), alpha=0.5)", f"{target}.sub_({target}.detach() * 0.1)",
            f"{target}.lerp_({target}.tanh(), 0.3)", f"{target}.relu_()", f"{target}.mul_({target}.detach().sigmoid())",
            f"{target}.copy_({target}.flip(0).clone())", f"{target}.detach().mul_(0.9)")

    def assign(self, names):
        """Item assignments and writes of whole values."""
        name, other = self.random.choice(names), self.random.choice(names)
        return self.pick(
            f"{name}[0] = {other}[1]", f"{name}[:, 1:3] = {other}[:, :2].clone()", f"{name}[{other} > 0] = 0.1", f"{name} *= {other}",
            f"{name} += self.mean", f"{name}[{other}[:, 0] > 0] *= 0.5", f"{name}[[0, 2]] = {other}[[1, 3]]",
            f"{name}.index_add_(0, torch.tensor([0, 0, 2]), {other}[:3])", f"{name}.scatter_(1, {other}.argsort(1), {other})",
            f"{name}.index_copy_(0, torch.tensor([4, 1]), {other}[:2])", f"{name}[int(self.count) % 3] = {other}[0]",
            f"{name}.diagonal().add_({other}[:, 0])", f"{name}.detach_()",
            f"{name}[{other}.mean(1).argmax()] = 0.0", f"{name}.copy_({other})", f"{name}[self.count % 3] += {other}[2]",
            f"{name}, {other} = {other}, {name}", f"{name} = {other}", f"{name} -= {other}.detach()", f"{name}.sub_({other}[0].clone())")

    def state(self, names):
        """What a model writes to its own buffers and parameters."""
        name = self.random.choice(names)
        return self.pick(
            f"self.queue.mul_(0.9).add_({name}[:3].detach(), alpha=0.1)", f"self.queue[self.count % 3] = {name}.mean(0).detach()",
            f"self.queue = torch.cat([{name}[:1].detach(), self.queue[:2]])", "self.count += 1", "self.count.add_(1)",
            f"self.mean = self.mean * 0.9 + {name}.detach().mean(0) * 0.1", f"self.mean.copy_({name}.detach().amax(0))",
            f"self.queue[1:].copy_({name}.detach()[:2])", "self.queue.copy_(self.queue.roll(1, 0))", f"self.queue[0].lerp_({name}.detach()[0], 0.1)",
            "self.weight.detach().mul_(0.99)", "self.weight.detach()[0].add_(0.01)", "self.a.weight.detach().copy_(self.a.weight.data * 0.9 + self.b.weight.data * 0.1)",
            f"self.mean.mul_(0.5).add_({name}.data.mean(0))", "self.count = self.count + 1", "self.b.bias.detach().clamp_(-0.2, 0.2)",
            f"self.queue.data = {name}.detach()[3:].clone()", f"self.queue[{name}.detach()[:3].mean(1).argsort()] = self.queue.clone()")

    def chosen(self, names):
        """Statements about rows that the data choose, and the name of what comes of them."""
        name, other, mask, part, new = self.random.choice(names), self.random.choice(names), self.fresh(), self.fresh(), self.fresh()
        lines = [self.pick(
            f"{mask} = {other}[:, 0] > 0", f"{mask} = {name}.mean(1) > {other}.mean(1)", f"{mask} = ({other}[:, 1] * 2).long() == 0",
            f"{mask} = ({other}[:, 2] > 0) & ({name}[:, 1] < 0.5)", f"{mask} = {other}[:, 0] > {self.pick(-10, 10)}", f"{mask} = x[:, 0] > 0")]
        places = self.pick(f"{mask}.nonzero()[:, 0]", f"{mask}.nonzero(as_tuple=True)[0]", f"torch.where({mask})[0]", f"{mask}.nonzero().squeeze(1)")
        rows = self.pick(f"{name}[{mask}]", f"{name}[{places}]", f"{name}.index_select(0, {places})",
                         f"torch.masked_select({name}, {mask}[:, None]).view(-1, 8)")
        lines.append(f"{part} = " + self.pick(
            f"{rows}", f"self.a({rows})", f"torch.tanh({rows})", f"{rows} * {other}[{mask}]", f"self.norm({rows})", f"{rows} - self.mean",
            f"{rows}.softmax(1)", f"{rows} + {rows}.sum(0)", f"{rows}.cumsum(0)", f"{rows}.clone()", f"F.gelu({rows}).detach()",
            f"{rows}.square().sum(1, keepdim=True) * {other}[{mask}]", f"{rows}.flip(0)", f"{rows} @ self.weight"))
        if self.random.random() < 0.2:
            lines.append(self.pick(f"{part} = {part}[{part}[:, 1] > 0]", f"{part} = {part}[:3]", f"{part} = torch.cat([{part}, {other}[:2]])",
                                   f"{part} = {part}[{part}[:, 0].argsort()]", f"{part} = {part}.repeat(2, 1)"))
            whole = []
        else:
            whole = [f"{new} = {name}.index_add(0, {places}, {part})", f"{new} = torch.zeros_like({name}).index_copy(0, {places}, {part})",
                     f"{new} = {name}.index_put(({places},), {part}, accumulate=True)", f"{new} = {name}.masked_scatter({mask}[:, None], {part})",
                     f"{new} = {name}.clone(); {new}[{mask}] = {part}", f"{new} = {name}.clone(); {new}[{mask}] += {part}",
                     f"{new} = {other} + F.mse_loss({part}, {other}[{mask}], reduction='sum')", f"{name}[{places}] = {part}; {new} = {name}",
                     f"{new} = torch.cat([{part}, {name}[~{mask}]])", f"{new} = {other}.scatter(0, {places}[:, None].expand(-1, 8), {part})"]
        lines += self.pick(*whole, *whole, f"{new} = {name} + {part}.sum(0)", f"{new} = {name} * {part}.sum().sigmoid()",
                           f"{new} = {other} + {part}.sum(0) / {mask}.sum().clamp(min=1)", f"{new} = {other} + {part}.shape[0]",
                           f"{new} = {name}; {name} = {name} + {part}.mean(0) if {mask}.any() else {other}",
                           f"{new} = {other} + torch.cat([{part}, {other}]).amax(0)", f"{new} = {name} + {part}.norm()",
                           f"{new} = {name} + ({part}.mean() if len({part}) else 0.0)",
                           f"{new} = {name} + torch.cat([{part}, {name}]).mean(0)", f"{new} = {name} * (1 + {mask}.sum())").split("; ")
        return lines, [new]

    def wider(self, names):
        """What models have besides: modules with state of their own, gradients written by hand and asked for, hooks, checkpoints, lists."""
        name, other, third = (self.random.choice(names) for _ in range(3))
        new, second, kept = self.fresh(), self.fresh(), self.fresh()
        inner = self.value([name, other])
        text, made = self.pick(*[(text, [new]) for text in (
            f"{new} = Reverse.apply({name}, 0.3)", f"{new} = Rounded.apply({name}) + {other}", f"{new} = self.bn({name})",
            f"{new} = checkpoint(lambda y, z: self.b(torch.tanh(y)) * z, {name}, {other}, use_reentrant=False)",
            f"{new} = checkpoint(self.cell, {name}, {other}, use_reentrant=False)", f"{new} = self.table(({name}[:, 0] > 0).long() + 1) * {other}",
            f"{new} = self.cell({name}, {other})", f"{new} = self.bn({name}) + self.bn({other}); self.bn.running_mean.mul_(0.9)",
            f"{kept} = lambda y: {inner}; {new} = {kept}({name}) + {kept}({other})",
            f"{new} = torch.autograd.grad({name}.square().sum(), {name}, create_graph=True)[0] * 0.1 + {other}",
            f"{kept} = (self.a({other}) * {name}).tanh().sum(); {new} = torch.autograd.grad({kept}, {name}, create_graph=True)[0] + {other}",
            f"{kept} = {name}.detach().requires_grad_(); {new} = {other} + 0.1 * torch.autograd.grad(self.a({kept}).square().sum(), {kept})[0]",
            f"{new} = {name} * 1; {new}.register_hook(lambda g: g * 0.5)", f"{new} = {name} + 0; {new}.register_hook(lambda g: g.clamp(-0.1, 0.1))",
            f"{new} = F.scaled_dot_product_attention({name}[None], {other}[None], {third}[None])[0]",
            f"{new} = F.conv1d({name}[None], self.weight[:6, :3].repeat(1, 2).view(6, 6, 1)[:, :, :])[0] + {other}",
            f"{new} = {name}.scatter_reduce(0, {other}.argsort(0), {third}, 'amax')", f"{new} = {name}.topk(8, 1).values + {other}.sort(0)[0]",
            f"{new} = sum(layer({name}) for layer in self.many); {new} += {other}", f"{new} = {name}; {name} = [layer({name}) for layer in self.many][-1]",
            f"{kept} = {{'x': {name}, 'y': {other}}}; {kept}['x'] = {kept}['x'] * {kept}['y']; {kept}['y'] += 1; {new} = {kept}['x']",
            f"{kept} = [{name}, {other}, {third}]; {kept}.append({kept}.pop(0) * 0.5); {new} = torch.stack({kept}).mean(0)",
            f"{new} = torch.einsum('ij,kj->ik', {name}, {other}) @ {third} * 0.1", f"{new} = F.embedding(torch.arange(6) % 5, self.table.weight) + {name}",
            f"{new} = self.spectral({name}) + {other}", f"{new} = self.directed({name}) * {other}", f"{new} = self.cumulative({name})",
            f"{new} = self.instance({name}[None])[0] + {other}", f"{new} = self.spectral({name}); {new} = {new} + self.spectral({other})",
            f"{new} = F.linear({name}, self.many[0].weight, self.many[1].bias) * {other}", f"{new} = F.linear({name}, self.weight.t() @ self.a.weight)",
            f"{new} = torch.func.grad(lambda y: (self.b(y) * {other}).tanh().sum())({name})", f"{new} = torch.vmap(lambda y, z: y * z.sum())({name}, {other})",
            f"{new} = F.cross_entropy({name}, {other}.argmax(1), reduction='none')[:, None] + {third}",
            f"{new} = nn.functional.pad({name}, (1, 1), 'constant', 0.5)[:, 1:-1] * {other}", f"{new} = {name}.unfold(1, 2, 2).mean(2).repeat(1, 2) + {other}",
            f"{new} = torch.maximum({name}, {other}); {name}.mul_(0.5) if not self.training else None",
            f"{new} = {name} - torch.logsumexp({other}, 1, keepdim=True)", f"{new} = {name} * torch.ones(6, 8).tril() + {other}",
            f"{new} = torch.fft.irfft(torch.fft.rfft({name}) * {other}[:, :5], n=8)", f"{new} = torch.fft.fft2({name}).abs() * 0.1 + {other}",
            f"{kept} = torch.view_as_complex({name}.reshape(6, 4, 2)); {new} = torch.view_as_real({kept} * {kept}.conj() + 1j * {kept}).reshape(6, 8)",
            f"{kept} = torch.complex({name}, {other}); {new} = ({kept} / (1 + {kept}.abs())).real + 0.1 * {third}",
            f"{kept} = 1 * torch.polar({name}.abs() + 0.1, {other}); {kept}[0] = {kept}[1]; {kept}.mul_(1j); {new} = {kept}.imag",
            f"{kept} = torch.complex({name}, {other}); torch.view_as_real({kept})[..., 0].mul_(0.5); {new} = {kept}.real + {kept}.imag * {third}",
            f"{new} = torch.linalg.solve({name} @ {name}.mT + torch.eye(6), {other})", f"{new} = torch.linalg.cholesky({name} @ {name}.mT + torch.eye(6)) @ {other}",
            f"{new} = torch.matrix_exp({name}[:, :6] * 0.1) @ {other}", f"{new} = {name} + torch.logdet({other} @ {other}.mT + torch.eye(6)) * {third}",
            f"{new} = torch.cdist({name}, {other} + 1) @ {third} * 0.1", f"{new} = F.kl_div({name}.log_softmax(1), {other}.softmax(1), reduction='batchmean') + {third}",
            f"{new} = {name}.take_along_dim({other}.argsort(1), 1) + {third}", f"{new} = {name} * torch.bucketize({other}, torch.tensor([-1.0, 0.0, 1.0]))",
            f"{new} = torch.bincount(({name}[:, 0] > 0).long(), minlength=2)[:1] * {other}", f"{new} = {name} + torch.unique(({other} > 0).long()).numel()",
            f"{new} = F.smooth_l1_loss({name}, {other}, reduction='none') + {third}", f"{new} = torch.renorm({name}, 2, 0, 1.0) + {other}",
            f"{new} = F.fold(F.unfold({name}[None, None], (2, 2)), (6, 8), (2, 2))[0, 0] * {other}", f"{new} = torch.kron({name}[:2, :4], {other}[:3, :2])",
            f"{new} = F.interpolate({name}[None, None], scale_factor=2, mode='bilinear')[0, 0, ::2, 1::2] + {other}",
            f"{new} = F.max_pool2d({name}[None], 3, 1, 1)[0] * {other}", f"{new} = torch.trapezoid({name}, {other}, dim=1)[:, None] * {third}",
            f"{new} = F.layer_norm({name}, (8,), {other}[0], {third}[0])", f"{new} = F.batch_norm({name}, self.mean.clone(), self.mean.abs() + 1, training=True)",
            f"{new} = F.batch_norm({name}, self.mean, self.queue[0].abs() + 1, {other}[0], training=False)",
            f"{new} = {name}.unsqueeze(1).expand(6, 3, 8).mean(1) * {other}", f"{new} = torch.outer({name}[:, 0], {other}[0]) + {third}")],
            (f"{new}, {second}, {kept} = Both.apply({name}, {other}); {second} = {second} * {kept}", [new, second]),
            (f"{new}, {second} = {name}.chunk(2, 1); {new} = torch.cat([{second} * {other}[:, :4], {new}], 1)", [new]),
            (f"{new}, {second} = {name}.max(0); {new} = {other}[{second} % 6] * {new}; {new} = torch.cat([{new}, {name}])[:6]", [new]))
        return text.split("; "), made

    def condition(self, names):
        name = self.random.choice(names)
        return self.pick(f"{name}.mean() > 0", f"{name}.sum().item() > 0.1", "self.count % 2 == 0", "self.count > 0", "int(self.count) == 1",
                         f"({name} > 0).sum() > 24", "self.training", f"bool(self.queue.sum() > {name}.sum())", f"{name}[0, 0] > {name}[1, 1]")

    def statement(self, names, depth, quiet=False):
        """(lines, names that are made)."""
        if self.random.random() < self.rows:
            return self.chosen(names)
        if self.others and self.random.random() < self.others:
            return self.wider(names)
        kind = self.random.random()
        if kind < 0.34:
            new = self.fresh()
            return [f"{new} = {self.value(names)}"], [new]
        if kind < 0.46:
            new = self.fresh()
            return [f"{new} = {self.view(names)}", self.write(new, names)], []
        if kind < 0.54:
            return [self.write(self.view(names + ["self.queue", "self.mean"]), names)], []
        if kind < 0.68:
            return [self.assign(names)], []
        if kind < 0.76 or depth > 1:
            return [self.state(names)], []
        if kind < 0.86:
            region = self.pick("torch.no_grad()", "torch.no_grad()", "torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(False)")
            body, made = self.block(names, depth + 1, self.random.randint(1, 3))
            return [f"with {region}:"] + body, made
        if kind < 0.97:
            condition = self.condition(names)
            body, _ = self.block(names, depth + 1, self.random.randint(1, 2), inner=True)
            lines = [f"if {condition}:"] + body
            if self.random.random() < 0.5:
                body, _ = self.block(names, depth + 1, self.random.randint(1, 2), inner=True)
                lines += ["else:"] + body
            return lines, []
        body, _ = self.block(names, depth + 1, 1, inner=True)
        return [f"for _ in range({self.pick(2, 3)}):"] + body, []

    def block(self, names, depth, count, inner=False):
        """A body, of which those on one side of a branch give their values to names from before."""
        lines, known = [], list(names)
        for _ in range(count):
            statement, made = self.statement(known, depth)
            lines += statement
            known += made
        made = known[len(names):]
        if inner and (made or self.random.random() < 0.3):
            lines.append(f"{self.random.choice(names)} = {self.value(known)}")
        return ["    " + line for line in lines], made


def source(lines):
    return HEADER + "".join(f"        {line}\n" for line in lines)


def module(text, place):
    """The class `Model` of this text, which stands in a file, as code of users does."""
    place.write_text(text)
    spec = importlib.util.spec_from_file_location(place.stem, place)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.Model


def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(ROWS, COLUMNS, generator=generator) for _ in range(STEPS)]


def reference(made, inputs, dtype):
    """PyTorch's losses and state after the steps."""
    model = copy.deepcopy(made).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    before, losses = torch.get_default_dtype(), []
    torch.set_default_dtype(dtype)
    try:
        for x in inputs:
            loss = model(x.to(dtype))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    finally:
        torch.set_default_dtype(before)
    return losses, {name: value.detach().double() for name, value in model.state_dict().items()}


def ending(names):
    """The loss, of the last values."""
    terms = [f"({name} * {0.5 + 0.25 * index}).square().mean()" for index, name in enumerate([name for name in names if name != "x"][-3:])]
    return ["loss = " + " + ".join(terms), "return loss + 0.1 * self.b(v0).mean()"]


def write_model(seed, options):
    """The statements of a model that PyTorch runs, and the class."""
    writer = Writer(seed, options.rows, options.others)
    lines, names = ["v0 = self.a(x)"], ["v0", "x"]
    place = options.folder / f"model_{seed}.py"
    for _ in range(options.length * 3):
        if len(lines) > options.length:
            break
        statement, made = writer.statement([name for name in names if name != "x" or writer.random.random() < 0.3] or names, 0)
        known = names + made
        try:
            torch.manual_seed(seed)
            Model = module(source(lines + statement + ending(known)), place)
            losses, state = reference(Model(), [x.clone() for x in batches(seed)], torch.float64)
            if not all(abs(loss) < 100 for loss in losses):
                continue
        except Exception:
            continue
        lines, names = lines + statement, known
    text = source(lines + ending(names))
    return module(text, place), text


def distance(got, want):
    return (got.double() - want).abs().max().item() / max(1.0, want.abs().max().item()) if got.shape == want.shape else float("inf")


def train(made, inputs, **options):
    """Losses and state after the steps of memopt."""
    model = copy.deepcopy(made)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step = memopt.compile(model, None, {"x": inputs[0].clone()}, optimizer=optimizer, **options)
    losses = [float(step({"x": x.clone()})) for x in inputs]
    step.sync()
    return losses, model.state_dict()


def compare_budgets(made, inputs, losses, state):
    """What differs in bits within the smallest budget that there is."""
    try:
        train(made, inputs, device_memory="1KiB")
        return []
    except memopt.DoesNotFit as error:
        smallest = error.smallest_budget
    got, mine = train(made, inputs, device_memory=smallest)
    wrong = [f"losses {got} in {smallest} bytes, {losses} without a budget"] if got != losses else []
    return wrong + [f"bits of {name} in {smallest} bytes" for name in state if not torch.equal(mine[name], state[name])]


def check(seed, options):
    """What became of a model: 'right', 'refused', 'different', with what to say."""
    Model, text = write_model(seed, options)
    inputs = batches(seed)
    torch.manual_seed(seed)
    made = Model()
    losses, state = reference(made, [x.clone() for x in inputs], torch.float64)
    single_losses, single = reference(made, [x.clone() for x in inputs], torch.float32)
    try:
        got, mine = train(made, inputs)
    except Exception as error:
        return "refused", f"{type(error).__name__}: {error}", text
    if set(mine) != set(state):
        return "different", f"state {sorted(set(mine) ^ set(state))}", text
    wrong = []
    for name, value in state.items():
        off, limit = distance(mine[name], value), 1e-5 + 4 * distance(single[name], value)
        if off > limit:
            wrong.append(f"{name} by {off:.2g}, PyTorch's f32 by {distance(single[name], value):.2g}")
    for index, (a, b, c) in enumerate(zip(got, losses, single_losses)):
        if not abs(a - b) <= 1e-5 * max(1.0, abs(b)) + 4 * abs(c - b):
            wrong.append(f"loss {index}: {a:.7g}, expected {b:.7g}")
    if options.budgets and not wrong:
        wrong = compare_budgets(made, inputs, got, mine)
    return ("different", "; ".join(wrong), text) if wrong else ("right", "", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=20, help="the number of models")
    parser.add_argument("--length", type=int, default=8, help="statements of a model, at most")
    parser.add_argument("--rows", type=float, default=0.0, help="the share of statements about rows that the data choose")
    parser.add_argument("--others", type=float, default=0.0, help="of the rest, the share of modules, gradients written by hand, hooks and the like")
    parser.add_argument("--budgets", action="store_true", help="compare bits within the smallest budget, too")
    parser.add_argument("--folder", type=Path, required=True, help="where the models are written")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    options.folder.mkdir(parents=True, exist_ok=True)
    counts = {"right": 0, "refused": 0, "different": 0}
    for seed in range(options.first, options.first + options.count):
        kind, words, text = check(seed, options)
        counts[kind] += 1
        if kind != "right":
            print(f"--- seed {seed}: {kind}: {words}", flush=True)
            if kind == "different":
                print(text[len(HEADER):], flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
