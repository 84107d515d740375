# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_heads.py: losses over a large vocabulary, in forms that models write, need no logits of all tokens.

Each trains three steps, held against PyTorch in float64 as in check_recurrent.py. The smallest budget gives the same bits, and
beside parameters, gradients and the batch it is smaller than the logits.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from check_recurrent import compare, train, train_here

WORDS, WIDTH, TOKENS, RATE = 8192, 32, 192, 0.5
LOSSES = {}


def loss_of(function):
    LOSSES[function.__name__] = function
    return function


@loss_of
def classes_in_front(logits, weight, targets):
    """Logits as [samples, classes, tokens], and a weight for each token."""
    return (F.cross_entropy(logits.transpose(1, 2), targets, reduction="none") * (targets % 3 + 1)).mean()


@loss_of
def preference(logits, weight, targets):
    """The gradient of each token waits for the sum over its sequence."""
    chosen, other = logits.log_softmax(-1).gather(-1, targets[..., None]).sum((1, 2))
    return -F.logsigmoid(0.1 * (chosen - other))


@loss_of
def entropy_bonus(logits, weight, targets):
    logs = logits.log_softmax(-1)
    return F.nll_loss(logs.flatten(0, 1), targets.flatten()) + 0.01 * (logs.exp() * logs).sum(-1).mean()


@loss_of
def entropy_bonus_ignored(logits, weight, targets):
    logs = logits.log_softmax(-1)
    return F.nll_loss(logs.flatten(0, 1).neg().neg(), targets.flatten(), ignore_index=5) + 0.01 * (logs.exp() * logs).sum(-1).mean()


@loss_of
def chunks_by_hand(features, weight, targets):
    pieces = zip(features.flatten(0, 1).chunk(2), targets.flatten().chunk(2))
    return sum(F.cross_entropy(F.linear(x, weight), t, reduction="sum") for x, t in pieces) / targets.numel()


@loss_of
def linear_cross_entropy(features, weight, targets):
    if not hasattr(F, "linear_cross_entropy"):
        return F.cross_entropy(F.linear(features, weight).flatten(0, 1), targets.flatten())
    return F.linear_cross_entropy(features.flatten(0, 1), weight, targets.flatten(), options=nn.LinearCrossEntropyOptions())


class Head(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.table, self.mix = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.loss, self.takes_features = loss, loss in (chunks_by_hand, linear_cross_entropy)

    def forward(self, tokens, targets):
        x = torch.tanh(self.mix(self.table(tokens)))
        return self.loss(x if self.takes_features else self.head(x), self.head.weight, targets)


def compile_step(model, batches, **options):
    model = copy.deepcopy(model)
    return memopt.compile(model, None, batches[0], optimizer=torch.optim.SGD(model.parameters(), lr=RATE), **options)


def check(name):
    torch.manual_seed(3)
    model = Head(LOSSES[name])
    draw = lambda: torch.randint(WORDS, (2, TOKENS // 2))
    batches = [{"tokens": draw(), "targets": draw()} for _ in range(3)]
    compute_loss = lambda model, batch, dtype: model(**batch)
    exact, single = (train_here(model, batches, dtype, RATE, compute_loss) for dtype in (torch.float64, torch.float32))
    found = train(compile_step(model, batches), batches)
    compare(name, found, exact, single)
    try:
        compile_step(model, batches, device_memory="1KiB")
    except memopt.DoesNotFit as error:
        smallest = error.smallest_budget
    state = 8 * sum(p.numel() for p in model.parameters()) + 2 * 8 * TOKENS
    assert smallest - state < 4 * TOKENS * WORDS, (name, smallest, state)
    again = train(compile_step(model, batches, device_memory=smallest), batches)
    assert found[0] == again[0] and all(torch.equal(found[1][key], value) for key, value in again[1].items()), name
    print(f"{name}: PyTorch's numbers, the same bits in {smallest} bytes")


for name in LOSSES:
    check(name)
