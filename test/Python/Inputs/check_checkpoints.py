# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_checkpoints.py FOLDER [CASE...]: checkpoints as the state of a PyTorch optimizer, and the other way round."""

import fcntl
import json
import resource
import signal
import subprocess

import torch
from safetensors.torch import load_file, save_file

import memopt
from memopt.tools import find_tool
from training import (FOLDER, assert_near, compile_step, get_bits, make_batch, make_model, refuses, run_cases,
                      step_in_pytorch)

KINDS = [("SGD", {}), ("SGD", {"momentum": 0.9, "weight_decay": 0.01}), ("Adam", {"amsgrad": True}), ("AdamW", {}),
         ("RMSprop", {"momentum": 0.5, "centered": True}), ("Adagrad", {"initial_accumulator_value": 0.1}), ("Adadelta", {}),
         ("Adamax", {}), ("NAdam", {}), ("RAdam", {}), ("ASGD", {"t0": 2, "lambd": 0.01}), ("Adafactor", {})]


def make(name, options, seed=0):
    model = make_model(seed)
    return model, getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)


def get_state_bits(optimizer):
    """Of a state dict's optimizer: what parameters have that have made a step."""
    return {(index, key): value.double().numpy().tobytes() for index, entry in optimizer["state"].items() for key, value in entry.items()
            if value is not None and entry.get("step", 1)}


def every_optimizer():
    """From PyTorch to memopt with the same bits of state; back again, PyTorch has its own next losses."""
    for number, (name, options) in enumerate(KINDS):
        model, optimizer = make(name, options)
        for seed in range(3):
            step_in_pytorch(model, optimizer, make_batch(seed))
        there, back = FOLDER / f"there{number}", FOLDER / f"back{number}"
        memopt.write_checkpoint(there, model, optimizer)
        step = compile_step(*make(name, options, seed=1))
        step.load(there)
        assert get_bits(step.state_dict()["model"]) == get_bits(model.state_dict()), name
        assert get_state_bits(step.state_dict()["optimizer"]) == get_state_bits(optimizer.state_dict()), name
        for seed in range(3, 6):
            assert_near(step(make_batch(seed)), step_in_pytorch(model, optimizer, make_batch(seed)))
        step.save(back)
        other, other_optimizer = make(name, options, seed=2)
        state = memopt.read_checkpoint(back, other, other_optimizer)
        ours = step.state_dict()
        assert get_bits(state["model"]) == get_bits(ours["model"]) and state["step"] == ours["step"], name
        assert get_state_bits(state["optimizer"]) == get_state_bits(ours["optimizer"]), name
        other.load_state_dict(state["model"])
        other_optimizer.load_state_dict(state["optimizer"])
        step.close()
        for seed in range(6, 9):
            assert_near(step_in_pytorch(other, other_optimizer, make_batch(seed)),
                        step_in_pytorch(model, optimizer, make_batch(seed)))


def runs_go_on():
    """memopt-run goes on from what PyTorch has written, and writes what PyTorch reads, by either kind of names."""
    model, optimizer = make("AdamW", {})
    for seed in range(2):
        step_in_pytorch(model, optimizer, make_batch(seed))
    memopt.write_checkpoint(FOLDER / "begun", model, optimizer)
    step = compile_step(*make("AdamW", {}))
    batches = [make_batch(seed) for seed in range(2, 5)]
    save_file({f"step{i}.{name}": value for i, batch in enumerate(batches)
               for name, value in zip(("input0", "input1", "target"), batch)}, FOLDER / "batches.safetensors")
    losses = [step_in_pytorch(model, optimizer, batch) for batch in batches]
    for names in ("step", "model"):
        subprocess.run(["memopt-run", step.package, f"--load={FOLDER}/begun", f"--data={FOLDER}/batches.safetensors", "--quiet",
                        "--steps=3", f"--save={FOLDER}/{names}", f"--names={names}", f"--report={FOLDER}/run.json"],
                       check=True, stdout=subprocess.DEVNULL)
        for ours, theirs in zip(json.loads((FOLDER / "run.json").read_text())["losses"], losses):
            assert_near(ours, theirs)
        other, other_optimizer = make("AdamW", {}, seed=1)
        state = memopt.read_checkpoint(FOLDER / names, other, other_optimizer)
        assert state["step"] == 5 and {int(entry["step"]) for entry in state["optimizer"]["state"].values()} == {5}
        other.load_state_dict(state["model"])
        other_optimizer.load_state_dict(state["optimizer"])
        again = copy_of(model, optimizer)
        assert_near(step_in_pytorch(other, other_optimizer, make_batch(9)), step_in_pytorch(*again, make_batch(9)))


def copy_of(model, optimizer):
    other, other_optimizer = make(type(optimizer).__name__, {})
    other.load_state_dict(model.state_dict())
    other_optimizer.load_state_dict(optimizer.state_dict())
    return other, other_optimizer


