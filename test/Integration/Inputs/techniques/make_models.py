#!/usr/bin/env python3
"""make_models.py: writes convolutions.pt2 and transformer.pt2 beside this file, the two models of technique_pairs.py. Needs
PyTorch and tools/python on the path. Both have something for each technique: frozen batch norms behind convolutions and
linear layers, modules to recompute in, matrices large enough for state in 8 bits, samples to accumulate over. Both are
smooth: a maximum or a kink makes a large difference of a small one where rounding turns it over, and how often that happens
depends on the processor."""
import pathlib

import torch
from memopt import export
from torch import nn
from torch.nn import functional

FOLDER = pathlib.Path(__file__).parent


def freeze(norm):
    """Statistics that training would have left, used as they are."""
    size = norm.num_features
    norm.running_mean.copy_(torch.linspace(-0.5, 0.5, size))
    norm.running_var.copy_(torch.linspace(0.5, 1.5, size))
    return norm.eval()


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn = freeze(nn.BatchNorm2d(outputs))

    def forward(self, x):
        return functional.silu(self.bn(self.conv(x)))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Block(3, 12)
        self.body = nn.Sequential(Block(12, 12), Block(12, 12))
        self.head = nn.Linear(12 * 16, 64)
        self.classes = nn.Linear(64, 10)

    def forward(self, image):
        x = self.stem(image)
        x = functional.avg_pool2d(x + self.body(x), 2)
        return self.classes(torch.tanh(self.head(x.flatten(1))))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.norm, self.down = nn.Linear(width, 64), freeze(nn.BatchNorm1d(64)), nn.Linear(64, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.joined(self.first(x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        wide = functional.gelu(self.norm(self.up(self.second(x)).flatten(0, 1)))
        return x + self.down(functional.dropout(wide, 0.25)).view(batch, length, width)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(48, 32), nn.Embedding(12, 32)
        self.layers = nn.Sequential(Layer(32), Layer(32))
        self.head = nn.Linear(32, 48, bias=False)

    def forward(self, tokens):
        return self.head(self.layers(self.tokens(tokens) + self.places.weight))


def write(name, model, loss, batch, targets):
    program = export.export_program(export.TrainingStep(model, loss, targets, return_prediction=False), batch, training=True)
    export.save(program, FOLDER / f"{name}.pt2")


def main():
    torch.manual_seed(5)
    with torch.no_grad():
        convolutions, transformer = Convolutions(), Transformer()
    label = torch.zeros(8, dtype=torch.long)
    write("convolutions", convolutions, functional.cross_entropy, {"image": torch.zeros(8, 3, 8, 8), "label": label}, ["label"])
    tokens, targets = (torch.zeros(8, 12, dtype=torch.long) for _ in range(2))  # one tensor would be one input
    write("transformer", transformer, lambda logits, targets: functional.cross_entropy(logits.flatten(0, 1), targets.flatten()),
          {"tokens": tokens, "targets": targets}, ["targets"])


if __name__ == "__main__":
    main()
