# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What pyproject.toml cannot say of the two packages: their one version, and that a wheel with programs in it is for one kind
of machine and any Python."""

import pathlib
import re

from setuptools import Distribution
from setuptools.command.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).parent
(VERSION,) = re.findall(r'^__version__ = "(.*)"$', (HERE / "memopt/__init__.py").read_text(encoding="utf-8"), re.MULTILINE)


class Package(Distribution):
    """One whose folder `bin` is there or not; setuptools knows programs as extensions alone."""

    def has_ext_modules(self):
        return any(pathlib.Path.cwd().glob("**/bin/memopt-*"))


class Wheel(bdist_wheel):
    def get_tag(self):
        return super().get_tag() if self.root_is_pure else ("py3", "none", super().get_tag()[2])
