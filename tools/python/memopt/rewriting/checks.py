# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a model makes of values, as torch.distributions does of its arguments, carried into the step.

PyTorch makes them while the model runs. A program has no such assertion, but it refuses a step whose loss is not finite, and
leaves everything as it was. So each check is a term of the loss: the mean over all that it sees of 0 where it holds and of what
is no number where it fails. A mean, and not the one answer for all, keeps the samples of a batch apart.

Checks are `torch._assert`, `_assert_async`, `_check` and its kin, `assert`, and an `if` that raises. Other branches that the data
decide are marked, for rewriting/sides: `decide` says which side is traced.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.distributions import constraints
from torch.overrides import TorchFunctionMode

from ..errors import ENDLESS_LOOP, EndlessLoop, NumbersWarning, Refused
from ..user_code.branches import find_frame, find_raising_side
from ..user_code.places import called_from, is_hidden
from . import intervals
from .answers import Answers
from .bounds import kept_ranges
from .hits import Hits
from .integers import AskedForInteger
from .numbers import as_truth, is_truth_of_data, narrow, select, take_slice, write
from .offsets import Offsets, is_place
from .sides import ADVICE, MOST_BRANCHES
from .traced_constants import TracedConstants

__all__ = ["REPLACED", "add_check", "carried_checks", "check_raising_side", "decide_side"]

#: Functions of torch that take a truth value and a message, and no tensor that a mode would see.
_CHECKS = ("_check", "_check_value", "_check_index", "_check_type", "_check_not_implemented", "_check_tensor_all")

_INSTEAD = "compute both and choose by torch.where"
_MISSING_SIDE = "a branch goes to the side that the program does not have, for it cannot be compiled"
_ONE_SIDE = ("a branch goes to the side that the program does not have, for the two differ in more than values of the same shapes; "
             + _INSTEAD)

#: Functions of the data that have another form in a trace; those that give None are left as they are.
_REPLACED_BY_NAME = {"split": intervals.split, "split_with_sizes": intervals.split, "bincount": intervals.count}
#: Looks at a tensor that may be at places of the data, with the number of their arguments then.
_AT_PLACES = {"narrow": (narrow, 4), "select": (select, 3)}

_active = threading.local()  # `checks` of the thread that traces


def _choose(original: Callable) -> Callable:
    """`torch._check` of what is a tensor is collected, and of a number that follows from the data; PyTorch's trace learns from that, too."""
    def check(condition, message=None, *rest):
        checks = getattr(_active, "checks", None)
        if checks is not None and isinstance(condition, torch.Tensor):
            return checks.add(condition, message)
        if checks is not None and is_truth_of_data(condition) and not is_hidden(sys._getframe(2).f_code.co_filename):
            checks.add(as_truth(condition), message)
        with kept_ranges(condition):
            return original(condition, message, *rest)
    return check


def _check_symmetric(original: Callable, test: Callable) -> Callable:
    """Square, symmetric, and what the test asks: all at once, where PyTorch's own leaves out the next if one does not hold."""
    def check(self, value):
        if value.shape[-1] != value.shape[-2]:
            return original(self, value)
        return torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1) & test(value)
    return check


_OF_SYMMETRIC = {constraints._Symmetric: lambda value: True,
                 constraints._PositiveDefinite: lambda value: torch.linalg.cholesky_ex(value).info.eq(0),
                 constraints._PositiveSemidefinite: lambda value: torch.linalg.eigvalsh(value).ge(0).all(-1)}
#: What is replaced while a step is traced: owner, name and the other function.
REPLACED = [*((torch, name, _choose(getattr(torch, name))) for name in _CHECKS if hasattr(torch, name)),
            *((kind, "check", _check_symmetric(kind.check, test)) for kind, test in _OF_SYMMETRIC.items())]


def _write(message: Any) -> str:
    try:
        return str(message() if callable(message) else message)
    except Exception:  # it formats values, which there are none of
        return "an assertion"


def _replace_data(x: torch.Tensor, value: torch.Tensor) -> None:
    """`x.data = value`, which PyTorch's trace does not see."""
    if (x.shape, x.dtype) != (value.shape, value.dtype):
        raise Refused(f"{called_from()}: .data is given a tensor of another shape or type, which a step cannot keep")
    x.detach().copy_(value.detach())


def _are_equal(a: torch.Tensor, b: torch.Tensor) -> bool | torch.Tensor:
    """`torch.equal`: a truth value of tensors, which Python gets where it asks for it."""
    if a is b or a.shape != b.shape:
        return a is b
    return (a == b).all()


