# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several processes train together, on one host or on several.

    torchrun --nproc-per-node=2 ranks.py
    torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 ranks.py      on each of two hosts
    mpirun -n 4 --host a:2,b:2 python ranks.py

The numbers are made up, so that nothing has to be fetched. Each process takes samples of its own; the loss is that of all.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import memopt
from memopt.runtime import find_rank

rank, ranks = find_rank()
torch.manual_seed(0)  # the same first weights, and samples, everywhere
rows = torch.randn(1024, 32)
data = TensorDataset(rows, (rows @ torch.randn(32, 4)).argmax(1))
model = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
sampler = DistributedSampler(data, num_replicas=ranks, rank=rank, drop_last=True)
loader = DataLoader(data, batch_size=64 // ranks, sampler=sampler, drop_last=True)

step = memopt.compile(model, F.cross_entropy, next(iter(loader)), optimizer=optimizer, **({"zero_stage": 3} if ranks > 1 else {}))
for epoch in range(4):
    sampler.set_epoch(epoch)
    for batch in loader:
        loss = step(batch)
    if rank == 0:
        print(f"epoch {epoch + 1}: loss {loss:.4f}")

step.sync()  # all ranks: each has the whole model
with torch.no_grad():
    right = (model(rows).argmax(1) == data.tensors[1]).sum().item()
if rank == 0:
    print(f"{right} of {len(rows)} right on {ranks} ranks, {step.plan.peak_bytes['device']} bytes each")
