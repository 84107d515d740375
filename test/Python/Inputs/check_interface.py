# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_interface.py FOLDER [CASE...]: what goes in and comes out of a step, and who may use it."""

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
import threading

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import memopt
from training import FOLDER, assert_near, compile_step, make_batch, make_model, refuses, run_cases

BATCH = {"x": torch.randn(8, 16), "y": torch.randint(4, (8,))}


@dataclasses.dataclass
class Output:
    scores: torch.Tensor
    total: torch.Tensor


class Model(nn.Module):
    def __init__(self, give):
        super().__init__()
        self.lin, self.give = nn.Linear(16, 4), give

    def forward(self, x, y):
        scores = self.lin(x)
        return self.give(scores, F.cross_entropy(scores, y))


def outputs():
    """The loss is found where models have it, and the prediction beside it."""
    for give in (lambda s, l: (l, s), lambda s, l: (s, l), lambda s, l: {"logits": s, "loss": l}, lambda s, l: {"a": s, "b": l},
                 Output, lambda s, l: [s, {"of": l}]):
        model = Model(give)
        step = memopt.compile(model, None, BATCH, optimizer=torch.optim.SGD(model.parameters(), 0.0))
        scores = model.lin(BATCH["x"])
        assert_near(step(BATCH), F.cross_entropy(scores, BATCH["y"]).item())
        assert torch.allclose(step.predict(BATCH), scores, atol=1e-5)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 4)

    def forward(self, inputs, scale):
        return self.lin(inputs["x"]) * inputs["more"]["weight"][:, None] * inputs["pair"][0] * scale


def batches():
    """Mappings and tuples inside of a batch, and numbers."""
    model = Nested()
    inputs = {"x": torch.randn(8, 16), "more": {"weight": torch.rand(8)}, "pair": (torch.rand(8, 1), torch.rand(8))}
    batch = (inputs, 2.0, {"labels": torch.randint(4, (8,))})
    loss = lambda scores, target: F.cross_entropy(scores, target["labels"])
    step = memopt.compile(model, loss, batch, optimizer=torch.optim.SGD(model.parameters(), 0.0))
    assert_near(step(batch), loss(model(*batch[:2]), batch[2]).item())
    assert torch.allclose(step.predict(batch[:2]), model(*batch[:2]), atol=1e-5)


def sizes():
    """batch_size compiles for other batches than the example."""
    model = make_model()
    step = compile_step(model, torch.optim.SGD(model.parameters(), 0.0), batch_size=16)
    double = tuple(torch.cat([part, part]) for part in make_batch(0))
    assert step.batch_size == 16 and step.predict(double[:2]).shape == (16, 10)
    step(double)
    assert_near(step.evaluate(double), F.cross_entropy(step.predict(double[:2]), double[2]).item())
    largest = compile_step(model, torch.optim.SGD(model.parameters(), 0.0), batch_size="max", device_memory="1MiB")
    assert largest.batch_size > 16 and largest.plan.peak_bytes["device"] <= 1 << 20


class Draws(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 1)

    def forward(self, x, y):
        return -torch.distributions.Bernoulli(logits=self.lin(x)).log_prob(y).mean()


def checks():
    """What torch.distributions asserts of its arguments is asserted in the step, with any number of micro-batches."""
    model = Draws()
    batch = {"x": torch.randn(8, 16), "y": torch.randint(2, (8, 1)).float()}
    for parts in (1, 2):
        step = memopt.compile(model, None, batch, optimizer=torch.optim.SGD(model.parameters(), 0.1), micro_batches=parts)
        assert_near(step(batch), model(**batch).item())
        before = step.state_dict()["model"]["lin.weight"]
        refuses(memopt.LossNotFinite, ["check_interface.py:", "within the support"], step, {**batch, "y": batch["y"] * 0.5})
        assert torch.equal(before, step.state_dict()["model"]["lin.weight"]) and step.steps == 1


def names():
    """What memopt-run saves goes into the model that was exported; the archive has lines of the source, no folders."""
    model = make_model()
    batch = dict(zip(("image", "word", "label"), make_batch(0)))
    train, _ = memopt.export.export(model, F.cross_entropy, batch, FOLDER / "mine", ["label"])
    save_file({f"step0.{name}": value for name, value in batch.items()}, FOLDER / "data.safetensors")
    subprocess.run(["memopt-run", train, "--steps=1", "--lr=0", f"--save={FOLDER}/run", f"--data={FOLDER}/data.safetensors",
                    "--quiet"], check=True, stdout=subprocess.DEVNULL)
    saved = load_file(FOLDER / "run/model.safetensors")
    model.load_state_dict(saved)
    assert torch.equal(saved["conv.weight"], model.conv.weight)
    content = train.read_bytes()
    assert b"Inputs/training.py:" in content and str(FOLDER).encode() not in content


def threads():
    """Another thread trains in PyTorch while one exports."""
    seen, stop = [], threading.Event()

    def train():
        model = make_model(1)
        try:
            while not stop.is_set():
                image, word, label = make_batch(0)
                F.cross_entropy(model(image, word), label).backward()
        except BaseException as error:
            seen.append(error)
    thread = threading.Thread(target=train)
    thread.start()
    model = make_model()
    step = memopt.export.TrainingStep(model, F.cross_entropy, ["label"])
    batch = dict(zip(("image", "word", "label"), make_batch(0)))
    for _ in range(2):
        memopt.export.export_program(step, batch, training=True)
    stop.set()
    thread.join()
    assert not seen, seen


def lives():
    """Steps and sessions say what they are, and that they are neither copied nor pickled."""
    model = make_model()
    step = compile_step(model, torch.optim.SGD(model.parameters(), 0.1))
    session = memopt.Session(step.package)
    assert "after 0 steps" in repr(session) and str(step.package) in repr(session)
    for held in (step, session):
        for function in (copy.deepcopy, copy.copy, pickle.dumps):
            refuses(memopt.BadInput, ["neither copied nor pickled"], function, held)
        held.close()
        assert "closed" in repr(held)
    elsewhere = "import os, memopt\ndel os.RTLD_DEEPBIND\ntry: memopt.Session('none')\nexcept memopt.Unavailable as error: print(error)"
    said = subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, text=True, check=True).stdout
    assert "GNU C library" in said, said
    program = "import sys; from memopt import *; import json; print(json.dumps(['torch' in sys.modules, 'compile' in globals()]))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == [False, False] and memopt.__version__


run_cases([outputs, batches, sizes, checks, names, threads, lives])
