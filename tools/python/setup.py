# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pathlib
import sys

from setuptools import setup

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from programs import VERSION, Package, Wheel  # noqa: E402

setup(distclass=Package, cmdclass={"bdist_wheel": Wheel}, extras_require={
    "compiler": [f"memopt-compiler=={VERSION}"],
    "torch": ["torch>=2.9", "safetensors"],
    # NVIDIA's own packages, beside which this one lies: what --target=cuda compiles with, and what such packages run with.
    "cuda": ["nvidia-cuda-nvcc==13.0.88", "nvidia-nvvm==13.0.88", "nvidia-cudnn-cu13==9.26.0.51", "nvidia-cublas",
             "nvidia-nccl-cu13"],
})
