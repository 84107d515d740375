# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the archives of tools/export/models/ from models.py.

    python export_all.py [FOLDER]

Every model is exported twice, for training and for evaluation. The archives hold no weights (`memopt-run
--init=random` supplies them) but for the MLP's, which shows that weights travel; so all of them together are small
enough to ship.
"""

from __future__ import annotations

import pathlib
import sys

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import memopt_export
from models import ByteGPT, ResNet18, mlp


def next_byte_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def export_byte_gpt(folder: pathlib.Path) -> None:
    """By hand, for in training nobody reads the logits: returning them would keep a mebibyte to the step's end."""
    batch = {"tokens": torch.zeros(8, 128, dtype=torch.long), "targets": torch.zeros(8, 128, dtype=torch.long)}
    model = ByteGPT()
    for training in (True, False):
        step = memopt_export.TrainingStep(model, next_byte_loss, ["targets"], return_prediction=not training)
        program = memopt_export.export_program(step, batch, training)
        memopt_export.save(program, folder / f"bytegpt.{'train' if training else 'eval'}.pt2", weights=False,
                           training=training)


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "models"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    images = {"image": torch.zeros(64, 1, 28, 28), "label": torch.zeros(64, dtype=torch.long)}
    memopt_export.export(mlp(), F.cross_entropy, images, folder / "mlp", ["label"])
    memopt_export.export(ResNet18(), F.cross_entropy, images, folder / "resnet18", ["label"], weights=False)
    export_byte_gpt(folder)
    for path in sorted(folder.glob("*.pt2")):
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
