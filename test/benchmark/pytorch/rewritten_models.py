#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that memopt writes anew before it compiles them, beside eager PyTorch and torch.compile: bytes, seconds, compile seconds.

    rewritten_models.py [experts] [graph] [penalty] [physics] [operators] [speech] [process] [points] [--rounds 5] [--threads 1] [--json FILE]

experts: a transformer with a loop over eight experts, two to a token, as Mixtral has it. graph: torch_geometric's GAT for Cora, written
out. penalty: the critic of a WGAN-GP. physics: Burgers' equation. operators: a Fourier neural operator in two dimensions. speech: a
convolution, recurrent layers and CTC. process: an exact Gaussian process; points: one of half as many points. The columns, and what
fails, are those of many_programs.py; where torch.compile has an error, it has no row.
"""
from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

import many_programs
from many_programs import Block, Training


def train(model, batches, make=torch.optim.Adam, rate=1e-3):
    return Training(model, lambda own: {"step": (own, make(own.parameters(), rate))}, [("step", batch) for batch in batches], None)


def times(make, count=2):
    torch.manual_seed(1)
    return [make() for _ in range(count)]


class Experts(nn.Module):
    def __init__(self, width, inside, count, chosen):
        super().__init__()
        self.gate, self.chosen = nn.Linear(width, count, bias=False), chosen
        self.experts = nn.ModuleList(nn.ModuleList([nn.Linear(width, inside, bias=False), nn.Linear(width, inside, bias=False),
                                                    nn.Linear(inside, width, bias=False)]) for _ in range(count))

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        weights, chosen = torch.topk(self.gate(flat).softmax(-1), self.chosen, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(flat)
        mask = F.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        for number, (gate, up, down) in enumerate(self.experts):
            place, row = torch.where(mask[number])
            rows = flat[row]
            result.index_add_(0, row, down(F.silu(gate(rows)) * up(rows)) * weights[row, place, None])
        return result.reshape(x.shape)


class Mixture(nn.Module):
    def __init__(self, words=8000, width=384, layers=4):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.blocks = nn.ModuleList(Block(width, 6) for _ in range(layers))
        for block in self.blocks:
            block.up = block.down = None
            block.experts = Experts(width, 2 * width, 8, 2)

    def forward(self, tokens, target):
        x = self.words(tokens)
        for block in self.blocks:
            q, k, v = block.mix(block.first(x)).unflatten(-1, (3, block.heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + block.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            x = x + block.experts(block.second(x))
        return F.cross_entropy(self.head(x).flatten(0, 1), target.flatten())


def experts():
    return train(Mixture(), times(lambda: {"tokens": torch.randint(8000, (4, 256)), "target": torch.randint(8000, (4, 256))}))


class Attention(nn.Module):
    """torch_geometric's GATConv with its defaults."""

    def __init__(self, inputs, outputs, heads, joins):
        super().__init__()
        self.linear, self.heads, self.joins = nn.Linear(inputs, heads * outputs, bias=False), heads, joins
        self.source, self.target = (nn.Parameter(torch.randn(1, heads, outputs) / outputs) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(heads * outputs if joins else outputs))

    def forward(self, x, edges):
        count = x.size(0)
        edges = edges[:, edges[0] != edges[1]]
        edges = torch.cat([edges, torch.arange(count).expand(2, count)], 1)
        row, column = edges
        x = self.linear(x).unflatten(1, (self.heads, -1))
        score = F.leaky_relu((x * self.source).sum(-1)[row] + (x * self.target).sum(-1)[column], 0.2)
        most = score.new_zeros(count, self.heads).scatter_reduce(0, column[:, None].expand_as(score), score.detach(), "amax", include_self=False)
        score = (score - most[column]).exp()
        score = score / (score.new_zeros(count, self.heads).index_add(0, column, score)[column] + 1e-16)
        out = torch.zeros_like(x).index_add(0, column, x[row] * score[..., None])
        return (out.flatten(1) if self.joins else out.mean(1)) + self.bias


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Attention(500, 8, 8, True), Attention(64, 3, 8, False)

    def forward(self, x, edges, labels):
        return F.cross_entropy(self.b(F.elu(self.a(x, edges)), edges), labels)


def graph():
    return train(Graph(), times(lambda: {"x": (torch.rand(19717, 500) < 0.1).float(), "edges": torch.randint(19717, (2, 88648)),
                                         "labels": torch.randint(3, (19717,))}))


