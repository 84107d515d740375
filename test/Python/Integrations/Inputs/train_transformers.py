# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""train_transformers.py FOLDER transformers|memopt, started by torchrun: one Trainer's training on ranks, its log as JSON."""

import json
import os
import sys

import torch
import transformers

from check_transformers import FOLDER, Trainer, make_arguments, make_data, make_model

kind = sys.argv[2]
arguments = make_arguments(kind, max_steps=12, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=6)
options = {"memopt_options": {"zero_stage": 1}} if kind == "memopt" else {}
trainer = (Trainer if kind == "memopt" else transformers.Trainer)(
    model=make_model(), args=arguments, train_dataset=make_data(60), eval_dataset=make_data(12, 3), **options)
trainer.train()
if int(os.environ["RANK"]) == 0:
    weights = [value.double().sum().item() for value in trainer.model.state_dict().values()]
    (FOLDER / f"{kind}.json").write_text(json.dumps({"log": trainer.state.log_history[:-1], "weights": weights}))
# PyTorch's own threads of the group may outlive the interpreter otherwise.
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
