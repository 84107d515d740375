# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a step is compiled, and what it does with batches of other shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import BadInput
from ..runtime import find_rank

__all__ = ["BUILT_IN", "Settings"]

#: What is said of a change that a program cannot follow.
BUILT_IN = ("{}; the program has that built in: compile the step again, or give new_shapes=\"compile\", which does so by "
            "itself")


class Settings(NamedTuple):
    """What is said of a step or of several, beside models, losses and optimizers."""

    device_memory: int | str | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    threads: int = 0
    new_shapes: str = "error"
    max_programs: int | None = None
    ragged: str = "error"
    device: str = "cpu"
    check_memory: bool = False
    disk_folder: str | os.PathLike | None = None
    rank_timeout: float | None = None

    def check(self) -> Settings:
        if self.new_shapes not in ("error", "compile"):
            raise BadInput(f"new_shapes is 'error' or 'compile', found {self.new_shapes!r}")
        if self.ragged not in ("error", "pad"):
            raise BadInput(f"ragged is 'error' or 'pad', found {self.ragged!r}")
        if self.device not in ("cpu", "cuda"):
            raise BadInput(f"device is 'cpu' or 'cuda', found {self.device!r}")
        if self.options.get("zero_stage") and find_rank()[1] == 1:
            raise BadInput("zero_stage= shares out among ranks, and this process is alone: start the script by "
                           "torchrun --nproc-per-node=N")
        if self.rank_timeout is not None and not (isinstance(self.rank_timeout, (int, float)) and self.rank_timeout > 0):
            raise BadInput(f"rank_timeout is a number of seconds above 0, found {self.rank_timeout!r}")
        if self.max_programs is not None and (not isinstance(self.max_programs, int) or self.max_programs < 1):
            raise BadInput(f"max_programs is a number of programs, found {self.max_programs!r}")
        return self
