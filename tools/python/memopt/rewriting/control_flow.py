# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Regions, branches and loops that torch.export keeps as operators with graphs.

Regions without gradients and with autocast are run as such. Of `torch.cond` and `torch.switch` all sides are computed and one is
chosen; the others compute with numbers of no meaning that are finite in most functions, so that a branch that guards a logarithm or
a division has finite slopes. `map` of operators without a rule here is `torch.vmap`. Other `map` and `scan` have a fixed number of
turns, which are written out. So are those of a `while_loop` whose condition counts them: turns behind the last change nothing.
"""

from __future__ import annotations

import math

import torch

from ..errors import Refused

__all__ = ["REGIONS", "RULES"]

_MOST_TURNS = 1024


def _set_grad(engine, target, arguments, keywords):
    enabled, body, *values = arguments
    with torch.set_grad_enabled(enabled):
        return engine.run(body, values)


def _autocast(engine, target, arguments, keywords):
    device, dtype, enabled, caches, body, *values = arguments
    with torch.autocast(device, dtype, enabled, caches):
        return engine.run(body, values)


def _stand_in(x: torch.Tensor, samples: int | None) -> torch.Tensor:
    """Between a half and one, and different along all dimensions but that of the samples, of which the program knows no number of its
    own when they are cut into parts. There it follows from the value itself."""
    total = torch.full((), 0.5, dtype=x.dtype)
    for dim, size in enumerate(x.shape):
        if dim == 0 and size == samples:
            own = x.detach().nan_to_num().atan() * (0.5 / math.pi) + 0.25  # between 0 and a half
            total = total + own / x.dim()
            continue
        ramp = torch.arange(size, dtype=x.dtype) * (0.5 / (size * x.dim()))
        total = total + ramp.reshape([-1 if place == dim else 1 for place in range(x.dim())])
    return total


def _choose(engine, conditions, branches, values):
    """The results of the branch whose condition holds, the last one's where none does."""
    found = []
    for condition, branch in zip(conditions, branches):
        given = [torch.where(condition, value, _stand_in(value, engine.samples)) if isinstance(value, torch.Tensor) and value.is_floating_point()
                 and not engine.is_parameter(value) else value for value in values]
        with engine.taking(condition):
            found.append(engine.run(branch, given))
    chosen = list(found[-1])
    for condition, results in zip(reversed(conditions[:-1]), reversed(found[:-1])):
        chosen = [torch.where(condition, a, b) if isinstance(a, torch.Tensor) else a for a, b in zip(results, chosen)]
    return chosen


def _cond(engine, target, arguments, keywords):
    condition, yes, no, values = (*arguments, ())[:4]
    condition = condition.reshape(()) != 0
    return _choose(engine, [condition, ~condition], [yes, no], list(values))


def _switch(engine, target, arguments, keywords):
    number, branches, values = (*arguments, ())[:3]
    number = number.reshape(()).clamp(0, len(branches) - 1)
    return _choose(engine, [number == place for place in range(len(branches))], list(branches), list(values))