class Penalty(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        down = lambda a, b: [nn.Conv2d(a, b, 4, 2, 1), nn.LeakyReLU(0.2)]
        self.net = nn.Sequential(*down(3, width), *down(width, 2 * width), *down(2 * width, 4 * width), nn.Flatten(), nn.Linear(16 * 4 * width, 1))

    def forward(self, real, fake, mix):
        x = (mix * real + (1 - mix) * fake).requires_grad_()
        y = self.net(x)
        (slope,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        return self.net(fake).mean() - self.net(real).mean() + 10 * (slope.flatten(1).norm(2, dim=1) - 1).square().mean()


def penalty():
    return train(Penalty(), times(lambda: {"real": torch.randn(32, 3, 32, 32), "fake": torch.randn(32, 3, 32, 32), "mix": torch.rand(32, 1, 1, 1)}), rate=1e-4)


class Burgers(nn.Module):
    def __init__(self, width=64, layers=6):
        super().__init__()
        sizes = [2, *[width] * layers, 1]
        parts = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.Tanh())]
        self.net = nn.Sequential(*parts[:-1])

    def forward(self, x, t, begin, value):
        x, t = x.requires_grad_(), t.requires_grad_()
        u = self.net(torch.cat([x, t], 1))
        slope = lambda y, by: torch.autograd.grad(y, by, torch.ones_like(y), create_graph=True)[0]
        ux = slope(u, x)
        rest = slope(u, t) + u * ux - 0.01 / math.pi * slope(ux, x)
        return rest.square().mean() + F.mse_loss(self.net(torch.cat([begin, torch.zeros_like(begin)], 1)), value)


def physics():
    def make():
        begin = torch.rand(200, 1) * 2 - 1
        return {"x": torch.rand(10000, 1) * 2 - 1, "t": torch.rand(10000, 1), "begin": begin, "value": -torch.sin(math.pi * begin)}
    return train(Burgers(), times(make))


class Spectral(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.low, self.high = (nn.Parameter(torch.randn(width, width, modes, modes, dtype=torch.cfloat) / width ** 2) for _ in range(2))

    def forward(self, x):
        m, f = self.modes, torch.fft.rfft2(x)
        out = torch.zeros_like(f)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, :m, :m], self.low)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, -m:, :m], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:])


class Operator(nn.Module):
    def __init__(self, width=32, modes=12, layers=4):
        super().__init__()
        self.lift, self.first, self.last = nn.Conv2d(3, width, 1), nn.Conv2d(width, 128, 1), nn.Conv2d(128, 1, 1)
        self.spectral = nn.ModuleList(Spectral(width, modes) for _ in range(layers))
        self.skip = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))

    def forward(self, x, y):
        x = self.lift(x)
        for spectral, skip in zip(self.spectral, self.skip):
            x = F.gelu(spectral(x) + skip(x))
        return F.mse_loss(self.last(F.gelu(self.first(x))), y)


def operators():
    return train(Operator(), times(lambda: {"x": torch.randn(16, 3, 64, 64), "y": torch.randn(16, 1, 64, 64)}))


class Speech(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.front = nn.Conv1d(80, width, 5, stride=2, padding=2)
        self.layers, self.head = nn.GRU(width, width, 3, batch_first=True, bidirectional=True), nn.Linear(2 * width, 30)

    def forward(self, sound, labels, frames, lengths):
        x, _ = self.layers(self.front(sound).relu().transpose(1, 2))
        return F.ctc_loss(self.head(x).log_softmax(-1).transpose(0, 1), labels, frames, lengths, zero_infinity=True)


def speech():
    return train(Speech(), times(lambda: {"sound": torch.randn(8, 80, 400), "labels": torch.randint(1, 30, (8, 40)),
                                          "frames": torch.randint(120, 201, (8,)), "lengths": torch.randint(10, 41, (8,))}))


class Process(nn.Module):
    def __init__(self):
        super().__init__()
        self.length, self.scale, self.noise = (nn.Parameter(torch.tensor(value)) for value in (0.0, 0.2, -1.5))

    def forward(self, x, y):
        gap = (x[:, None] - x[None]) / self.length.exp()
        kernel = self.scale.exp() * torch.exp(-0.5 * gap.square().sum(-1)) + self.noise.exp() * torch.eye(len(x))
        low = torch.linalg.cholesky(kernel)
        fit = torch.cholesky_solve(y[:, None], low).squeeze(1)
        return (0.5 * y @ fit + low.diagonal().log().sum()) / len(x)


def process(points=1000):
    return train(Process(), times(lambda: {"x": torch.randn(points, 8), "y": torch.randn(points)}), rate=0.01)


TRAININGS = {"experts": experts, "graph": graph, "penalty": penalty, "physics": physics, "operators": operators, "speech": speech,
             "process": process, "points": functools.partial(process, 500)}

if __name__ == "__main__":
    many_programs.main(TRAININGS, __doc__)
