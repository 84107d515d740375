# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The models of the shipped examples, written for this project.

Each is an ordinary `torch.nn.Module` that returns predictions; nothing in them knows of memopt. `export_all.py`
puts their losses behind them, `train_in_pytorch.py` trains the ResNet with PyTorch alone for comparison.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def mlp(width: int = 32) -> nn.Module:
    """The smallest model that has something to learn: 28 x 28 images, 10 classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, width), nn.ReLU(), nn.Linear(width, 10))


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut (He et al., Deep Residual Learning, figure 5 left)."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 (basic blocks 2-2-2-2), narrowed to 28 x 28 images of one channel: a stem of stride 2 and no pool."""

    def __init__(self, widths=(16, 32, 64, 128), classes: int = 10):
        super().__init__()
        self.stem = nn.Conv2d(1, widths[0], 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        stages, inputs = [], widths[0]
        for index, width in enumerate(widths):
            stages.append(nn.Sequential(BasicBlock(inputs, width, 2 if index else 1), BasicBlock(width, width, 1)))
            inputs = width
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.pool(x), 1))


class Attention(nn.Module):
    """Causal self-attention with all heads' projections in one matrix."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class GPTBlock(nn.Module):
    """Attention and a feed-forward layer, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.contract(F.gelu(self.expand(self.norm2(x)), approximate="tanh"))


class ByteGPT(nn.Module):
    """A GPT over bytes (Radford et al., 2019, with 256 tokens); the output matrix is the embedding's."""

    def __init__(self, layers: int = 4, width: int = 128, heads: int = 4, length: int = 128, tokens: int = 256):
        super().__init__()
        self.token = nn.Embedding(tokens, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(GPTBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.apply(self._initialize)
        nn.init.normal_(self.position, std=0.02)

    @staticmethod
    def _initialize(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens):
        x = self.token(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)
