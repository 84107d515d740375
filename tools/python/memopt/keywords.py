# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of memopt-compile as keywords of Python's functions: `device_memory="8GiB"` is `--device-memory=8GiB`."""

from __future__ import annotations

import difflib
import functools
import re
import subprocess
from collections.abc import Collection, Mapping
from typing import Any

from .errors import BadInput
from .tools import find_compiler

__all__ = ["write_budget", "write_options"]

#: What this package gives memopt-compile itself, or has no use for, and where it is found instead.
_OWN_OPTIONS = {
    **dict.fromkeys(("optimizer", "lr", "param-group"), "it comes from the torch optimizer, with its groups"),
    **dict.fromkeys(("ranks", "reduce"), "ranks are the processes that a launcher has started: torchrun --nproc-per-node=N"),
    "target": "the device is device=\"cpu\" or device=\"cuda\"",
    "hyperparameters": "momentum, betas and weight decay are inputs of every step in Python",
    "batch": "the number of samples is batch_size=N, or batch_size=\"max\"",
    **dict.fromkeys(("programs", "state"), "shapes=[…], step.evaluate and memopt.compile_steps make programs over one state"),
    "loss": "the loss is what loss_fn gives, or the model's first floating-point scalar",
    "device-memory": "it is a keyword of memopt.compile alone",
    "deepspeed-config": "give its options as keywords, such as max_grad_norm=1.0",
    **dict.fromkeys(("estimate", "frontier", "frontier-output"), "memopt.estimate and memopt.frontier give that"),
    **dict.fromkeys(("o", "mode", "report", "emit", "calibrate", "help", "explain", "time-report", "version", "quiet"),
                    "memopt-compile has it on its command line; step.plan tells what was planned"),
}
#: By the names that other libraries have for it: transformers, accelerate, DeepSpeed, Lightning, PyTorch.
_ELSEWHERE = {
    **dict.fromkeys(("gradient_clipping", "gradient_clip_val", "gradient_clip", "grad_clip", "clip_grad", "clip_grad_norm",
                     "clip_grad_norm_", "max_norm", "grad_norm"), "max_grad_norm=1.0"),
    **dict.fromkeys(("accumulate_grad_batches", "gradient_accumulation", "accumulation_steps", "grad_accum_steps", "accum_steps",
                     "grad_accum"), "accumulative_counts=K"),
    **dict.fromkeys(("per_device_train_batch_size", "train_batch_size", "auto_find_batch_size"),
                    "batch_size=N, or batch_size=\"max\""),
    **dict.fromkeys(("train_micro_batch_size_per_gpu", "micro_batch_size", "microbatches", "num_microbatches"),
                    "micro_batches=K, a number of parts"),
    **dict.fromkeys(("mixed_precision", "amp", "autocast", "bf16", "dtype", "torch_dtype"), "precision=\"bf16\""),
    "fp16": "precision=\"fp16\"",
    "tf32": "matmul_precision=\"high\"",
    **dict.fromkeys(("gradient_checkpointing", "activation_checkpoint", "checkpoint", "checkpoint_activations", "recompute"),
                    "activation_checkpointing=[\"layer1.*\"], or nothing: within a budget the compiler recomputes by itself"),
    **dict.fromkeys(("memory", "max_memory", "memory_budget", "budget", "memory_limit", "gpu_memory"), "device_memory=\"8GiB\""),
    **dict.fromkeys(("num_threads", "n_threads", "num_workers"), "threads=N"),
    **dict.fromkeys(("learning_rate", "weight_decay", "momentum", "betas", "eps"), "the torch optimizer, with its groups"),
    **dict.fromkeys(("zero_optimization", "fsdp", "ddp", "world_size"), "zero_stage=0|1|2|3 in processes that torchrun has started"),
    **dict.fromkeys(("cpu_offload", "offload", "offload_optimizer_device"), "offload_optimizer=\"cpu\""),
    **dict.fromkeys(("load_in_8bit", "optim_8bit", "use_8bit"), "optim_bits=8"),
    **dict.fromkeys(("criterion", "loss", "loss_function"), "loss_fn, the second argument"),
    **dict.fromkeys(("label_names", "labels"), "targets=[…]"),
}
_FLAGS = {"reference", "sync-batch-norm"}
_MODULE_LISTS = {"activation-checkpointing", "efficient-conv-bn-eval", "tile"}
_NO_MODULES = {"all", "off", "head", "segments"}  # what may stand in place of a name, with :N behind it


@functools.cache
def _list_options() -> frozenset[str]:
    said = subprocess.run([str(find_compiler()), "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return frozenset(re.findall(r"^  --?([a-z0-9][a-z0-9-]*)", said.stdout, re.MULTILINE))


def _suggest(key: str, known: Collection[str]) -> str:
    instead = _ELSEWHERE.get(key.lower())
    if instead:
        return f"; here it is {instead}"
    near = difflib.get_close_matches(key.lower(), [*(name.replace("-", "_") for name in known), "device_memory", "targets",
                                                    "threads", "optimizer", "batch_size"], 1, 0.75)
    return f"; did you mean {near[0]}=?" if near else "; docs/MemoptCompile.md lists them, with dashes"


def _check(key: str, name: str) -> None:
    if name in _OWN_OPTIONS:
        raise BadInput(f"{key}= is no option of a step: {_OWN_OPTIONS[name]}")
    known = _list_options()
    if known and name not in known:
        raise BadInput(f"there is no option {key}={_suggest(key, known)}")


def _write_option(name: str, value: Any, front: str) -> str:
    if name in _FLAGS:
        return f"--{name}" if value else ""
    if isinstance(value, bool):
        return f"--{name}={'on' if value else 'off'}"
    parts = list(value) if isinstance(value, (list, tuple)) else str(value).split(",") if name in _MODULE_LISTS else [value]
    if name in _MODULE_LISTS:  # by the model's names; in the program they stand behind the wrapper's
        parts = [part if str(part).partition(":")[0] in _NO_MODULES else f"{front}{part}" for part in parts]
    return f"--{name}={','.join(str(part) for part in parts)}"


def write_options(options: Mapping[str, Any], names: Collection[str] | None = None, front: str = "net.") -> list[str]:
    """The command line of keyword arguments, of those that `names` has if it is given. `front` is what stands before the
    model's names in the program. A keyword that is none is refused with the one that was meant."""
    by_name = {}
    for key, value in options.items():
        name = "batch" if key == "batch_size" else key.replace("_", "-")
        if key != "batch_size":
            _check(key, name)
        if value is not None:
            by_name[name] = value
    words = [_write_option(name, value, front) for name, value in by_name.items() if names is None or name in names]
    return [word for word in words if word]


def write_budget(device_memory: int | str | None) -> list[str]:
    """`--device-memory`, which is a whole number of bytes, or one with a unit."""
    if device_memory is None:
        return []
    if isinstance(device_memory, float) and device_memory.is_integer():
        device_memory = int(device_memory)
    if isinstance(device_memory, bool) or not isinstance(device_memory, (int, str)) or (
            isinstance(device_memory, int) and device_memory <= 0):
        raise BadInput(f"device_memory={device_memory!r}: expected a positive number of bytes, or a text such as \"8GiB\"")
    return [f"--device-memory={device_memory}"]
