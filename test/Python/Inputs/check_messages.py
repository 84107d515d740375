# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_messages.py FOLDER [CASE...]: texts of exceptions."""

import pickle
import re

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import compile_step, make_batch, make_model, refuses, run_cases

X = {"x": torch.randn(8, 16)}


class Model(nn.Module):
    """Two layers, and a forward that a case gives."""

    def __init__(self, run):
        super().__init__()
        self.lin, self.run = nn.Linear(16, 4), run

    def forward(self, **batch):
        return self.run(self, **batch)


def compile_model(run, batch):
    model = Model(run)
    return memopt.compile(model, None, batch, optimizer=torch.optim.SGD(model.parameters(), 0.1))


def repeat(model, x):
    while x.abs().mean() > 0.5:
        x = x * 0.5
    return model.lin(x).sum()


def repeat_by_count(model, x):
    rows = model.lin(x)
    while rows[rows[:, 0] > 0].shape[0] > 5:
        rows = rows - 0.1
    return rows.sum()


def nest(model, x):
    nested = torch.nested.nested_tensor([x[:4], x[4:]], layout=torch.jagged)
    return torch.nested.to_padded_tensor(model.lin(nested), 0.0).sum()


GENERATOR = torch.Generator()
#: What is in a step, and words that the refusal has.
REFUSED = [
    (repeat, X, ["torch.where", "check_messages.py:"]),
    (repeat_by_count, X, ["number of turns", "torch.where", "check_messages.py:"]),
    (nest, X, ["nested tensors", "mask", "check_messages.py:"]),
    (lambda m, x: m.lin(x).sum().backward(), X, ["Tensor.backward", "torch.autograd.grad", "check_messages.py:"]),
    (lambda m, x: m.lin(torch.from_numpy(x.numpy())).sum(), X, ["NumPy"]),
    (lambda m, x: m.lin(x[:, :3]).sum(), X, ["same reduction dim", "check_messages.py:"]),
    (lambda m, x: m.lin(x)[x[:, 0] > 0].roll(1, 0).mean(), X, ["aten.roll", "depends on the data", "mask", "check_messages.py:"]),
    (lambda m, x: m.lin(x)[torch.where(x[:, 0] > 0)[0]].repeat(0, 1).sum(), X, ["aten.repeat", "mask", "check_messages.py:"]),
    (lambda m, x: torch.linalg.eigvals(m.lin(x) @ m.lin(x).T).abs().sum(), X, ["linalg_eigvals", "complex", "check_messages.py:"]),
    (lambda m, x: m.lin(x + torch.randn(16, generator=GENERATOR)).sum(), X, ["Generator", "generator=", "check_messages.py:"]),
    (lambda m, x: m.lin(x), X, ["expected a floating-point scalar"]),
]


def refusals():
    """Each names what stands in the way, where, and what to write instead; no file that is gone."""
    for run, batch, parts in REFUSED:
        error = refuses(memopt.BadInput, parts, compile_model, run, batch)
        assert "/step.pt2" not in str(error) and "net" not in re.findall(r"[\w.]+", error.message), error
        assert all(line in str(error) for line in error.details.splitlines()) and isinstance(error, memopt.Error)


def origins():
    """A loss that is not finite names the line that made it."""
    step = compile_model(lambda m, x: (m.lin(x).square() - 1e6).log().mean(), X)
    refuses(memopt.LossNotFinite, ["the loss is nan", "check_messages.py:"], step, X)


def keywords():
    """Options are keywords, also by the names that they have elsewhere."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for keyword, part in (("device_memroy", "device_memory="), ("gradient_clipping", "max_grad_norm"), ("amp", 'precision="bf16"'),
                          ("accumulate_grad_batches", "accumulative_counts"), ("ranks", "torchrun"), ("batch_sise", "batch_size=")):
        refuses(memopt.BadInput, [f"{keyword}=", part], compile_step, model, optimizer, **{keyword: 1})
    refuses(memopt.BadInput, ["device_memory=0.5"], compile_step, model, optimizer, device_memory=0.5)
    refuses(memopt.BadInput, ["precision= expects"], compile_step, model, optimizer, precision="bf17")
    refuses(memopt.DoesNotFit, ["does not fit", "parameter inner.weight"], compile_step, model, optimizer, device_memory="16KiB")


def batches():
    """A batch of another size says what to do; an evaluation is no step with a number."""
    model = make_model()
    step = compile_step(model, torch.optim.SGD(model.parameters(), 0.1))
    whole = make_batch(0)
    refuses(memopt.BadInput, ["step 1: the batch has 3 samples", "drop_last=True"], step, tuple(part[:3] for part in whole))
    for function, batch in ((step.predict, whole[:2]), (step.evaluate, whole)):
        error = refuses(memopt.BadInput, ["the batch has 1 sample,", "batch size"], function, tuple(part[:1] for part in batch))
        assert error.step == 0 and "step 1" not in str(error)
    for array in (np.zeros((8, 1, 8, 8), "datetime64[s]"), np.zeros((8, 1, 8, 8), "f4,i4"), torch.zeros(8, 8).to_sparse()):
        refuses(memopt.BadInput, ["input 'input0'"], step, (array, *whole[1:]))
    refuses(memopt.BadInput, ["optimizer='lion'", "memopt.optim"], compile_step, model, "lion")
    refuses(memopt.BadInput, ["'target' is str"], memopt.compile, model, F.cross_entropy, (*whole[:2], "no array"),
            torch.optim.SGD(model.parameters(), 0.1))


def kinds():
    """Every exception is a memopt.Error with both parts in its text, in another process, too."""
    assert all(issubclass(kind, memopt.Error) for kind in (memopt.BadInput, memopt.Refused, memopt.LossNotFinite, memopt.DoesNotFit,
                                                           memopt.Unavailable))
    error = pickle.loads(pickle.dumps(memopt.LossNotFinite("a", "b", step=3)))
    assert (str(error), error.step) == ("a\nb", 3)


run_cases([refusals, origins, keywords, batches, kinds])
