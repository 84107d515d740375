# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_guards.py FOLDER [CASE...]: changes behind `compile` take effect, compile again, or are refused by name."""

import itertools
import random
import timeit
import types
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import memopt
import memopt.watching.watch
from memopt.watching.watch import ABSENT, Watch
from training import assert_near, refuses, run_cases

SCALE = 0.5
SETTINGS = types.SimpleNamespace(floor=0.0, epoch=0)


class Head(nn.Module):
    """Reads numbers of its own, of an object and of its file; counts for a log that no number depends on."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.0), nn.Linear(8, 3))
        self.temperature, self.options, self.seen = 1.0, {"shift": 0.0, "other": 1}, 0

    def forward(self, x):
        return (self.inner(x) / self.temperature + self.options["shift"] + SETTINGS.floor) * SCALE


def make(seed=0):
    torch.manual_seed(seed)
    return Head()


def make_data(samples=5):
    generator = torch.Generator().manual_seed(samples)
    return torch.randn(samples, 6, generator=generator), torch.randint(3, (samples,), generator=generator)


def eager(model, optimizer, loss_fn, batch):
    optimizer.zero_grad()
    loss = loss_fn(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss.item()


def compare(change, word, make_optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.3, momentum=0.9), loss_fn=F.cross_entropy,
            data=None):
    """`change(model, optimizer)` in front of the third step: refused by name, and with new_shapes="compile" as in PyTorch."""
    ours, theirs = make(), make()
    optimizer, other = make_optimizer(ours), make_optimizer(theirs)
    data = data or make_data()
    step = memopt.compile(ours, loss_fn, data, optimizer=optimizer)
    again_model = make()
    again_optimizer = make_optimizer(again_model)
    again = memopt.compile(again_model, loss_fn, data, optimizer=again_optimizer, new_shapes="compile")
    undo = []
    for i in range(5):
        if i == 2:
            undo = [function for function in (change(ours, optimizer), change(theirs, other), change(again_model, again_optimizer))
                    if function]
        expected = eager(theirs, other, loss_fn, data)
        if i < 2:
            assert_near(step(data), expected)
        else:
            refuses(memopt.BadInput, [word, "new_shapes"], step, data)
        assert_near(again(data), expected)
    assert again.steps == 5
    again.sync()
    for (name, left), right in zip(again_model.named_parameters(), theirs.parameters()):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5, msg=name)
    for function in undo:
        function()
    return step, ours


def attributes():
    """A number of a module, of a dict and of a nested module."""
    compare(lambda model, _: setattr(model, "temperature", 2.0), "temperature")
    compare(lambda model, _: model.options.update(shift=0.25), "shift")
    compare(lambda model, _: setattr(model.inner[1], "training", False), "training")


def captured_numbers():
    """A global number, one of a global object, a cell, an argument of functools.partial and a default."""
    import functools

    def swap(name, value):
        def change(model, optimizer):
            globals()[name] = value
            return lambda: globals().update({name: 0.5})
        return change
    compare(swap("SCALE", 0.75), "SCALE")

    def change(model, optimizer):
        SETTINGS.floor = 0.5
        return lambda: setattr(SETTINGS, "floor", 0.0)
    compare(change, "floor")
    smoothing = 0.0

    def loss(output, target):
        return F.cross_entropy(output, target, label_smoothing=smoothing)

    def smooth(model, optimizer):
        nonlocal smoothing
        smoothing = 0.1
    compare(smooth, "smoothing", loss_fn=loss)
    given = functools.partial(F.cross_entropy, label_smoothing=0.0)
    compare(lambda model, _: given.keywords.update(label_smoothing=0.2), "label_smoothing", loss_fn=given)


def containers():
    """Another dict or list in place of the one that forward reads in; one of the same values takes its place."""
    compare(lambda model, _: setattr(model, "options", {"shift": 0.25, "other": 1}), "options['shift']")
    box = {"weights": {"smoothing": 0.0}}

    def loss(output, target):
        return F.cross_entropy(output, target, label_smoothing=box["weights"]["smoothing"])

    def smooth(model, optimizer):
        box["weights"] = {"smoothing": 0.1}
        return lambda: box.update(weights={"smoothing": 0.0})
    compare(smooth, "box['weights']['smoothing']", loss_fn=loss)

    model = make()
    step = memopt.compile(model, F.cross_entropy, make_data(), optimizer=torch.optim.SGD(model.parameters(), 0.0))
    for _ in range(3):
        model.options = {"shift": 0.0, "other": 2}
        step(make_data())
    model.options["shift"] = 0.5
    refuses(memopt.BadInput, ["options['shift']", "0.5"], step, make_data())
    model.options = {"other": 2}
    refuses(memopt.BadInput, ["options['shift']", "gone"], step, make_data())

    model, functions = make(), [torch.tanh, torch.abs]
    model.functions = functions

    def call(output, target):
        return F.cross_entropy(model.functions[0](output), target)
    step = memopt.compile(model, call, make_data(), optimizer=torch.optim.SGD(model.parameters(), 0.0))
    model.functions = [torch.sin, torch.abs]
    refuses(memopt.BadInput, ["functions"], step, make_data())


def parameters():
    """Freezing, thawing, and another group of parameters."""
    compare(lambda model, _: setattr(model.inner[0].requires_grad_(False), "note", 0), "requires_grad of 'inner.0.weight'")

    def half(model):
        return torch.optim.SGD(model.inner[2].parameters(), 0.3, momentum=0.9)
    compare(lambda model, optimizer: optimizer.add_param_group({"params": list(model.inner[0].parameters())}), "groups", half)

    def both(model):
        return torch.optim.AdamW([{"params": model.inner[0].parameters()}, {"params": model.inner[2].parameters(), "lr": 0.1}], 0.03)
    compare(lambda model, optimizer: optimizer.param_groups.pop() and None, "groups", both)
    # State that was not kept from the start.
    model = make()
    optimizer = torch.optim.Adam(model.parameters())
    step = memopt.compile(model, F.cross_entropy, make_data(), optimizer=optimizer, new_shapes="compile")
    step(make_data())
    optimizer.param_groups[0]["amsgrad"] = True
    refuses(memopt.BadInput, ["inner.0.weight", "1 updates without the state 'max_exp_avg_sq'", "new optimizer"], step, make_data())
    step.sync()
    refuses(memopt.BadInput, ["1 updates without the state 'max_exp_avg_sq'"], memopt.compile, model, F.cross_entropy, make_data(), optimizer)


def thawed_state():
    """What is frozen for a while goes on with its momentum."""
    ours, theirs = make(), make()
    optimizers = [torch.optim.SGD(model.parameters(), 0.3, momentum=0.9) for model in (ours, theirs)]
    step = memopt.compile(ours, F.cross_entropy, make_data(), optimizer=optimizers[0], new_shapes="compile")
    for i in range(8):
        for model in (ours, theirs):
            model.inner[0].requires_grad_(not 2 <= i < 5)
        if i == 2:
            optimizers[1].zero_grad()
        assert_near(step(make_data()), eager(theirs, optimizers[1], F.cross_entropy, make_data()))
        if i == 3:
            assert len(step.state_dict()["optimizer"]["state"]) == 4


def settings_of_the_optimizer():
    """What is built into a program, by its name."""
    def nesterov(model, optimizer):
        optimizer.param_groups[0]["nesterov"] = True
    compare(nesterov, "nesterov")
    compare(lambda model, optimizer: optimizer.param_groups[0].update(momentum=0.0), "momentum")


def shapes():
    """Batches of another size compile again where they may."""
    ours, theirs = make(), make()
    optimizers = [torch.optim.Adam(model.parameters(), 0.01) for model in (ours, theirs)]
    step = memopt.compile(ours, F.cross_entropy, make_data(), optimizer=optimizers[0], new_shapes="compile")
    for samples in (5, 5, 3, 5):
        assert_near(step(make_data(samples)), eager(theirs, optimizers[1], F.cross_entropy, make_data(samples)))
    refuses(memopt.BadInput, ["'error' or 'compile'"], memopt.compile, ours, F.cross_entropy, make_data(), optimizer=optimizers[0],
            new_shapes="often")


def hooks():
    """Forward hooks and those on gradients take effect or compile again; others are refused by name, whenever they come."""
    compare(lambda model, _: model.inner[0].register_forward_hook(lambda module, given, made: made * 2) and None, "inner.0")
    compare(lambda model, _: model.inner[2].weight.register_hook(lambda gradient: gradient * 2) and None, "inner.2.weight")
    late = [lambda model, _: model.inner[2].register_full_backward_hook(lambda *_: None),
            lambda model, _: model.inner[2].weight.register_post_accumulate_grad_hook(lambda weight: None),
            lambda _, optimizer: optimizer.register_step_pre_hook(lambda *_: None)]
    for change, word in zip(late, ["inner.2", "inner.2.weight", "optimizer"]):
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), 0.3)
        step = memopt.compile(model, F.cross_entropy, make_data(), optimizer=optimizer)
        step(make_data())
        nn.Linear(2, 2).register_forward_hook(lambda *_: None)  # of something else
        step(make_data())
        change(model, optimizer)
        refuses(memopt.BadInput, [word, "hook"], step, make_data())
        refuses(memopt.Refused, ["hook"], memopt.compile, model, F.cross_entropy, make_data(), optimizer=optimizer)


def parts():
    """Modules that join a list, tensors that come where there was none, a class that has another forward."""
    compare(lambda model, _: model.inner.append(nn.Tanh()) and None, "'inner.3'")
    for change in (lambda loss: setattr(loss, "weight", torch.tensor([3.0, 1.0, 0.5])), lambda loss: setattr(loss, "reduction", "sum")):
        loss, model = nn.CrossEntropyLoss(), make()
        step = memopt.compile(model, loss, make_data(), optimizer=torch.optim.SGD(model.parameters(), 0.3))
        step(make_data())
        change(loss)
        refuses(memopt.BadInput, ["of the loss"], step, make_data())
    old = Head.forward

    def patch(model, _):
        Head.forward = lambda self, x: old(self, x) * 2
        return lambda: setattr(Head, "forward", old)
    compare(patch, "Head.forward")


def renamed():
    """A parameter that is another's in disguise now keeps its value and its momentum."""
    class Half(nn.Module):
        def forward(self, weight):
            return weight / 2
    compare(lambda model, _: nn.utils.parametrize.register_parametrization(model.inner[0], "weight", Half()) and None, "inner.0.weight")


