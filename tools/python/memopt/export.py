# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a PyTorch model and its loss as the .pt2 files that memopt compiles.

    import torch.nn.functional as F
    from memopt import export

    batch = {"image": torch.zeros(64, 1, 28, 28), "label": torch.zeros(64, dtype=torch.long)}
    export.export(model, F.cross_entropy, batch, targets=["label"], path="mine.pt2")

(or `import memopt_export`, with tools/export on the path) writes `mine.train.pt2`, one training step's forward pass with
dropout and batch statistics, and `mine.eval.pt2`, the same model in evaluation mode. Then

    memopt-run mine.train.pt2 --data=batches.safetensors --steps=100 --optimizer=adamw --lr=1e-3

trains it; the entries of `batch` name the program's inputs, so the file holds `step0.image`, `step0.label`,
`step1.image` and so on. Shapes are fixed by the example batch; its values do not matter.

What the model says about its gradients is kept: `torch.no_grad()`, `detach`, and the backward formulas of
`torch.autograd.Function`s (gradients.py). Hooks, autocast and parameters that forward writes are refused.

Needs PyTorch 2.9 or newer (older ones write weights as pickles, which memopt never executes). Everything that
torch.export can trace works, as far as memopt has the operators; it lists those it lacks, with their modules.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import nn

from . import gradients
from .draws import decided_draws

__all__ = ["TrainingStep", "export", "export_program", "save"]


class TrainingStep(nn.Module):
    """A model and its loss as one module: the batch in, `(loss, prediction)` out.

    The model gets the batch's entries in order, but for `targets`, which go to the loss: `loss(model(*inputs),
    *targets)` must give a scalar. Name no targets if the model computes its own loss; it is then called with the
    whole batch by keyword and returns the loss, or a tuple that begins with it, or an object with `.loss`. Its
    prediction is then what comes second, or `.logits`; it is returned if asked for, for it need not be one that labels
    are compared with.

    The model's parameters keep their names behind `net.`: what `memopt-run --save` writes is loaded by
    `TrainingStep(model, loss, targets).load_state_dict(...)`, or by the model once the prefix is dropped.
    """

    def __init__(self, net: nn.Module, loss: Callable | None = None, targets: Sequence[str] = (),
                 return_prediction: bool | None = None):
        super().__init__()
        if (loss is None) != (not targets):
            raise ValueError("a loss needs targets, and targets need a loss")
        self.net, self.loss, self.targets = net, loss, tuple(targets)
        self.return_prediction = loss is not None if return_prediction is None else return_prediction

    def forward(self, **batch: torch.Tensor):
        if self.loss is None:
            result = self.net(**batch)
            loss = result.loss if hasattr(result, "loss") else result[0] if isinstance(result, tuple) else result
            rest = result[1] if isinstance(result, tuple) and len(result) > 1 else getattr(result, "logits", None)
            return (loss, rest) if self.return_prediction and torch.is_tensor(rest) else loss
        missing = [name for name in self.targets if name not in batch]
        if missing:
            raise ValueError(f"the batch has no {', '.join(missing)}")
        prediction = self.net(*(value for name, value in batch.items() if name not in self.targets))
        loss = self.loss(prediction, *(batch[name] for name in self.targets))
        return (loss, prediction) if self.return_prediction and torch.is_tensor(prediction) else loss


def set_mode(step: nn.Module, training: bool) -> None:
    """Evaluation is for all modules. Training is for those that are in training mode, so that a backbone which was put
    in evaluation by hand stays so; if even the model is not, as after loading, nobody chose, and all are.
    """
    model = step.net if isinstance(step, TrainingStep) else step
    if not training or not model.training:
        step.train(training)


@contextlib.contextmanager
def without_cache(step: nn.Module) -> Iterator[None]:
    """Models of transformers keep keys and values for text that is to follow, by default even in training; while
    entered they do not.
    """
    configs = {id(module.config): module.config for module in step.modules() if getattr(module, "config", None) is not None}
    caching = [config for config in configs.values() if getattr(config, "use_cache", False) is True]
    for config in caching:
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching:
            config.use_cache = True


def export_program(step: nn.Module, batch: Mapping[str, torch.Tensor], training: bool,
                   watch: contextlib.AbstractContextManager | None = None) -> torch.export.ExportedProgram:
    """Traces one step at the functional level, which keeps layers whole; the module's mode is put back after. `watch` is
    entered around the calls of forward alone.

    Raises `gradients.Refused` where the program would not train as the module does.
    """
    gradients.check_module(step)
    was_training = [(module, module.training) for module in step.modules()]
    set_mode(step, training)
    try:
        with gradients.watched_gradients(), without_cache(step), decided_draws(), watch or contextlib.nullcontext():
            program = torch.export.export(step, (), dict(batch), strict=False)
        gradients.check_program(program)
        gradients.keep_stopped_gradients(program)
        program = program.run_decompositions({})
        gradients.check_program(program)
        return program
    finally:
        for module, mode in was_training:
            module.training = mode


def save(program: torch.export.ExportedProgram, path: str | pathlib.Path, weights: bool = True,
         training: bool = True) -> None:
    """Writes the archive without what memopt has no use for: example inputs, paths of this machine, and an identity that
    differs each time.

    With `weights=False` tensors keep their shapes and lose their bytes; `memopt-run --init=random` supplies them. A
    program that was traced in evaluation mode is marked, so that evaluating it runs it as it was written:
    `F.dropout(x, training=True)` drops.
    """
    for node in program.graph_module.graph.nodes:
        for key in ("stack_trace", "from_node", "source_fn_stack"):
            node.meta.pop(key, None)
    path = pathlib.Path(path)
    with tempfile.TemporaryDirectory() as folder:
        whole = pathlib.Path(folder) / path.name
        torch.export.save(program, whole)
        with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
            for name in source.namelist():
                if "/data/sample_inputs/" in name or name.endswith("/.data/serialization_id"):
                    continue
                dropped = not weights and "/data/weights/weight_" in name
                out.writestr(zipfile.ZipInfo(name), b"" if dropped else source.read(name))
            if not training:
                root = next(name for name in source.namelist() if name.endswith("/archive_format"))
                out.writestr(zipfile.ZipInfo(root.removesuffix("archive_format") + "extra/memopt_mode"), b"eval")


def export(model: nn.Module, loss: Callable | None, batch: Mapping[str, torch.Tensor], path: str | pathlib.Path,
           targets: Sequence[str] = (), weights: bool = True) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes PATH.train.pt2 and PATH.eval.pt2 (a suffix .pt2 of `path` is dropped) and returns both paths."""
    step = TrainingStep(model, loss, targets)
    stem = pathlib.Path(path)
    stem = stem.with_suffix("") if stem.suffix == ".pt2" else stem
    paths = []
    for mode in ("train", "eval"):
        paths.append(stem.with_name(f"{stem.name}.{mode}.pt2"))
        save(export_program(step, batch, training=mode == "train"), paths[-1], weights, training=mode == "train")
    return paths[0], paths[1]
