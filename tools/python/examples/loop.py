# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A plain loop: a DataLoader with augmentation, a schedule, validation.

    python loop.py [EPOCHS]

The images are made up, stripes across or along, so that nothing has to be fetched.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import memopt

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 4


class Stripes(Dataset):
    """Noise with stripes; training images are flipped at random."""

    def __init__(self, count: int, augmented: bool):
        self.count, self.augmented = count, augmented

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        label = index % 2
        stripes = (torch.arange(16) // 2 % 2).float().expand(16, 16)
        image = (stripes.T if label else stripes) + 0.5 * torch.randn(16, 16, generator=generator)
        if self.augmented and torch.rand(()) < 0.5:
            image = image.flip(0, 1)
        return image.unsqueeze(0), label


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Flatten(), nn.Dropout(0.1), nn.Linear(8 * 8 * 8, 2))
train = DataLoader(Stripes(256, augmented=True), batch_size=32, shuffle=True, drop_last=True, num_workers=2)
test = DataLoader(Stripes(64, augmented=False), batch_size=32, drop_last=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(train))

step = memopt.compile(model, F.cross_entropy, next(iter(train)), optimizer=optimizer)
for epoch in range(EPOCHS):
    for batch in train:
        loss = step(batch)
        scheduler.step()
    validation = sum(map(step.evaluate, test)) / len(test)
    print(f"epoch {epoch + 1}: loss {loss:.4f}, validation {validation:.4f}, rate {scheduler.get_last_lr()[0]:.2e}")

step.sync()
model.eval()
right = sum((model(image).argmax(1) == label).sum().item() for image, label in test)
print(f"{right} of {len(test) * 32} right, in {step.plan.peak_bytes['device']} bytes")
