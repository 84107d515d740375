# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PyTorch says when it cannot trace a model, in the words of somebody who writes models.

torch.export ends with errors of its own machinery. Each becomes a `Refused` that has the user's line, what stands in the
way, and what to write instead; PyTorch's own error is its cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import UNKNOWN_NUMBER, Refused
from .places import find_place, list_frames

__all__ = ["find_cause", "refuse_tracing_error"]


class _Failure(NamedTuple):
    kind: str  #: the error's type
    text: str
    files: str  #: of all frames, a line each
    functions: str  #: a word for each frame

    def came_through(self, *parts: str) -> bool:
        return any(part in self.files for part in parts)


class _Explanation(NamedTuple):
    fits: Callable[[_Failure], bool]
    text: str


_MASK = ("keep all elements and weight them with a mask, as in torch.where(mask, x, 0).sum() / mask.sum()")
#: The first that fits counts: those that know what was called, then those that know what PyTorch met.
_EXPLANATIONS = (
    _Explanation(lambda f: f.came_through("/torch/nested/") or re.search("nested", f.text + f.kind, re.I) is not None,
                 "nested tensors are not supported; pad the sequences to one length and mask what is padded"),
    _Explanation(lambda f: f.came_through("/torch/_functorch/eager_transforms.py"),
                 "this transform of torch.func inside the step is not supported; grad, vjp, jvp, jacrev and hessian are"),
    _Explanation(lambda f: f.came_through("/torch/ao/quantization/", "/torchao/"),
                 "this module of torch.ao.quantization decides by what it sees, which a compiled step cannot; FakeQuantize and its "
                 "fused form with observers of minimum and maximum, moving or not, are supported"),
    _Explanation(lambda f: f.came_through("/torch/distributions/") and "DataDependent" in f.kind,
                 "torch.distributions checks its arguments, which branches on their values; give the distribution "
                 "validate_args=False"),
    _Explanation(lambda f: "sparse" in f.text.lower() or "Sparse" in f.kind,
                 "sparse tensors are not supported; use dense ones, or index_add with the indices and values"),
    _Explanation(lambda f: ".numpy()" in f.text or "np.ndarray" in f.text or "__array__" in f.text or "__array__" in f.functions
                 or f.came_through("/numpy/"),
                 "NumPy inside the step is not supported, but for methods that tensors have, too; write it with PyTorch's functions, or compute it where the batch is "
                 "made"),
    _Explanation(lambda f: f.kind == "DynamicOutputShapeException",
                 f"the size of the result of {{op}} depends on the data; {_MASK}"),
    _Explanation(lambda f: f.kind == "PendingUnbackedSymbolNotFound",
                 "an operator in place on a slice x[:n], where n follows from the data, is not supported; assign to the slice, as in "
                 "x[:n] = x[:n] * 2"),
    _Explanation(lambda f: f.kind == "DataDependentOutputException" or (
                     f.kind.startswith("GuardOnDataDependent") and "Could not guard" not in f.text),
                 UNKNOWN_NUMBER),
    _Explanation(lambda f: f.kind.startswith("GuardOnDataDependent"),
                 "a branch or an assertion (if, while, assert, bool(x)) that depends on the data is not supported; compute both "
                 "sides and choose by torch.where(condition, x, y), or decide outside of the step"),
)


def _first_sentence(text: str) -> str:
    """Of PyTorch's text, what comes before its advice on environment variables."""
    paragraph = next((part for part in re.split(r"\n\s*\n|\nCaused by:|\nFor more", text.strip()) if part.strip()), "")
    return " ".join(paragraph.split())[:600]


def _list_causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def find_cause(error: BaseException, kind: type) -> Any:
    """What of this kind an error came from."""
    return next((cause for cause in _list_causes(error) if isinstance(cause, kind)), None)


def refuse_tracing_error(error: Exception) -> Refused:
    """What is to be raised instead of an error that came out of torch.export."""
    causes = _list_causes(error)
    frames = [frame for cause in causes for frame in list_frames(cause.__traceback__)]
    functions = []
    for cause in causes:
        trace = cause.__traceback__
        while trace is not None:
            functions.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
    failure = _Failure(type(error).__name__, str(error), "\n".join(file for file, _ in frames), " ".join(functions))
    place = next(filter(None, (find_place(list_frames(cause.__traceback__)) for cause in causes)), None)
    front = f"{place}: " if place else ""
    explanation = next((entry.text for entry in _EXPLANATIONS if entry.fits(failure)), None)
    if explanation is not None:
        op = str(getattr(error, "func", "an operator"))
        return Refused(front + explanation.replace("{op}", op))
    sentence = _first_sentence(str(error))
    said = f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__
    return Refused(f"{front}the model cannot be traced by torch.export: {said}")