def add_check(loss: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
    """The loss, or no number where the condition does not hold."""
    return loss + torch.where(condition != 0, 0.0, float("nan")).mean().to(loss.dtype)


def decide_side(condition: torch.Tensor) -> bool | None:
    """Which side of a branch of the model's is traced; None where that is nobody's to decide."""
    checks = getattr(_active, "checks", None)
    return None if checks is None else checks.decide(condition)


def check_raising_side(condition: torch.SymBool) -> bool | None:
    """The side that is traced of a branch whose other side raises; None of other branches."""
    checks, side = getattr(_active, "checks", None), find_raising_side()
    if checks is None or side is None:
        return None
    raises, text = side
    checks.add(torch.logical_not(as_truth(condition)) if raises else as_truth(condition), text)
    return not raises


class carried_checks(TorchFunctionMode):
    """While entered, assertions about tensors are collected instead of made."""

    def __init__(self):
        super().__init__()
        self._conditions: list[torch.Tensor] = []
        self._places: list[str] = []
        self._answers, self._hits, self._offsets, self._constants = Answers(), Hits(), Offsets(), TracedConstants()
        self._branches: list[tuple[torch.Tensor | None, str]] = []  # conditions, if they are not known, and where they stand
        self._unequal: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by identity, whether two numbers are equal, and whether they are not
        self._decided: dict[int, tuple[torch.Tensor, int, int]] = {}  # by identity, with the version and the first branch's number
        #: Whether branches by one value are one branch, whose sides begin at the first and end with the last.
        self.joins = False
        #: Whether the last trace had branches by one value.
        self.has_joint = False
        #: The sides of branches that follow from no data, by number: they are no branches.
        self.known: dict[int, bool] = {}
        #: What is wrong with the traced side of branches, by number: the other side is traced, and checked.
        self.avoided: dict[int, str] = {}
        #: By its number, whether a branch goes to the other side than in the first trace.
        self.takes_other: Callable[[int], bool] = lambda number: False
        #: Which side that is: where the condition holds, but where the model has no trace with all of these.
        self.first_side = True
        #: Branches of which it is the other side, as the values of the first cannot be told from what was there before.
        self.turned: set[int] = set()
        #: What was asserted, a line each: "model.py:12: Expected ...".
        self.texts: list[str] = []

    def add(self, condition: torch.Tensor, message: Any) -> None:
        """A value, or values, that must be true."""
        self._conditions.append(self._answers.find(condition))
        self.texts.append(f"{called_from()}: {_write(message)}")

    def begin(self, takes_other: Callable[[int], bool] = lambda number: False) -> None:
        """Before the model is traced again."""
        self.takes_other = takes_other
        self._conditions.clear()
        self._branches.clear()
        self._decided.clear()
        self._unequal.clear()
        self._answers.clear()
        self._hits.clear()
        self._offsets.clear()
        self._constants.clear()

    def decide(self, condition: torch.Tensor) -> bool:
        """Marks a branch; the side that is traced. Of numbers that are compared it is that where they differ, as where a count is not 0."""
        unequal = self._unequal.get(id(condition), (None, None))[1]
        return self._decide(condition) if unequal is None else not self._decide(unequal)

    def _note_equality(self, function: Callable, operands: Sequence, result: Any) -> None:
        if getattr(function, "__name__", "") in ("eq", "__eq__") and len(operands) == 2 and is_place(operands[0]) and (
                is_place(operands[1]) or type(operands[1]) is int) and isinstance(result, torch.Tensor):
            self._unequal[id(result)] = result, torch.logical_not(result)

    def _decide(self, condition: torch.Tensor) -> bool:
        number = len(self._branches)
        known, version, before = self._decided.setdefault(id(condition), (condition, condition._version, number))
        if before != number and version == condition._version:
            self.has_joint = True
            if before in self.known:
                return self.known[before]
            if self.joins:
                return self.is_first(before) != self.takes_other(before)
        if number >= MOST_BRANCHES:
            raise EndlessLoop(f"{called_from()}: {ENDLESS_LOOP}")
        if number in self.known:
            self._branches.append((None, called_from()))
            return self.known[number]
        if number in self.avoided:
            self._branches.append((None, called_from()))
            self.add(torch.logical_not(condition) if self.is_first(number) else condition, self.avoided[number])
            return not self.is_first(number)
        condition = condition.detach().reshape(()) != 0
        marked = torch.ops.memopt.branch(condition if self.is_first(number) else ~condition, number)
        self._branches.append((marked, called_from()))
        return self.is_first(number) != self.takes_other(number)

    def is_first(self, number: int) -> bool:
        """What the condition of a branch is in the first trace."""
        return self.first_side != (number in self.turned)

    def turn(self) -> bool:
        """After a trace that failed: whether another, with the other side of all branches, is to be tried."""
        if not self._branches or not self.first_side:
            return False
        self.first_side = False
        self.begin()
        return True

    def explain_branches(self, numbers: list[int], places: list[str], reasons: Mapping[int, str]) -> None:
        """Branches of which the program has one side; of some it is known why the other cannot be compiled."""
        for number in numbers:
            reason = reasons.get(number)
            text = _ONE_SIDE if reason is None else f"{_MISSING_SIDE} ({reason}); {_INSTEAD}"
            self.texts.append(f"{places[number]}: {text}")
            if reason is not None:
                warnings.warn(f"{places[number]}: the step has one side of this branch, for the other cannot be compiled ({reason}). A batch "
                              f"that goes there is refused; {_INSTEAD}", NumbersWarning, stacklevel=2)

    def avoid(self, number: int, parameters: Sequence[str]) -> None:
        """Traces the other side of a branch, as this one writes parameters."""
        names = ", ".join(parameters)
        self.avoided[number] = f"a branch goes to the side that writes parameters ({names}), which in a step only the optimizer does. {ADVICE}"
        warnings.warn(f"{self._places[number]}: one side of this branch writes parameters ({names}), which in a step only the optimizer does. The "
                      f"step has the other side, and refuses batches that go to this one. {ADVICE}", NumbersWarning, stacklevel=2)

    def list_places(self) -> list[str]:
        """Where the branches of the last trace stand, by number."""
        return self._places

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # the graphs of torch.cond and its like, which see no identities
            return self._call(function, args, kwargs)
        known = self._constants.answer(function, args)
        return self._constants.follow(function, args, kwargs, lambda: self._call(function, args, kwargs)) if known is None else known[0]

    def _call(self, function: Callable, args: Sequence, kwargs: Mapping) -> Any:
        if function in (torch._assert_async, torch._assert):
            condition, text = (*args, *kwargs.values(), "an assertion")[:2]
            if isinstance(condition, torch.Tensor):
                return self.add(condition, text)
        if function is torch.Tensor.__bool__:
            side = find_raising_side()
            if side is not None:
                raises, text = side
                self.add(self._answers.negate(args[0]) if raises else args[0], text)
                return not raises
            frame = find_frame()
            if frame is not None and not is_hidden(frame.f_code.co_filename):
                return self.decide(args[0])
        if function in (torch.Tensor.__int__, torch.Tensor.__index__):
            frame = find_frame()
            if frame is not None and not is_hidden(frame.f_code.co_filename) and "int" not in frame.f_globals:
                raise AskedForInteger(frame)
        if function is torch.Tensor.detach_ and self._branches:
            raise Refused("x.detach_() behind a branch that depends on the data is not supported; write x = x.detach()")
        if function == torch.Tensor.data.__get__:
            return args[0].detach()  # PyTorch's trace would take what is written to it for something new
        if function == torch.Tensor.data.__set__:
            return _replace_data(*args)
        if function is torch.Tensor.__getitem__:
            args = args[0], self._hits.settle(args[1])
        if function is torch.Tensor.__setitem__:
            index = self._offsets.settle(args[1])
            return None if intervals.write(function, args[0], index, args[2]) else write(function, args[0], index, args[2])
        if function in (torch.ops.aten.slice, torch.ops.aten.slice.Tensor):  # what torch.export makes of x[i:j]
            found = intervals.cut(*args)
            return take_slice(function, *args) if found is None else found
        if function is torch.Tensor.numpy:
            return args[0].detach()  # whose methods are those of NumPy's arrays, by and large
        replaced = _REPLACED_BY_NAME.get(getattr(function, "__name__", ""))
        if replaced is not None and isinstance(args[0], torch.Tensor):
            result = replaced(*args, **kwargs)
            if result is not None:
                return result
        look, count = _AT_PLACES.get(getattr(function, "__name__", ""), (None, 0))
        if look is not None and len(args) == count:
            return look(function, *args)
        if function is torch.Tensor.item and (args[0].is_floating_point() or args[0].dtype is torch.bool):
            result = args[0].detach().reshape(())  # what follows from it follows in the step
            self._answers.note(function, args, result)
            return result
        if function is torch.Tensor.item and is_place(args[0]):
            return self._offsets.find_number(args[0])
        if function is torch.equal and any(isinstance(value, FakeTensor) for value in args):  # others are looked at between traces
            return _are_equal(*args)
        if function is torch.Tensor.unbind:
            turns = self._hits.find_turns(args[0], self.decide)
            if turns is not None:
                return turns
        result = args[0].all() if function is torch._is_all_true else function(*args, **kwargs)
        self._hits.note(function, args, kwargs, result)
        if not kwargs:
            self._answers.note(function, args, result)
            self._offsets.note(function, args, result)
            self._note_equality(function, args, result)
        return result

    def __enter__(self):
        self._outer, _active.checks = getattr(_active, "checks", None), self
        return super().__enter__()

    def __exit__(self, *error):
        _active.checks = self._outer
        return super().__exit__(*error)

    def apply(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss with the terms of the checks, behind the branches."""
        while self._conditions:
            loss = add_check(loss, self._conditions.pop())
        for condition, _ in self._branches:
            loss = loss if condition is None else torch.ops.memopt.behind(loss, condition)
        self._places = [place for _, place in self._branches]
        self._branches.clear()
        return loss
