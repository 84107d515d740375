# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch._foreach_mul_` and its kin: an operator for each tensor of a list, as averages of weights are written."""

from __future__ import annotations

import torch

from ...errors import Refused
from ..ragged.values import bind

__all__ = ["RULES"]

aten = torch.ops.aten
_PREFIX = "aten::_foreach_"
#: Where the operator for one tensor has another name, by the name and whether the other operand is a number.
_OTHERS = {("maximum", True): aten.clamp_min, ("minimum", True): aten.clamp_max, ("maximum_", True): aten.clamp_min_,
           ("minimum_", True): aten.clamp_max_, ("norm", True): aten.linalg_vector_norm,
           ("maximum_", False): lambda x, other: x.copy_(x.maximum(other)), ("minimum_", False): lambda x, other: x.copy_(x.minimum(other))}
#: What is given by name to the operator for one tensor.
_NAMED = {"value", "alpha", "dtype", "memory_format"}
_NAMES = {"scalars": {"addcmul": "value", "addcdiv": "value"}}


def _for_each(engine, target, arguments, keywords):
    name, parameters = target._schema.name.removeprefix(_PREFIX), target._schema.arguments
    bound = bind(target, arguments, keywords)
    given = {parameter.name: bound[parameter.name] for parameter in parameters}
    lists = {parameter.name for parameter in parameters if str(parameter.type).startswith("List")}
    numbers = [value for values in list(given.values())[1:] for value in (values if isinstance(values, (list, tuple)) else [values])]
    function = _OTHERS.get((name, any(isinstance(number, (int, float)) for number in numbers)), getattr(aten, name, None))
    if function is None or "scalars" in given and isinstance(given["scalars"], torch.Tensor):
        raise Refused(f"torch.{target._schema.name.removeprefix('aten::')} is not supported; write a loop over the tensors")
    names = {place: _NAMES.get(place, {}).get(name.removesuffix("_"), place) for place in given}

    def apply(i):
        one = {names[place]: value[i] if place in lists else value for place, value in given.items()}
        return function(*(value for place, value in one.items() if place not in _NAMED),
                        **{place: value for place, value in one.items() if place in _NAMED and value is not None})
    results = [apply(i) for i in range(max(len(given[place]) for place in lists))]
    return results if target._schema.returns else None


RULES = {name.partition(".")[0]: _for_each for name in torch._C._dispatch_get_all_op_names() if name.startswith(_PREFIX)}