def captured_arrays():
    """Tensors and arrays that are written to where they lie."""
    for make_one, write in ((torch.ones, lambda value: value.mul_(torch.tensor([3.0, 1.0, 0.5]))),
                            (lambda size: np.ones(size, np.float32), lambda value: value.__setitem__(0, 3.0))):
        for options in ({}, {"new_shapes": "compile"}):
            values = make_one(3), make_one(3)
            losses = [lambda output, target, value=value: F.cross_entropy(output * torch.as_tensor(value), target) for value in values]
            ours, theirs = make(), make()
            optimizers = [torch.optim.SGD(model.parameters(), 0.3) for model in (ours, theirs)]
            step = memopt.compile(ours, losses[0], make_data(), optimizer=optimizers[0], **options)
            assert_near(step(make_data()), eager(theirs, optimizers[1], losses[1], make_data()))
            for value in values:
                write(value)
            if not options:
                refuses(memopt.BadInput, ["has been written to"], step, make_data())
            else:
                assert_near(step(make_data()), eager(theirs, optimizers[1], losses[1], make_data()))


def buffers():
    """A number in a buffer counts however it is written; one of another shape is another program."""
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 3)
            self.register_buffer("scale", torch.tensor(1.0))

        def forward(self, x):
            return self.inner(x) * self.scale

    def write_in_numpy(buffer):
        buffer.numpy()[...] = 4.0
    model = Scaled()
    step = memopt.compile(model, F.cross_entropy, make_data(), optimizer=torch.optim.SGD(model.parameters(), 0.0))
    for write in (lambda buffer: buffer.fill_(2.0), lambda buffer: buffer.data.fill_(3.0), write_in_numpy,
                  lambda buffer: setattr(buffer, "data", torch.tensor(5.0)), lambda _: setattr(model, "scale", torch.tensor(6.0))):
        write(model.scale)
        for _ in range(3):
            assert_near(step(make_data()), F.cross_entropy(model(make_data()[0]), make_data()[1]).item())
    model.scale = torch.ones(3)
    step = memopt.compile(model, F.cross_entropy, make_data(), optimizer=torch.optim.SGD(model.parameters(), 0.0))
    for _ in range(3):  # a few numbers are all compared
        model.scale.data[1] += 1
        assert_near(step(make_data()), F.cross_entropy(model(make_data()[0]), make_data()[1]).item())
    model.scale = torch.tensor(1.0)
    refuses(memopt.BadInput, ["'scale' has the shape []"], step, make_data())


