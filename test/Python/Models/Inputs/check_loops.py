# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_loops.py [--device]: loops that a model writes in Python become loops again, with PyTorch's numbers.

Each kind of loop trains three steps, held against PyTorch in float64 as in check_recurrent.py: at once, in micro-batches, and
within the smallest budget, which gives the same bits. Programs do not grow with the number of turns. With --device, the kinds
on the emulated device.
"""

import argparse
import torch
import torch.nn.functional as F
from torch import nn

from check_recurrent import compare, compile_smallest, compile_step, train, train_here

TURNS = {"selective": (66, 71)}
USUAL = (21, 24)  # other kinds; with as many loops each
KINDS = {}


def kind(*parts):
    """Registers a forward pass; `parts` make the model's modules."""
    def add(forward):
        def make():
            model = type("Loop", (nn.Module,), {"forward": forward})()
            for name, part in zip("abcd", parts):
                setattr(model, name, part())
            return model
        KINDS[forward.__name__] = make
        return forward
    return add


@kind(lambda: nn.LSTMCell(6, 10), lambda: nn.Linear(10, 3))
def cells(self, x):
    h = c = x.new_zeros(len(x), 10)
    outputs = []
    for now in x.unbind(1):
        h, c = self.a(now, (h, c))
        outputs.append(h)
    return self.b(torch.stack(outputs, 1)).mean(1)


@kind(lambda: nn.Linear(6, 10), lambda: nn.Linear(10, 10, bias=False), lambda: nn.LayerNorm(10), lambda: nn.Linear(10, 3))
def normalized(self, x):
    h = x.new_zeros(len(x), 10)
    for turn in range(x.shape[1]):
        h = torch.tanh(self.c(self.a(x[:, turn]) + self.b(h)))
    return self.d(h)


@kind(lambda: nn.Linear(6, 10), lambda: nn.Linear(10, 10), lambda: nn.Linear(10, 3))
def backwards(self, x):
    h = x.new_zeros(len(x), 10)
    outputs = []
    for turn in reversed(range(x.shape[1])):
        h = torch.relu(self.a(x[:, turn]) + self.b(h))
        outputs.append(h)
    return self.c(torch.stack(outputs[::-1], 1)[:, ::2]).mean(1)


@kind(lambda: nn.GRUCell(6, 10), lambda: nn.GRUCell(10, 10), lambda: nn.Linear(10, 3))
def stacked(self, x):
    sequence = list(x.unbind(1))
    for cell in (self.a, self.b):
        h, outputs = x.new_zeros(len(x), 10), []
        for now in sequence:
            h = cell(now, h)
            outputs.append(h)
        sequence = outputs
    return self.c(torch.stack(sequence, 1)).mean(1)


@kind(lambda: nn.Linear(6, 6), lambda: nn.GRUCell(12, 6), lambda: nn.Linear(6, 3))
def attending(self, x):
    h, outputs = x.mean(1), []
    for turn in range(x.shape[1]):
        weights = torch.softmax(torch.einsum("bd,btd->bt", self.a(h), x), -1)
        h = self.b(torch.cat([torch.einsum("bt,btd->bd", weights, x), x[:, turn]], -1), h)
        outputs.append(self.c(h))
    return torch.stack(outputs).mean(0)


@kind(lambda: nn.Linear(6, 6), lambda: nn.Linear(6, 5), lambda: nn.Linear(6, 5), lambda: nn.Linear(6, 3))
def selective(self, x):
    rate, into, out = F.softplus(self.a(x)), self.b(x), self.c(x)
    h, outputs = x.new_zeros(len(x), 6, 5), []
    for turn in range(x.shape[1]):
        h = torch.exp(-rate[:, turn, :, None]) * h + (rate[:, turn] * x[:, turn])[..., None] * into[:, turn, None, :]
        outputs.append((h * out[:, turn, None, :]).sum(-1))
    return self.d(torch.stack(outputs, 1)).mean(1)


@kind(lambda: nn.Linear(7, 12), lambda: nn.Linear(12, 6), lambda: nn.Linear(6, 3))
def solver(self, x):
    z, turns = x.mean(1), x.shape[1]
    for turn in range(turns):
        z = z + self.b(torch.tanh(self.a(torch.cat([z, z.new_full((len(z), 1), turn / turns)], 1)))) / turns
    return self.c(z)


@kind(lambda: nn.Linear(6, 10), lambda: nn.Linear(10, 10), lambda: nn.Linear(10, 10), lambda: nn.Linear(10, 3))
def second_order(self, x):
    before, h = x.new_zeros(len(x), 10), x.new_ones(len(x), 10)
    for turn in range(x.shape[1]):
        before, h = h, torch.tanh(self.a(x[:, turn]) + self.b(h) - self.c(before))
    return self.d(h + before)


@kind(lambda: nn.Conv2d(4, 8, 3, padding=1), lambda: nn.Linear(24, 3))
def convolving(self, x):
    frames = x.reshape(len(x), -1, 2, 3, 1).expand(-1, -1, -1, -1, 4)
    h = c = x.new_zeros(len(x), 2, 3, 4)
    for turn in range(frames.shape[1]):
        i, f, o, g = self.a(torch.cat([frames[:, turn], h], 1)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return self.b(h.flatten(1))


@kind(lambda: nn.Linear(6, 10), lambda: nn.Linear(10, 10), lambda: nn.Linear(10, 3))
def read_between(self, x):
    """The first turn is another one, and other code reads some of the turns."""
    h, kept = torch.tanh(self.a(x[:, 0])), []
    for turn in range(1, x.shape[1]):
        h = torch.tanh(self.a(x[:, turn]) + self.b(h))
        if turn in (5, 10, 15):
            kept.append(h)
    return self.c(sum(kept) + h)


def make(name, turns=None):
    torch.manual_seed(3)
    turns = turns or TURNS.get(name, USUAL)[0]
    return KINDS[name](), [(torch.randn(4, turns, 6), torch.randn(4, 3)) for _ in range(3)]


def check_numbers(name, **options):
    model, batches = make(name)
    exact, single = (train_here(model, batches, dtype) for dtype in (torch.float64, torch.float32))
    found = train(compile_step(model, batches, **options), batches)
    compare(name, found, exact, single)
    return model, batches, found


def count_instructions(step):
    """But for what packs weights: loops share it where that takes few bytes, which depends on sizes."""
    manifest = step.plan.manifest
    return sum(manifest["library_calls"][instruction["call"]]["kind"] != "pack_weights" if "call" in instruction else 1
               for instruction in manifest["instructions"])


def check_kind(name):
    model, batches, found = check_numbers(name)
    check_numbers(name, micro_batches=2)
    smallest, step = compile_smallest(model, batches)
    losses, state = train(step, batches)
    assert losses == found[0], (name, losses, found[0])
    for key, value in found[1].items():
        assert torch.equal(state[key], value), (name, key)
    counts = [count_instructions(compile_step(*make(name, turns))) for turns in TURNS.get(name, USUAL)]
    assert counts[0] == counts[1], (name, "instructions", counts)
    print(f"{name}: PyTorch's numbers, the same bits in {smallest} bytes, {counts[0]} instructions")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", action="store_true")
    if parser.parse_args().device:
        for name in KINDS:
            check_numbers(name, device="cuda")
        print(f"{len(KINDS)} kinds on a device")
    else:
        for name in KINDS:
            check_kind(name)


if __name__ == "__main__":
    main()