def _list_ands(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The conditions that all have to hold."""
    if node.op == "call_function" and getattr(node.target, "_schema", None) is not None and node.target._schema.name in (
            "aten::logical_and", "aten::bitwise_and", "aten::mul", "aten::__and__"):
        return [part for argument in node.args if isinstance(argument, torch.fx.Node) for part in _list_ands(argument)]
    return [node]


_LIMITS = {"aten::lt": 0, "aten::le": 1, "aten::less": 0, "aten::less_equal": 1, "aten::ne": 0}


def _output(module: torch.fx.GraphModule) -> list:
    output = next(node for node in module.graph.nodes if node.op == "output").args[0]
    return list(output) if isinstance(output, (tuple, list)) else [output]


def _count_turns(engine, condition: torch.fx.GraphModule, body: torch.fx.GraphModule, carried: list) -> int | None:
    """The most turns that a counter in the condition allows: one that starts at a constant and grows by a constant."""
    counters = [node for node in condition.graph.nodes if node.op == "placeholder"]
    inner = [node for node in body.graph.nodes if node.op == "placeholder"]
    for node in _list_ands(_output(condition)[0]):
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None or schema.name not in _LIMITS or node.args[0] not in counters or not isinstance(node.args[1], (int, float)):
            continue
        place = counters.index(node.args[0])
        if place >= len(carried):
            continue
        start, grown = engine.known.get_number(carried[place]), _output(body)[place]
        while isinstance(grown, torch.fx.Node) and grown.op == "call_function" and grown.target in (
                torch.ops.aten.clone.default, torch.ops.aten.detach.default):
            grown = grown.args[0]
        if start is None or not isinstance(grown, torch.fx.Node) or grown.target is not torch.ops.aten.add.Tensor:
            continue
        if grown.args[0] is inner[place] and isinstance(grown.args[1], int) and grown.args[1] > 0:
            return max(0, -(-int(node.args[1] + _LIMITS[schema.name] - start) // grown.args[1]))
    return None


def _while(engine, target, arguments, keywords):
    condition, body, carried, rest = (*arguments, ())[:4]
    carried, rest = list(carried), list(rest)
    turns = _count_turns(engine, condition, body, carried)
    if turns is None or turns > _MOST_TURNS:
        raise Refused("a while_loop needs a limit on its turns that the program shows: a carried counter that starts at a constant, "
                      f"grows by one, and is compared with a number up to {_MOST_TURNS} in the condition, as in (i < 30) & (gap > 1e-3)")
    for _ in range(turns):
        goes_on = engine.run(condition, [*carried, *rest])
        goes_on = (goes_on[0] if isinstance(goes_on, (tuple, list)) else goes_on).reshape(())
        with engine.taking(goes_on):
            turned = engine.run(body, [*carried, *rest])
        carried = [torch.where(goes_on, new, old) for new, old in zip(turned, carried)]
    return carried


def _scan(engine, target, arguments, keywords):
    body, carried, given, rest = (*arguments, ())[:4]
    carried, given, rest = list(carried), list(given), list(rest)
    made: list[list] = []
    for turn in range(given[0].shape[0]):
        results = engine.run(body, [*carried, *(value.select(0, turn) for value in given), *rest])
        carried = list(results[:len(carried)])
        made.append(list(results[len(carried):]))
    return [*carried, *(torch.stack(values) for values in zip(*made))]


def _map(engine, target, arguments, keywords):
    body, given, rest = arguments
    if engine.is_plain(body, [*given, *rest]):
        return list(torch.vmap(torch.fx.Interpreter(body).run, (*[0] * len(given), *[None] * len(rest)))(*given, *rest))
    made = [engine.run(body, [*(value.select(0, turn) for value in given), *rest]) for turn in range(given[0].shape[0])]
    return [torch.stack(values) for values in zip(*made)]


def _associative_scan(engine, target, arguments, keywords):
    """By pairs of neighbours; the body treats elements alike."""
    body, given, rest = (*arguments, ())[:3]
    return _scan_pairs(lambda first, second: list(engine.run(body, [*first, *second, *rest])), list(given))


def _scan_pairs(combine, given: list) -> list:
    count = given[0].shape[0]
    if count < 2:
        return given
    odd = _scan_pairs(combine, combine([value[0:count - 1:2] for value in given], [value[1::2] for value in given]))
    even = combine([value[:(count - 1) // 2] for value in odd], [value[2::2] for value in given]) if count > 2 else None
    found = []
    for number, value in enumerate(given):
        evens = torch.cat([value[:1], even[number]]) if even is not None else value[:1]
        pairs = torch.stack([evens[:count // 2], odd[number][:count // 2]], 1).flatten(0, 1)
        found.append(torch.cat([pairs, evens[-1:]]) if count % 2 else pairs)
    return found


def _subgraph(engine, target, arguments, keywords):
    """torch.compiler.nested_compile_region"""
    body, _, *values = arguments
    return engine.run(body, values)


RULES = {"higher_order::wrap_with_set_grad_enabled": _set_grad, "higher_order::wrap_with_autocast": _autocast,
         "higher_order::cond": _cond, "higher_order::while_loop": _while, "higher_order::scan": _scan, "higher_order::map_impl": _map,
         "higher_order::switch": _switch, "higher_order::associative_scan": _associative_scan, "higher_order::invoke_subgraph": _subgraph}
#: What memopt takes as it is.
REGIONS = {"higher_order::wrap_with_set_grad_enabled", "higher_order::wrap_with_autocast"}
