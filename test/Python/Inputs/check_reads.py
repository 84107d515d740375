# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_reads.py FOLDER [CASE...]: wherever forward and loss read something, a change of it is followed or refused by name."""

import array
import collections
import contextvars
import os
import pathlib
import random
import sys
import types
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import assert_near, refuses, run_cases

DATA = torch.randn(5, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 2, 1, 1, 0])
TABLE, SPACE = {}, types.SimpleNamespace()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


class Given:
    """Numbers of a class, behind a property, behind methods."""
    scale = 1.0

    def __init__(self):
        self._own = 1.0

    @property
    def own(self):
        return self._own

    def get(self):
        return self._own * 1.0

    def __call__(self):
        return self._own

    @staticmethod
    def scaled(output):
        return output * Given.scale


class Slotted:
    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 1.0


GIVEN = Given()


def named(output):
    return output * named.scale


named.scale = 1.0


def differs(change, word, kind=Net, scale=None, undo=lambda: None):
    """`change(model)` behind two steps: refused by name, and with new_shapes="compile" as in PyTorch. `scale` is part of the loss."""
    def loss_fn(output, target):
        return F.cross_entropy(scale(output) if scale else output, target)

    def make():
        torch.manual_seed(0)
        model = kind()
        return model, torch.optim.SGD(model.parameters(), 0.3)

    def step_in_pytorch(model, optimizer):
        optimizer.zero_grad()
        loss = loss_fn(model(DATA[0]), DATA[1])
        loss.backward()
        optimizer.step()
        return loss.item()
    undo()
    theirs = make()
    expected = [step_in_pytorch(*theirs) for _ in range(2)]
    change(theirs[0])
    expected += [step_in_pytorch(*theirs) for _ in range(2)]
    for options in ({}, {"new_shapes": "compile"}):
        undo()
        model, optimizer = make()
        step = memopt.compile(model, loss_fn, DATA, optimizer=optimizer, **options)
        for value in expected[:2]:
            assert_near(step(DATA), value)
        change(model)
        if not options:
            refuses(memopt.BadInput, [word, "new_shapes"], step, DATA)
            continue
        for value in expected[2:]:
            assert_near(step(DATA), value)
    undo()


def replaced_code():
    """A forward or a method of one module alone, a module of another class, hooks of all modules."""
    def patch(model):
        model.a.forward = lambda x: nn.Linear.forward(model.a, x) * 2
    differs(patch, "a.forward")

    class Doubled(Net):
        def forward(self, x):
            return super().forward(x) * 2
    differs(lambda model: setattr(model, "__class__", Doubled), "Doubled")

    class Headed(Net):
        def head(self, x):
            return self.b(x)

        def forward(self, x):
            return self.head(self.a(x))
    differs(lambda model: setattr(model, "head", lambda x: model.b(x) * 3), "head", Headed)
    hooks = []

    def hook(model):
        hooks.append(nn.modules.module.register_module_forward_hook(lambda module, given, made: made * 2 if module is model.b else None))
    differs(hook, "hook", undo=lambda: [hook.remove() for hook in hooks])


def order():
    """Modules that run in another order."""
    class Ordered(nn.Sequential):
        def __init__(self):
            super().__init__(collections.OrderedDict(a=nn.Linear(6, 3), b=nn.Tanh(), c=nn.Sigmoid()))

    def swap(model):
        model._modules["b"] = model._modules.pop("b")
    differs(swap, "order", Ordered)


def classes_and_functions():
    """Numbers of classes and functions, in slots, behind properties and methods of objects."""
    def write(value):
        Given.scale = named.scale = GIVEN._own = value
    undo = lambda: write(1.0)
    for scale, word in ((lambda output: output * Given.scale, "Given.scale"), (lambda output: Given.scaled(output), "scale"),
                        (named, "scale"), (lambda output: output * GIVEN.own, "_own"), (lambda output: output * GIVEN.get(), "_own"),
                        (lambda output: output * GIVEN(), "_own")):
        differs(lambda _: write(3.0), word, scale=scale, undo=undo)

    class Holding(Net):
        def __init__(self):
            super().__init__()
            self.given, self.slotted = Given(), Slotted()

        def forward(self, x):
            return super().forward(x) * self.given() * self.slotted.scale
    differs(lambda model: setattr(model.given, "_own", 3.0), "given._own", Holding)
    differs(lambda model: setattr(model.slotted, "scale", 3.0), "slotted.scale", Holding)

    class OfType(Net):
        scale = 1.0

        def forward(self, x):
            return Net.forward(self, x) * type(self).scale
    differs(lambda _: setattr(OfType, "scale", 3.0), "OfType.scale", OfType, undo=lambda: setattr(OfType, "scale", 1.0))


