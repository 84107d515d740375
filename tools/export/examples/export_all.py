# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the archives of tools/export/models/ from models.py.

    python export_all.py [FOLDER]

Every model is exported twice, for training and for evaluation, at the functional level. The archives hold no sample
inputs, and no weights (`memopt-run --init=random` supplies them) but for the MLP's, which shows that weights travel;
so all of them together are small enough to ship.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import zipfile

import torch
import torch.nn.functional as F
from torch import nn

from models import ByteGPT, ResNet18, mlp

LOCAL_METADATA = ("stack_trace", "from_node", "source_fn_stack", "seq_nr")


class Classifier(nn.Module):
    """Images and labels in; the loss and, for the accuracy, the logits out."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, image, label):
        logits = self.net(image)
        return F.cross_entropy(logits, label), logits


class NextByte(nn.Module):
    """Bytes and the bytes that follow them in; in training the loss alone, for nobody reads the logits there."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, tokens, targets):
        logits = self.net(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return loss if self.training else (loss, logits)


def export(model: nn.Module, batch: tuple[torch.Tensor, ...], path: pathlib.Path, keep_weights: bool) -> None:
    program = torch.export.export(model, batch).run_decompositions({})
    for node in program.graph_module.graph.nodes:
        for key in LOCAL_METADATA:  # they hold paths of this machine, and no reader wants them
            node.meta.pop(key, None)
    with tempfile.TemporaryDirectory() as folder:
        full = pathlib.Path(folder) / path.name
        torch.export.save(program, full)
        _slim(full, path, keep_weights)


def _slim(source: pathlib.Path, target: pathlib.Path, keep_weights: bool) -> None:
    """Leaves out the sample inputs and, when asked, the bytes of weights; an empty record means a tensor without data."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if "/data/sample_inputs/" in name:
                continue
            is_weight = "/data/weights/weight_" in name
            info = zipfile.ZipInfo(name)  # a fixed date
            new.writestr(info, b"" if is_weight and not keep_weights else old.read(name))


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "models")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    images = lambda count: (torch.zeros(count, 1, 28, 28), torch.zeros(count, dtype=torch.long))
    text = (torch.zeros(8, 128, dtype=torch.long), torch.zeros(8, 128, dtype=torch.long))
    for name, model, batch in (
        ("mlp", Classifier(mlp()), images(64)),
        ("resnet18", Classifier(ResNet18()), images(64)),
        ("bytegpt", NextByte(ByteGPT()), text),
    ):
        for mode in ("train", "eval"):
            path = folder / f"{name}.{mode}.pt2"
            export(model.train(mode == "train"), batch, path, keep_weights=name == "mlp")
            print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
