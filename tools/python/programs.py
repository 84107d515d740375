# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What pyproject.toml cannot say of the two packages: their one version, and that a wheel with programs in it is for one kind
of machine and any Python."""

import pathlib
import re

from setuptools.command.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).parent
(VERSION,) = re.findall(r'^__version__ = "(.*)"$', (HERE / "memopt/__init__.py").read_text(encoding="utf-8"), re.MULTILINE)


class Wheel(bdist_wheel):
    """Of a package whose folder `bin` is there or not."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not list(pathlib.Path.cwd().glob("**/bin/memopt-*"))

    def get_tag(self):
        return super().get_tag() if self.root_is_pure else ("py3", "none", super().get_tag()[2])
