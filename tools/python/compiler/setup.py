# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pathlib
import sys

from setuptools import setup

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from programs import VERSION, Package, Wheel  # noqa: E402

setup(version=VERSION, install_requires=[f"memopt=={VERSION}"], distclass=Package, cmdclass={"bdist_wheel": Wheel})