def surroundings():
    """Autocast around a step is refused; a batch may be a view with other signs than its bytes."""
    model = make()
    step = memopt.compile(model, F.cross_entropy, make_data(), optimizer=torch.optim.SGD(model.parameters(), 0.0))
    with torch.autocast("cpu", torch.bfloat16):
        refuses(memopt.BadInput, ["autocast", "precision"], step, make_data())
    x, y = make_data()
    negative = torch.complex(x, x).conj().imag
    assert negative.is_neg()
    assert_near(step((negative, y)), F.cross_entropy(model(-x), y).item())


def unrelated():
    """What forward does not read may change, and evaluation in PyTorch between two steps is none of the step's business."""
    model = make()
    step = memopt.compile(model, F.cross_entropy, make_data(), optimizer=torch.optim.SGD(model.parameters(), 0.3))
    for i in range(3):
        model.seen, SETTINGS.epoch, model.options["other"] = i, i, i
        model.note = i
        step(make_data())
        model.eval()
        model(make_data()[0])
        model.train()
    model.eval()
    refuses(memopt.BadInput, ["training"], step, make_data())


def evaluation():
    """Evaluation has the numbers of now, too."""
    model = make()
    step = memopt.compile(model, F.cross_entropy, make_data(), optimizer=torch.optim.SGD(model.parameters(), 0.0), new_shapes="compile")
    for temperature in (1.0, 3.0):
        model.temperature = temperature
        assert_near(step.evaluate(make_data()), F.cross_entropy(model(make_data()[0]), make_data()[1]).item())


