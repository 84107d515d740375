# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains the example ResNet with PyTorch and the settings of tools/quickstart.sh, for comparison.

    python train_in_pytorch.py [--epochs=5] [--lr=0.05] [--batch=64] [--threads=2] [--data=FOLDER]
"""

from __future__ import annotations

import argparse
import gzip
import math
import pathlib
import struct
import time

import torch
import torch.nn.functional as F

from models import ResNet18


def read_idx(path: pathlib.Path) -> torch.Tensor:
    """The IDX format of the MNIST family: two zeros, element type, rank, big-endian sizes, bytes."""
    content = gzip.open(path).read()
    rank = content[3]
    shape = struct.unpack(f">{rank}I", content[4 : 4 + 4 * rank])
    return torch.frombuffer(bytearray(content[4 + 4 * rank :]), dtype=torch.uint8).view(shape)


def read_split(folder: pathlib.Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as memopt-run gives them without options, bytes / 255, and labels."""
    images = read_idx(folder / f"{name}-images-idx3-ubyte.gz").float().div(255).unsqueeze(1)
    return images, read_idx(folder / f"{name}-labels-idx1-ubyte.gz").long()


def evaluate(model, images, labels) -> float:
    model.eval()
    with torch.no_grad():
        right = sum((model(i).argmax(1) == l).sum().item() for i, l in zip(images.split(500), labels.split(500)))
    model.train()
    return right / len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-steps", type=int, default=0)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    images, labels = read_split(options.data, "train")
    test = read_split(options.data, "t10k")
    model = ResNet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4)
    per_epoch = len(labels) // options.batch
    last, step, seconds = per_epoch * options.epochs, 0, 0.0
    for epoch in range(options.epochs):
        begin, total = time.perf_counter(), 0.0
        for chosen in torch.randperm(len(labels))[: per_epoch * options.batch].split(options.batch):
            for group in optimizer.param_groups:
                group["lr"] = options.lr * (1 + math.cos(math.pi * step / last)) / 2
            loss = F.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
            if options.max_steps and step == options.max_steps:
                print(f"{step} steps: {(time.perf_counter() - begin) / step * 1e3:.2f} ms a step")
                return
        seconds += time.perf_counter() - begin
        print(f"epoch {epoch + 1}: loss {total / per_epoch:.4f}, test accuracy {evaluate(model, *test):.4f}, "
              f"{seconds:.0f} s of training", flush=True)


if __name__ == "__main__":
    main()
