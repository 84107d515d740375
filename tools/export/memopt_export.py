# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""memopt.export for those who have this folder on their path, and the package (tools/python) not installed."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from memopt.export import TrainingStep, export, export_program, save  # noqa: E402

__all__ = ["TrainingStep", "export", "export_program", "save"]
