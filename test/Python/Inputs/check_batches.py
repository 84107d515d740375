# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_batches.py FOLDER [CASE...]: what a step takes, and what evaluation makes of it."""

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import assert_near, compile_step, get_bits, make_batch, make_model, refuses, run_cases


def accumulation():
    """A step takes as many batches as it accumulates, and cuts them into micro-batches."""
    class Plain(nn.Linear):
        pass

    def make():
        torch.manual_seed(3)
        return Plain(6, 4)

    def make_rows(seed, count):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(count, 6, generator=generator), torch.randint(4, (count,), generator=generator)

    results = []
    for options, cut in (({}, [16]), ({"micro_batches": 4}, [16]), ({"accumulative_counts": 2}, [8, 8])):
        model = make()
        rows = make_rows(0, 16)
        batches = list(zip(*(value.split(cut) for value in rows)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = memopt.compile(model, F.cross_entropy, batches[0], optimizer=optimizer, **options)
        results.append([step(*batches) for _ in range(3)])
    for losses in results[1:]:
        for left, right in zip(losses, results[0]):
            assert_near(left, right)
    refuses(memopt.BadInput, ["takes 2 batches, not 1"], step, batches[0])


def names_of_batches():
    """Mappings are taken by name, in any order; what is missing is named."""
    model = make_model()
    names = ("image", "word", "label")
    step = memopt.compile(model, F.cross_entropy, dict(zip(names, make_batch(0))), targets=["label"],
                          optimizer=torch.optim.SGD(model.parameters(), lr=0.1), activation_checkpointing=["inner"])
    image, word, label = make_batch(1)
    image.requires_grad_(True)
    step({"label": label.numpy(), "word": word.int(), "image": image.to(memory_format=torch.channels_last)})
    refuses(memopt.BadInput, ["the batch has image, word, expected image, word, label"], step, {"image": image, "word": word})
    refuses(memopt.BadInput, ["input 'image': is f32[4, 1, 8, 8], expected f32[8, 1, 8, 8]"], step, (image[:4], word, label))
    refuses(memopt.BadInput, ["targets has to name"], memopt.compile, model, F.cross_entropy, {"image": image},
            optimizer=step.optimizer)


def evaluation():
    """Evaluation has PyTorch's numbers and changes nothing; predictions need no targets."""
    model = make_model()
    step = compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for seed in range(3):
        step(make_batch(seed))
        step.evaluate(make_batch(seed))
    before = get_bits(step.state_dict())
    batch = make_batch(7)
    losses, prediction = {step.evaluate(batch), step.evaluate(list(batch))}, step.predict(batch[:-1])
    assert get_bits(step.state_dict()) == before and len(losses) == 1 and torch.equal(prediction, step.predict(batch))
    step.sync()
    model.eval()
    torch.testing.assert_close(prediction, model(*batch[:-1]))
    assert_near(losses.pop(), F.cross_entropy(model(*batch[:-1]), batch[-1]).item())


run_cases([accumulation, names_of_batches, evaluation])
