# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_training.py FOLDER [CASE...]: compiled steps in the place of PyTorch's, and back again."""

import copy
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import memopt

FOLDER = pathlib.Path(sys.argv[1])
os.environ["MEMOPT_CACHE"] = str(FOLDER / "cache")


class Net(nn.Module):
    """Convolution, batch norm, and a matrix that is used twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.inner = nn.Linear(144, 16)
        self.table = nn.Embedding(10, 16)
        self.head = nn.Linear(16, 10)
        self.head.weight = self.table.weight
        self.unused = nn.Linear(16, 10)

    def forward(self, image, word):
        x = F.relu(self.norm(self.conv(image))).flatten(1)
        return self.head(torch.tanh(self.inner(x) + self.table(word)))


def make_model(seed=0):
    torch.manual_seed(seed)
    return Net()


def make_batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(8, 1, 8, 8, generator=generator), torch.randint(10, (8,), generator=generator),
            torch.randint(10, (8,), generator=generator))


def step_in_pytorch(model, optimizer, batch):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(*batch[:-1]), batch[-1])
    loss.backward()
    optimizer.step()
    return loss.item()


def compile_step(model, optimizer, **options):
    return memopt.compile(model, F.cross_entropy, make_batch(0), optimizer=optimizer, **options)


def refuses(kind, parts, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except kind as error:
        assert all(part in str(error) for part in parts), str(error)
        return error
    raise AssertionError(f"nothing is refused, expected {parts}")


def assert_near(left, right, tolerance=2e-5):
    assert abs(left - right) <= tolerance * max(1, abs(right)), (left, right)


def get_bits(state):
    """All tensors of a state dict, in order, as bytes."""
    if torch.is_tensor(state):
        return [state.detach().contiguous().numpy().tobytes()]
    if isinstance(state, dict):
        return [bits for key in state for bits in get_bits(state[key])]
    return [bits for entry in state for bits in get_bits(entry)] if isinstance(state, (list, tuple)) else [state]


# ----------------------------------------------------------------------------------------------------------
# Cases
# ----------------------------------------------------------------------------------------------------------

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
             "Adam": [{"amsgrad": True, "weight_decay": 0.01}], "AdamW": [{}], "RMSprop": [{"momentum": 0.5, "centered": True}],
             "Adagrad": [{"lr_decay": 0.1, "initial_accumulator_value": 0.1}], "Adadelta": [{}], "Adamax": [{}],
             "NAdam": [{"decoupled_weight_decay": True, "weight_decay": 0.01}], "RAdam": [{}], "ASGD": [{"t0": 3, "lambd": 0.01}],
             "Adafactor": [{}]}
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


def groups_and_schedules():
    """Groups keep their decay, and follow their own schedule, also when they begin with one rate."""
    models = make_model(), make_model()

    def make_optimizer(model):
        decayed = [p for name, p in model.named_parameters() if name.startswith("inner.")]
        flat = [p for name, p in model.named_parameters() if name.startswith(("norm.", "unused."))]
        rest = [p for name, p in model.named_parameters() if name.startswith(("conv.", "table.", "head."))]
        optimizer = torch.optim.AdamW([{"params": rest, "weight_decay": 0.5}, {"params": decayed},
                                       {"params": flat, "weight_decay": 0}], lr=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda s: 1.0, lambda s: 0.5 ** s, lambda s: 1 / (s + 1)])
        return optimizer, schedule

    (ours, our_schedule), (theirs, their_schedule) = map(make_optimizer, models)
    step = compile_step(models[0], ours)
    for seed in range(6):
        assert_near(step(make_batch(seed)), step_in_pytorch(models[1], theirs, make_batch(seed)))
        our_schedule.step()
        their_schedule.step()
    step.sync()
    for name in ("inner.weight", "table.weight", "norm.weight", "unused.weight"):
        torch.testing.assert_close(models[0].get_parameter(name), models[1].get_parameter(name), rtol=1e-3, atol=1e-4)
    # A rate is no part of what is compiled, and weights are none.
    other = make_model(1)
    assert compile_step(models[0], ours).was_cached
    assert compile_step(other, make_optimizer(other)[0]).was_cached
    ours.param_groups[1]["weight_decay"] = 0.25
    refuses(memopt.BadInput, ["weight_decay of the optimizer's group 1 has become 0.25"], step, make_batch(0))


def parts_of_a_model():
    """What the optimizer does not have stays as it is; so does what is frozen."""
    model = make_model()
    model.conv.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    step = compile_step(model, torch.optim.SGD([*model.head.parameters(), model.conv.weight], lr=0.1, momentum=0.9))
    assert all(parameter.requires_grad for parameter in model.inner.parameters())
    for seed in range(3):
        step(make_batch(seed))
    step.sync()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"table.weight", "head.weight", "head.bias", "norm.running_mean", "norm.running_var",
                       "norm.num_batches_tracked"}, changed
    assert model.head.weight is model.table.weight


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
        assert_near(step_in_pytorch(model, optimizer, make_batch(3)), step(make_batch(3)), 1e-3)


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


def failures():
    """What cannot be done is said by name, and leaves everything as it was."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_step(model, optimizer)
    before = get_bits(step.state_dict())
    image, word, label = make_batch(0)
    assert refuses(memopt.LossNotFinite, ["the loss is "], step, (image * float("inf"), word, label)).step == 1
    refuses(memopt.BadInput, ["'input1' holds 12"], step, (image, word * 0 + 12, label))
    assert get_bits(step.state_dict()) == before
    small = refuses(memopt.DoesNotFit, ["does not fit"], compile_step, model, optimizer, device_memory="16KiB")
    assert small.budget == 16384 < small.smallest_budget
    fitting = compile_step(model, optimizer, device_memory=small.smallest_budget)
    assert fitting.plan.peak_bytes["device"] <= small.smallest_budget and step(make_batch(0)) == fitting(make_batch(0))
    refuses(memopt.BadInput, ["unknown option '--batchsize=4'"], compile_step, model, optimizer, batchsize=4)
    refuses(memopt.BadInput, ["lr is no option"], compile_step, model, optimizer, lr=1)
    refuses(memopt.BadInput, ["no parameter of the model"], compile_step, model, torch.optim.SGD(make_model().parameters()))
    refuses(memopt.BadInput, ["needs an optimizer"], compile_step, model, None)
    for kind, options, part in (("LBFGS", {}, "LBFGS has no counterpart"), ("SGD", {"maximize": True}, "has maximize=True"),
                                ("Adam", {"decoupled_weight_decay": True}, "has decoupled_weight_decay=True")):
        refuses(memopt.Refused, [part], compile_step, model, getattr(torch.optim, kind)(model.parameters(), **options))
    groups = [{"params": model.conv.parameters()}, {"params": model.head.parameters(), "betas": (0.8, 0.9)}]
    refuses(memopt.Refused, ["group 1 has betas=(0.8, 0.9), group 0 (0.9, 0.999)"], compile_step, model, torch.optim.Adam(groups))
    model.conv.weight.register_hook(lambda gradient: gradient)
    refuses(memopt.Refused, ["a hook on the gradient of 'net.conv.weight'"], compile_step, model, optimizer)


