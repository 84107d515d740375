# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_state.py FOLDER [CASE...]: parameters and state of optimizers go into memopt, and back into PyTorch."""

import json
import subprocess

import torch
from safetensors.torch import load_file, save_file

import memopt
from training import FOLDER, assert_near, compile_step, get_bits, make_batch, make_model, refuses, run_cases, step_in_pytorch


def bits_of_memopt_run():
    """Losses, parameters and optimizer state are those of memopt-run, to the bit."""
    step = compile_step(model := make_model(), torch.optim.Adam(model.parameters(), lr=0.01))
    step.save(FOLDER / "first")
    batches = [make_batch(seed) for seed in range(6)]
    save_file({f"step{i}.{name}": value for i, batch in enumerate(batches)
               for name, value in zip(("input0", "input1", "target"), batch)}, FOLDER / "batches.safetensors")
    subprocess.run(["memopt-run", step.package, f"--load={FOLDER}/first", f"--data={FOLDER}/batches.safetensors", "--lr=0.01",
                    "--steps=6", "--quiet", f"--save={FOLDER}/run", f"--report={FOLDER}/run.json"],
                   check=True, stdout=subprocess.DEVNULL)
    alone = ["memopt-run", step.package, f"--data={FOLDER}/batches.safetensors", "--steps=1"]
    refused = subprocess.run([*alone, f"--weights={FOLDER}/first/model.safetensors"], capture_output=True, text=True)
    assert refused.returncode == 1 and "the learning rate: the program that compiled the package sets it" in refused.stderr, refused.stderr
    measured = subprocess.run([*alone, "--init=random", f"--report={FOLDER}/measured.json"], capture_output=True, text=True)
    assert measured.returncode == 0 and "this run from random weights takes the rate 0.001" in measured.stderr, measured.stderr
    assert [step(batch) for batch in batches] == json.loads((FOLDER / "run.json").read_text())["losses"]
    step.save(FOLDER / "last")
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (FOLDER / "last" / name).read_bytes() == (FOLDER / "run" / name).read_bytes(), name
    step.sync()
    saved = load_file(FOLDER / "run/model.safetensors")
    assert all(torch.equal(value, saved[f"net.{name}"]) for name, value in model.state_dict().items())


def round_trips():
    """Every optimizer begins in PyTorch, goes on in memopt, and again in PyTorch, with the losses of PyTorch alone."""
    kinds = {"SGD": [{}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, {"momentum": 0.9, "dampening": 0.5}],
             "Adam": [{"amsgrad": True, "weight_decay": 0.01}, {"maximize": True}], "AdamW": [{}], "RMSprop": [{"momentum": 0.5, "centered": True}],
             "Adagrad": [{"lr_decay": 0.1, "initial_accumulator_value": 0.1}], "Adadelta": [{}], "Adamax": [{}],
             "NAdam": [{"decoupled_weight_decay": True, "weight_decay": 0.01}], "RAdam": [{}], "ASGD": [{"t0": 3, "lambd": 0.01}],
             "Adafactor": [{}], "Rprop": [{}]}
    for name, variants in kinds.items():
        for options in variants:
            models = make_model(), make_model()
            ours, theirs = (getattr(torch.optim, name)(model.parameters(), lr=0.01, **options) for model in models)
            losses = [[step_in_pytorch(model, optimizer, make_batch(seed)) for seed in range(3)]
                      for model, optimizer in zip(models, (ours, theirs))]
            assert losses[0] == losses[1], "PyTorch repeats itself"
            step = compile_step(models[0], ours)
            for seed in range(3, 6):
                assert_near(step(make_batch(seed)), step_in_pytorch(models[1], theirs, make_batch(seed)))
            step.sync()
            step.close()
            for seed in range(6, 9):
                assert_near(*(step_in_pytorch(model, optimizer, make_batch(seed))
                              for model, optimizer in zip(models, (ours, theirs))))
            assert [sorted(entry) for entry in ours.state.values()] == [sorted(entry) for entry in theirs.state.values()], name
            for key in models[0].state_dict():
                torch.testing.assert_close(models[0].state_dict()[key], models[1].state_dict()[key], rtol=1e-3, atol=1e-4)


def states():
    """A state dict holds everything: a second step goes on with the bits of the first, and PyTorch takes its parts."""
    first = compile_step(model := make_model(), torch.optim.Adam(model.parameters(), lr=0.01))
    for seed in range(3):
        first(make_batch(seed))
    state = first.state_dict()
    assert get_bits(model.state_dict()) == get_bits(make_model().state_dict()), "the model is as it was"
    other = make_model(1)
    second = compile_step(other, torch.optim.Adam(other.parameters(), lr=0.01))
    second.load_state_dict(state)
    assert get_bits(second.state_dict()) == get_bits(state)
    assert [first(make_batch(seed)) for seed in (3, 4)] == [second(make_batch(seed)) for seed in (3, 4)]
    third = make_model(2)
    optimizer = torch.optim.Adam(third.parameters(), lr=0.01)
    third.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first.load_state_dict(state)
    assert_near(step_in_pytorch(third, optimizer, make_batch(3)), first(make_batch(3)))
    del state["model"]["conv.weight"]
    refuses(memopt.BadInput, ["no 'conv.weight'"], first.load_state_dict, state)


def states_without_counts():
    """SGD's state counts no steps; the state dict of a step does."""
    for options in ({}, {"momentum": 0.9}):
        first, second = (compile_step(model := make_model(), torch.optim.SGD(model.parameters(), lr=0.01, **options)) for _ in range(2))
        for seed in range(3):
            first(make_batch(seed))
        second.load_state_dict(first.state_dict())
        assert second.steps == 3, (options, second.steps)
        assert first(make_batch(3)) == second(make_batch(3))
        assert get_bits(second.state_dict()) == get_bits(first.state_dict())


def narrow_state():
    """State in 16 bits goes back into PyTorch, state in 8 bits has no place there."""
    for bits in (16, 8):
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        step = compile_step(model, optimizer, optim_bits=bits, **({"min_8bit_size": 1} if bits == 8 else {}))
        losses = [step(make_batch(seed)) for seed in range(3)]
        if bits == 8:
            refuses(memopt.BadInput, ["a form that torch.optim does not have"], step.sync)
            step.sync(optimizer=False)
        else:
            step.sync()
            assert {entry["exp_avg"].dtype for entry in optimizer.state.values()} == {torch.float32}
        found = step(make_batch(3))
        assert_near(step_in_pytorch(model, optimizer, make_batch(3)), found, 1e-3)


run_cases([bits_of_memopt_run, round_trips, states, states_without_counts, narrow_state])