def other_files():
    """Numbers of the user's other files, also where functions of these read them."""
    folder = pathlib.Path(sys.argv[1])
    (folder / "numbers_of_check_reads.py").write_text("SCALE = 1.0\n\n\ndef scaled(output):\n    return output * SCALE\n")
    sys.path.insert(0, str(folder))
    import numbers_of_check_reads as other
    for scale in (lambda output: output * other.SCALE, lambda output: other.scaled(output)):
        differs(lambda _: setattr(other, "SCALE", 3.0), "SCALE", scale=scale, undo=lambda: setattr(other, "SCALE", 1.0))


def absent():
    """What the code asks for and is not there when it is compiled."""
    class Asking(Net):
        def forward(self, x):
            return super().forward(x) * getattr(self, "extra", 1.0) * TABLE.get("scale", 1.0) * getattr(SPACE, "scale", 1.0)

    def undo():
        TABLE.clear()
        vars(SPACE).clear()
    for change, word in ((lambda model: setattr(model, "extra", 3.0), "extra"), (lambda _: TABLE.update(scale=3.0), "scale"),
                         (lambda model: model.register_buffer("extra", torch.tensor(3.0)), "extra"),
                         (lambda _: setattr(SPACE, "scale", 3.0), "scale")):
        differs(change, word, Asking, undo=undo)


def containers():
    """Long lists, sets and queues, which change in place."""
    class Holding(Net):
        def __init__(self):
            super().__init__()
            self.scales, self.modes, self.last = [1.0] * 100, set(), collections.deque([1.0])

        def forward(self, x):
            return super().forward(x) * self.scales[70] * (2.0 if "double" in self.modes else 1.0) * self.last[-1]
    differs(lambda model: model.scales.__setitem__(70, 3.0), "scales", Holding)
    differs(lambda model: model.modes.add("double"), "modes", Holding)
    differs(lambda model: model.last.append(3.0), "last", Holding)

    class Calling(Net):
        def __init__(self):
            super().__init__()
            self.calls = [torch.tanh]

        def forward(self, x):
            x = super().forward(x)
            for call in self.calls:
                x = call(x)
            return x
    differs(lambda model: model.calls.append(torch.sigmoid), "calls", Calling)


SCALE = contextvars.ContextVar("scale", default=1.0)


def other_containers():
    """Dicts behind other classes, views of dicts, arrays of numbers, variables of a context."""
    class Holding(Net):
        def __init__(self):
            super().__init__()
            self.user, self.chain, self.numbers = collections.UserDict(a=1.0), collections.ChainMap({"a": 1.0}), array.array("d", [1.0])
            self.source = {"a": 1.0}
            self.view = types.MappingProxyType(self.source)

        def forward(self, x):
            return super().forward(x) * self.user["a"] * self.chain["a"] * self.numbers[0] * self.view["a"]
    differs(lambda model: model.user.update(a=3.0), "user", Holding)
    differs(lambda model: model.chain.update(a=3.0), "chain", Holding)
    differs(lambda model: model.numbers.__setitem__(0, 3.0), "numbers", Holding)
    differs(lambda model: model.source.update(a=3.0), "view", Holding)
    differs(lambda model: SCALE.set(3.0), "SCALE", scale=lambda output: output * SCALE.get(), undo=lambda: SCALE.set(1.0))


def shared_containers():
    """A dict and a list that the loop has as well as the model."""
    options, scales = {"a": 1.0}, [1.0]

    class Sharing(Net):
        def __init__(self):
            super().__init__()
            self.options, self.scales, self.parts = options, scales, []

        def forward(self, x):
            self.parts.append(x)
            return super().forward(x) * self.options["a"] * self.scales[0]

    def undo():
        options["a"] = scales[0] = 1.0
    differs(lambda _: options.update(a=3.0), "options", Sharing, undo=undo)
    differs(lambda _: scales.__setitem__(0, 3.0), "scales", Sharing, undo=undo)
    model = Sharing()
    memopt.compile(model, F.cross_entropy, DATA, optimizer=torch.optim.SGD(model.parameters(), 0.3))
    assert model.options is options and model.scales is scales and not model.parts


