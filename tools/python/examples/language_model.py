# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model of transformers with its collator: it gets batches by name and computes its own loss.

    python language_model.py [STEPS]

A small GPT-2 without weights, and a text of bytes, so that nothing has to be fetched.
"""

import itertools
import sys

import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, default_data_collator, get_linear_schedule_with_warmup

import memopt

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40

torch.manual_seed(0)
text = b"the quick brown fox jumps over the lazy dog. " * 200
windows = [torch.tensor(list(text[begin:begin + 32])) for begin in range(0, len(text) - 32, 7)]
data = [{"input_ids": tokens, "labels": tokens} for tokens in windows]
loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True, collate_fn=default_data_collator)

model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=48, n_layer=2, n_head=4, bos_token_id=0,
                                   eos_token_id=0))
norms = [p for name, p in model.named_parameters() if p.dim() < 2]
others = [p for name, p in model.named_parameters() if p.dim() >= 2]
optimizer = torch.optim.AdamW([{"params": others}, {"params": norms, "weight_decay": 0.0}], lr=2e-3)
scheduler = get_linear_schedule_with_warmup(optimizer, STEPS // 10, STEPS)

step = memopt.compile(model, None, next(iter(loader)), optimizer=optimizer, max_grad_norm=1.0)
for number, batch in enumerate(itertools.islice(itertools.cycle(loader), STEPS)):
    loss = step(batch)
    scheduler.step()
    if number % 10 == 0:
        print(f"step {number}: loss {loss:.4f}")

step.sync()
model.eval()
batch = next(iter(loader))
print(f"loss {loss:.4f}; in evaluation {step.evaluate(batch):.5f}, PyTorch's {model(**batch).loss.item():.5f}")
