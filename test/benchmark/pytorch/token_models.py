#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Heads of large vocabularies, long sequences and frozen weights, beside eager PyTorch and torch.compile: bytes, seconds, compile seconds.

    token_models.py [gpt2] [vocabulary] [block] [lstm] [gru] [adapter] [--rounds 5] [--threads 1] [--budget 0.6] [--bf16] [--json FILE]

gpt2: GPT-2 124M on 2 x 512 tokens. vocabulary: a small body under a head of 131,072 words, 512 tokens. Of both, PyTorch also takes
`F.linear_cross_entropy` in chunks and inductor's chunker, and memopt keeps its logits whole (`tile="off"`). block: one layer of a Llama
of width 1,024 on 2,048 tokens. lstm, gru: recurrent layers of 256 steps. adapter: LoRA of rank 8 on a Llama of 4 layers, whose frozen
weights memopt also keeps in bf16, 8 and 4 bits; `loss` is then a distance of models that differ. The columns, and what fails, are those
of many_programs.py.
"""
from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

import many_programs
from many_programs import Eager, Memopt, Training, compile_with_torch

NARROW_TOLERANCE = 0.1  # of losses of a model whose frozen weights are rounded


def tokens_and_targets(words, rows, length):
    return {"tokens": torch.randint(words, (rows, length)), "targets": torch.randint(words, (rows, length))}


def train(model, make_batch, variants=(), rate=1e-4, count=2):
    """AdamW on batches of one shape."""
    torch.manual_seed(1)
    parts = lambda own: {"step": (own, torch.optim.AdamW([p for p in own.parameters() if p.requires_grad], rate))}
    return Training(model, parts, [("step", make_batch()) for _ in range(count)], None, variants)


# ------------------------------------------------------------- heads


class Head(nn.Module):
    """The head of a language model and its loss; `chunks` are options of F.linear_cross_entropy."""

    chunks = None

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x, targets):
        if self.chunks is None:
            return F.cross_entropy(F.linear(x, self.weight).flatten(0, 1), targets.flatten())
        return F.linear_cross_entropy(x.flatten(0, 1), self.weight, targets.flatten(), options=self.chunks)


def take_chunks(model):
    model.head.chunks = nn.LinearCrossEntropyOptions()


HEADS = [lambda training, options: Eager("eager, F.linear_cross_entropy in chunks", training, False, take_chunks),
         lambda training, options: compile_with_torch(training, "torch.compile, chunker", {"auto_chunker.enable": True}),
         lambda training, options: Memopt("memopt, whole logits", training, options, tile="off")]


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        import transformers
        config = transformers.GPT2Config(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, use_cache=False, attn_implementation="sdpa")
        self.body = transformers.GPT2Model(config)
        self.head = Head(self.body.wte.weight)

    def forward(self, tokens, targets):
        return self.head(self.body(input_ids=tokens, use_cache=False).last_hidden_state, targets)


def gpt2():
    return train(Gpt2(), lambda: tokens_and_targets(50257, 2, 512), HEADS)


class SmallBody(nn.Module):
    def __init__(self, words, width=256, layers=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(many_programs.Block(width, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), Head(nn.Parameter(torch.randn(words, width) * 0.02))

    def forward(self, tokens, targets):
        return self.head(self.norm(self.blocks(self.words(tokens))), targets)


def vocabulary(words=131072):
    return train(SmallBody(words), lambda: tokens_and_targets(words, 2, 256), HEADS)


# ------------------------------------------------------------- long sequences


def make_llama(layers, width, words, length):
    import transformers
    config = transformers.LlamaConfig(vocab_size=words, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers,
                                      num_attention_heads=width // 64, num_key_value_heads=width // 128, max_position_embeddings=length,
                                      use_cache=False, attn_implementation="sdpa")
    return transformers.LlamaModel(config)


class Llama(nn.Module):
    def __init__(self, layers, width, words, length):
        super().__init__()
        self.body = make_llama(layers, width, words, length)
        self.head = Head(nn.Parameter(torch.randn(words, width) * 0.02))

    def forward(self, tokens, targets):
        return self.head(self.body(input_ids=tokens, use_cache=False).last_hidden_state, targets)


def block(words=4096, length=2048):
    return train(Llama(1, 1024, words, length), lambda: tokens_and_targets(words, 1, length))


class Recurrent(nn.Module):
    def __init__(self, layer, inputs, width, classes):
        super().__init__()
        self.layer, self.out = layer(inputs, width, batch_first=True), nn.Linear(width, classes)

    def forward(self, x, label):
        return F.cross_entropy(self.out(self.layer(x)[0][:, -1]), label)


def recurrent(layer, inputs=128, width=256, rows=32, steps=256):
    return train(Recurrent(layer, inputs, width, 10),
                 lambda: {"x": torch.randn(rows, steps, inputs), "label": torch.randint(10, (rows,))}, rate=1e-3)


# ------------------------------------------------------------- frozen weights


def adapter(words=2048, length=128):
    import peft
    model = Llama(4, 512, words, length)
    model.requires_grad_(False)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model.body = peft.get_peft_model(model.body, peft.LoraConfig(r=8, lora_alpha=16, target_modules=targets))
    narrow = [functools.partial(lambda kind, training, options: Memopt(f"memopt, {kind} base", training, options, frozen_weights=kind,
                                                                       tolerance=NARROW_TOLERANCE), kind)
              for kind in ("bf16", "int8", "nf4")]
    return train(model, lambda: tokens_and_targets(words, 4, length), narrow, rate=1e-3)


TRAININGS = {"gpt2": gpt2, "vocabulary": vocabulary, "block": block, "lstm": functools.partial(recurrent, nn.LSTM),
             "gru": functools.partial(recurrent, nn.GRU), "adapter": adapter}

if __name__ == "__main__":
    many_programs.main(TRAININGS, __doc__)
