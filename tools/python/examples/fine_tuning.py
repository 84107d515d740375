# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fine-tuning in vision: a frozen backbone in evaluation mode, a new head, a budget.

    python fine_tuning.py [STEPS]

The backbone has no weights and the images are made up, so that nothing has to be fetched.
"""

import sys

import torch
import torch.nn.functional as F
import torchvision

import memopt

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 10

torch.manual_seed(0)
model = torchvision.models.resnet18(weights=None)
model.fc = torch.nn.Linear(model.fc.in_features, 4)
for parameter in model.parameters():
    parameter.requires_grad_(False)
model.eval()                     # the backbone's batch norms keep their statistics ...
model.training = True            # ... and the model as a whole is trained
for module in (model.layer4, model.fc):
    module.train()
    module.requires_grad_(True)
trained = [{"params": model.layer4.parameters(), "lr": 1e-3}, {"params": model.fc.parameters(), "lr": 1e-2}]
optimizer = torch.optim.SGD(trained, momentum=0.9)


def make_batch(seed):
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(4, (8,), generator=generator)
    image = torch.randn(8, 3, 64, 64, generator=generator) + label.view(-1, 1, 1, 1)
    return image, label


try:
    memopt.compile(model, F.cross_entropy, make_batch(0), optimizer=optimizer, device_memory="1MiB")
except memopt.DoesNotFit as error:
    budget = error.smallest_budget
    print(f"1 MiB is not enough, {budget} bytes are; most of all {error.largest[0][1]}")

before = {name: value.clone() for name, value in model.state_dict().items()}
step = memopt.compile(model, F.cross_entropy, make_batch(0), optimizer=optimizer, device_memory=budget)
losses = [step(make_batch(seed % 4)) for seed in range(STEPS)]
step.sync()
changed = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}; changed: {', '.join(sorted(changed))}")