def warned(function):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function()
    assert all(entry.filename == __file__ for entry in found if entry.category is memopt.NumbersWarning), found
    return [str(entry.message) for entry in found if entry.category is memopt.NumbersWarning]


def differences():
    """What differs from the loop in PyTorch is a warning, also from the cache."""
    def compile_one(model, **options):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return memopt.compile(model, F.cross_entropy, make_data(8), optimizer=optimizer, **options)

    norm = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    for _ in range(2):
        assert any("takes statistics of each of 2" in text for text in warned(lambda: compile_one(norm, micro_batches=2)))
    assert warned(lambda: compile_one(norm)) == []
    dropping = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    assert [text for text in warned(lambda: compile_one(dropping)) if "dropout" in text]
    assert warned(lambda: compile_one(dropping, dropout="off")) == []
    assert [text for text in warned(lambda: compile_one(dropping.eval())) if "evaluation mode" in text]
    calls = [0]

    def counting(output, target):
        calls[0] += 1
        return F.cross_entropy(output, target) / calls[0]
    model = nn.Linear(6, 3)
    assert [text for text in warned(lambda: memopt.compile(model, counting, make_data(8), optimizer=torch.optim.SGD(model.parameters(), 0.1)))
            if "changes the number 'calls'" in text]
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x) / self.calls
    for counter in (Counting(6, 3), Counting(6, 3)):
        counter.calls = 0
        assert [text for text in warned(lambda: compile_one(counter)) if "changes the number 'calls'" in text]
    factors = itertools.cycle([1.0, 2.0])

    def scaled(output, target):
        return F.cross_entropy(output, target) * next(factors)
    assert [text for text in warned(lambda: memopt.compile(model, scaled, make_data(8), optimizer=torch.optim.SGD(model.parameters(), 0.1)))
            if "takes values from the iterator 'factors'" in text]
    model.factors = iter([1.0, 2.0])
    model.forward = lambda x: nn.Linear.forward(model, x) * next(model.factors)
    assert [text for text in warned(lambda: compile_one(model)) if "takes values from the iterator 'factors'" in text]
    drawing = nn.Linear(6, 3)
    drawing.forward = lambda x: nn.Linear.forward(drawing, x) * random.random()
    assert [text for text in warned(lambda: compile_one(drawing)) if "draws from random" in text]
    # Gradients of what the optimizer does not have are no part of its norm.
    parts = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))

    def clip(**options):
        memopt.compile(parts, F.cross_entropy, make_data(8), optimizer=torch.optim.SGD(parts[1].parameters(), 0.1), **options)
    assert [text for text in warned(lambda: clip(max_grad_norm=1.0)) if "'0.weight' and 1 more is not in the optimizer" in text]
    assert warned(clip) == []
    parts[0].requires_grad_(False)
    assert warned(lambda: clip(max_grad_norm=1.0)) == []
    plain = nn.Linear(6, 3).eval()
    assert warned(lambda: compile_one(plain)) == []
    # The remedy that the warning names is no change.
    step = compile_one(dropping)
    step(make_data(8))
    dropping.train()
    step(make_data(8))
    dropping.eval()
    refuses(memopt.BadInput, ["training"], step, make_data(8))