def interrupts():
    """Ctrl-C comes between two steps, of which each was made whole or not at all."""
    model = make_model()
    step = compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = make_batch(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in the background ignore it
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        while True:
            step(batch)
    except KeyboardInterrupt:
        pass
    steps = step.steps
    assert steps > 0
    step(batch)
    assert step.steps == steps + 1


def plans():
    """Frontier and estimate of the same step, without one."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    step = compile_step(model, optimizer)
    frontier = memopt.frontier(model, F.cross_entropy, make_batch(0), optimizer, points=3)
    assert [p.bytes for p in frontier] == sorted(p.bytes for p in frontier) and frontier[-1].overhead == 0
    assert frontier[-1].bytes <= step.plan.peak_bytes["device"] and "<svg" in frontier._repr_html_()
    estimate = memopt.estimate(model, F.cross_entropy, make_batch(0), optimizer)
    assert estimate["optimizer"] == "adamw" and estimate["trainable_elements"] == 36 + 8 + 145 * 16 + 170
    assert "<svg" in step.plan._repr_html_() and "bytes of device memory" in str(step.plan)


CASES = [bits_of_memopt_run, round_trips, groups_and_schedules, parts_of_a_model, states, narrow_state, evaluation, accumulation,
         names_of_batches, failures, interrupts, plans]
for case in CASES:
    if len(sys.argv) == 2 or case.__name__ in sys.argv[2:]:
        print(case.__name__, flush=True)
        case()