def computed_keys():
    """Entries whose keys the code does not write out."""
    class Choosing(Net):
        def __init__(self):
            super().__init__()
            self.scales, self.chosen = {"on" + "e": 1.0, "tw" + "o": 1.0}, ["on" + "e"]

        def forward(self, x):
            x = super().forward(x)
            for name in self.chosen:
                x = x * self.scales[name]
            return x
    differs(lambda model: model.scales.update(one=3.0), "scales['one']", Choosing)
    factors = {"on" + "e": 1.0}
    for scale in (lambda output: output * sum(factors.values()), lambda output: output * [value for _, value in factors.items()][0],
                  lambda output: output * dict(**factors)["on" + "e"]):
        differs(lambda model: factors.update(one=3.0), "factors['one']", scale=scale, undo=lambda: factors.update(one=1.0))


def default_type():
    """PyTorch's type of new tensors."""
    model = Net()
    step = memopt.compile(model, F.cross_entropy, DATA, optimizer=torch.optim.SGD(model.parameters(), 0.3))
    step(DATA)
    torch.set_default_dtype(torch.float64)
    try:
        refuses(memopt.BadInput, ["set_default_dtype"], step, DATA)
    finally:
        torch.set_default_dtype(torch.float32)
    step(DATA)


def unread():
    """What the code only writes changes nothing."""
    seen = {}

    def loss_fn(output, target):
        seen["loss"] = None
        return F.cross_entropy(output, target)
    model = Net()
    step = memopt.compile(model, loss_fn, DATA, optimizer=torch.optim.SGD(model.parameters(), 0.3))
    step(DATA)
    seen["loss"], seen["other"], named.note = 1.0, 2.0, 3.0
    step(DATA)


def own_generators():
    """Random numbers of a generator that the model has are drawn once, and that is said."""
    class Drawing(Net):
        def __init__(self):
            super().__init__()
            self.generator = random.Random(0)

        def forward(self, x):
            return super().forward(x) * (1 + self.generator.random())
    model = Drawing()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        memopt.compile(model, F.cross_entropy, DATA, optimizer=torch.optim.SGD(model.parameters(), 0.3))
    assert any("draws from generator" in str(entry.message) for entry in found), found


def environment():
    """What forward or loss read from the environment; a variable that comes, changes or goes."""
    class Scaled(Net):
        def forward(self, x):
            x = super().forward(x)
            return x * float(os.environ["MEMOPT_TEST_SCALE"]) if "MEMOPT_TEST_SCALE" in os.environ else x

    def forget():
        os.environ.pop("MEMOPT_TEST_SCALE", None)

    def put(text):
        os.environ["MEMOPT_TEST_SCALE"] = text
    differs(lambda model: put("3"), "MEMOPT_TEST_SCALE", Scaled, undo=forget)
    differs(lambda model: put("3"), "'3', the step was compiled for '2'", Scaled, undo=lambda: put("2"))
    differs(lambda model: forget(), "MEMOPT_TEST_SCALE", Scaled, undo=lambda: put("2"))
    forget()
    differs(lambda model: put("4"), "MEMOPT_TEST_SCALE", scale=lambda output: output * float(os.getenv("MEMOPT_TEST_SCALE", "2")), undo=forget)
    forget()

    model = Scaled()
    step = memopt.compile(model, F.cross_entropy, DATA, optimizer=torch.optim.SGD(model.parameters(), 0.3))
    os.environ["MEMOPT_TEST_OTHER"] = "1"  # which nobody has asked for
    step(DATA)
    put("1")
    refuses(memopt.BadInput, ["MEMOPT_TEST_SCALE"], step, DATA)
    forget()
    step(DATA)


run_cases([replaced_code, order, classes_and_functions, other_files, absent, containers, other_containers,
           shared_containers, computed_keys, default_type, unread, own_generators, environment])