def watches():
    """What is compared in one call."""
    class Kind:
        level = 1

    def make_cell(value):
        return (lambda: value).__closure__[0]

    table, items, tensor, cell = {"a": 1.5, "b": None}, [object(), object()], torch.zeros(2), make_cell(2.5)
    whole, deeper = list(items), type("Deeper", (Kind,), {})
    changes = [lambda: table.update(a=2.5), lambda: table.pop("a"), lambda: table.update(c=1), lambda: items.append(1), items.pop, items.reverse,
               lambda: tensor.requires_grad_(True), lambda: tensor.add_(1), lambda: setattr(cell, "cell_contents", 7.5),
               lambda: setattr(Kind, "level", 2), lambda: setattr(deeper, "level", 1)]
    for change in changes:
        items[:], table, tensor, cell = whole, {"a": 1.5, "b": None}, torch.zeros(2), make_cell(2.5)
        watch = Watch()
        assert not watch.holds()
        assert watch.add_entry(table, "a", table["a"]) and watch.add_entry(table, "b", None) and watch.add_entry(table, "c", ABSENT)
        assert watch.add_items(items) and watch.add_gradients([tensor]) and watch.add_version(tensor) and watch.add_cell(cell, cell.cell_contents)
        assert watch.add_class_attribute(deeper, "level", Kind.level)
        watch.finish()
        assert watch.holds() and watch.holds()
        change()
        try:
            assert not watch.holds(), change
        except IndexError:  # the list is shorter
            pass
        for kind in (Kind, deeper):
            if "level" in vars(kind):
                del kind.level
        Kind.level = 1
    # What is no dict of its own, or another tensor's inside, is left to the caller.
    assert not Watch().add_entry(types.MappingProxyType(table), "a", 1.5) and not Watch().add_entry(table, 7, 1)
    # Values that equal those before are no change, and are known from then on.
    step = memopt.compile(model := make(), F.cross_entropy, make_data(), optimizer=torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(3):
        model.temperature = float("1.0")
        step(make_data())
        assert step._prepared.archive.guards.hold()


def slowly():
    """The same where the library does not compare."""
    load, memopt.watching.watch._load = memopt.watching.watch._load, lambda: None
    try:
        for case in (attributes, captured_numbers, parameters, differences):
            case()
    finally:
        memopt.watching.watch._load = load


def cost():
    """A look at everything costs microseconds."""
    model = make()
    step = memopt.compile(model, F.cross_entropy, make_data(), optimizer=torch.optim.AdamW(model.parameters()))
    step(make_data())
    seconds = min(timeit.repeat(lambda: step._meet_changes(()), number=1000, repeat=5)) / 1000
    assert seconds < 1e-4, seconds  # a loose bound, for a machine that does other work
    print(f"  {seconds * 1e6:.1f} us")


run_cases([attributes, captured_numbers, containers, parameters, thawed_state, settings_of_the_optimizer, shapes, hooks, parts, renamed,
           captured_arrays, buffers, surroundings, unrelated, evaluation,
           differences, watches, slowly, cost])