def refusals():
    """What has no counterpart is refused by name."""
    model, optimizer = make("AdamW", {})
    refuses(memopt.BadInput, ["has made no step"], memopt.write_checkpoint, FOLDER / "none", model, optimizer)
    refuses(memopt.Refused, ["LBFGS has no counterpart"], memopt.write_checkpoint, FOLDER / "none", model,
            torch.optim.LBFGS(model.parameters()))
    step_in_pytorch(model, optimizer, make_batch(0))
    memopt.write_checkpoint(FOLDER / "adamw", model, optimizer)
    refuses(memopt.BadInput, ["has the state of 'adamw', the optimizer given is Adam: 'adam'"], memopt.read_checkpoint,
            FOLDER / "adamw", model, torch.optim.Adam(model.parameters()))
    refuses(memopt.BadInput, ["is no checkpoint of a training: it has no state.json"], memopt.read_checkpoint, FOLDER / "none",
            model, optimizer)
    refuses(memopt.BadInput, ["but the model has no parameter '"], memopt.read_checkpoint, FOLDER / "adamw",
            *make_linear(torch.optim.AdamW))
    step = compile_step(*make("AdamW", {}), optim_bits=8, min_8bit_size=1)
    step(make_batch(0))
    step.save(FOLDER / "coded")
    refuses(memopt.BadInput, ["state in 8 bits (--optim-bits=8) stays in memopt"], memopt.read_checkpoint, FOLDER / "coded",
            *make("AdamW", {}))
    state = load_file(FOLDER / "adamw/optimizer.safetensors")
    save_file({f"x.{name}": value for name, value in state.items()}, FOLDER / "adamw/optimizer.safetensors")
    refuses(memopt.BadInput, ["has 'x.optimizer."], memopt.read_checkpoint, FOLDER / "adamw", *make("AdamW", {}))
    (FOLDER / "adamw/state.json").write_text("[]")
    refuses(memopt.BadInput, ["is no state of a training"], memopt.read_checkpoint, FOLDER / "adamw", *make("AdamW", {}))


def writes_are_whole():
    """A disk without room, or a run that saves to the folder, leaves the checkpoint that is there."""
    folder, (model, optimizer) = FOLDER / "whole", make("AdamW", {})
    step_in_pytorch(model, optimizer, make_batch(0))
    memopt.write_checkpoint(folder, model, optimizer)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(before) == 3
    step_in_pytorch(model, optimizer, make_batch(1))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["model.safetensors"]), limits[1]))  # the optimizer's state takes more
    refuses(memopt.Unavailable, ["the one before is intact", "File too large"], memopt.write_checkpoint, folder, model, optimizer)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refuses(memopt.BadInput, ["another run"], memopt.write_checkpoint, folder, model, optimizer)
    (folder / ".lock").unlink()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (FOLDER / "latest").write_text("whole\n")  # a pointer file
    assert memopt.read_checkpoint(FOLDER / "latest", model, optimizer)["step"] == 1
    memopt.write_checkpoint(folder, model, optimizer)
    assert memopt.read_checkpoint(folder, model, optimizer)["step"] == 2


def saves_are_whole():
    """A file may be cut at any place: a step that saves says so, the checkpoint before stays, and training goes on to the same bits."""
    folder, plain, step = FOLDER / "cut", compile_step(*make("AdamW", {})), compile_step(*make("AdamW", {}))
    step(make_batch(0))
    step.save(folder)
    expected = [plain(make_batch(seed)) for seed in range(2)]
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert step(make_batch(1)) == expected[1]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(len(content) for content in before.values())
    cuts = sorted({0, 1, *range(0, largest, largest // 24 + 1), *(len(content) - 1 for content in before.values())})
    for number, cut in enumerate(cuts):
        resource.setrlimit(resource.RLIMIT_FSIZE, (cut, limits[1]))
        try:
            refuses(memopt.Unavailable, ["File too large"], step.save, folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before, cut
        assert step(make_batch(2 + number)) == plain(make_batch(2 + number)), cut
    step.save(folder)
    assert memopt.read_checkpoint(folder, *make("AdamW", {}))["step"] == 2 + len(cuts)
    assert get_bits(step.state_dict()["model"]) == get_bits(plain.state_dict()["model"])


def make_linear(kind):
    model = torch.nn.Linear(2, 2)
    return model, kind(model.parameters())


def numbers_of_groups():
    """memopt-run goes on with the rates and decays that a loop has set, for each group; so does a step of a run's checkpoint."""
    def make_groups():
        model = make_model()
        matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
        vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
        return model, torch.optim.AdamW([{"params": matrices, "weight_decay": 0.5}, {"params": vectors, "lr": 2e-3, "betas": (0.5, 0.9)}], lr=0.01)
    model, optimizer = make_groups()
    step = compile_step(model, optimizer)
    step.save(FOLDER / "untrained")
    for seed in range(2):
        step(make_batch(seed))
    optimizer.param_groups[1]["lr"] = 5e-3
    step(make_batch(2))
    step.save(FOLDER / "middle")
    names = [tensor["name"] for tensor in json.loads((step.package / "manifest.json").read_text())["inputs"]]
    save_file({f"step{seed}.{name}": value for seed in range(6) for name, value in zip(names, make_batch(seed))}, FOLDER / "batches.safetensors")
    losses = [step(make_batch(seed)) for seed in range(3, 6)]
    for begin, count in (("middle", 2), ("end", 1)):  # what was set stays in the checkpoints of runs
        subprocess.run([find_tool("memopt-run"), step.package, f"--data={FOLDER}/batches.safetensors", f"--load={FOLDER}/{begin}", "--quiet",
                        f"--steps={count}", f"--save={FOLDER}/end", f"--report={FOLDER}/report.json"], check=True, stdout=subprocess.DEVNULL)
        found = json.loads((FOLDER / "report.json").read_text())["losses"]
        assert found == losses[:count], (found, losses)
        losses = losses[count:]
    other = compile_step(*make_groups())
    other.load(FOLDER / "end")
    assert get_bits(other.state_dict()["model"]) == get_bits(step.state_dict()["model"])
    # Those that are set before the first step are part of a checkpoint, too.
    numbers = json.loads((FOLDER / "untrained/state.json").read_text())["numbers"]
    assert numbers["lr.1"] == 2e-3 and numbers["hyperparameter.beta1.1"] == 0.5, numbers


run_cases([every_optimizer, numbers_of_groups, runs_go_on, refusals, writes_are_whole, saves_are_whole])
