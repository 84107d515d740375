# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_inputs.py FOLDER [CASE...]: what a loop changes between steps takes effect, and what a loss has is trained."""

import copy
import functools

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from training import FOLDER, assert_near, get_bits, make_batch, make_model, compile_step, refuses, run_cases, step_in_pytorch

OPTIMIZERS = [functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01),
              functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True),
              functools.partial(torch.optim.Adam, lr=0.01), functools.partial(torch.optim.AdamW, lr=0.01, amsgrad=True),
              functools.partial(torch.optim.NAdam, lr=0.01, decoupled_weight_decay=True), functools.partial(torch.optim.RAdam, lr=0.01),
              functools.partial(torch.optim.RMSprop, lr=0.01, momentum=0.5), functools.partial(torch.optim.Adamax, lr=0.01),
              functools.partial(torch.optim.Adagrad, lr=0.01), functools.partial(torch.optim.Adadelta, lr=0.5),
              functools.partial(torch.optim.Adafactor, lr=0.01), functools.partial(torch.optim.ASGD, lr=0.01)]


def run_both(make_optimizer, change, steps=6, **options):
    """The same changes in front of each step, here and in PyTorch."""
    models = make_model(), make_model()
    ours, theirs = map(make_optimizer, models)
    step = compile_step(models[0], ours, **options)
    for i in range(steps):
        for optimizer in (ours, theirs):
            change(optimizer, i)
        assert_near(step(make_batch(i)), step_in_pytorch(models[1], theirs, make_batch(i)))
    step.sync()
    for left, right in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4)
    return step


def schedules_of_all_numbers():
    """Momentum, betas and weight decay follow any schedule in every optimizer, from and to no decay."""
    for make in OPTIMIZERS:
        def change(optimizer, i):
            group = optimizer.param_groups[0]
            group["weight_decay"] = 0.1 * (i % 3)
            if group.get("momentum"):
                group["momentum"] = 0.5 + 0.08 * i
            if "betas" in group:
                group["betas"] = (0.9 - 0.05 * i, 0.99 - 0.01 * i)
        print(" ", make.func.__name__, flush=True)
        run_both(lambda model: make(model.parameters()), change)


def groups():
    """Each group has its own; keys that no optimizer reads count for nothing."""
    def make(model):
        inner = list(model.inner.parameters())
        rest = [p for p in model.parameters() if all(p is not other for other in inner)]
        return torch.optim.AdamW([{"params": rest, "betas": (0.8, 0.9), "lr_scale": 0.5, "max_momentum": 3},
                                  {"params": inner, "weight_decay": 0.0, "note": "x"}], lr=0.01)

    def change(optimizer, i):
        if i >= 2:
            optimizer.param_groups[1].update(weight_decay=0.3, betas=(0.7, 0.95))
            optimizer.param_groups[0]["betas"] = (0.85, 0.97)
    step = run_both(make, change)
    assert step.learning_rates == [0.01, 0.01]


def other_groups():
    """Dicts of groups in the place of those that were there, and another list of them."""
    def change(optimizer, i):
        if i == 2:
            optimizer.param_groups[0] = {**optimizer.param_groups[0], "lr": 0.02}
        if i == 4:
            optimizer.param_groups = [{**group, "momentum": 0.5} for group in optimizer.param_groups]
    run_both(lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), change)


def schedulers():
    """Those of PyTorch that move more than the rate, made before or behind `compile`."""
    for make, schedule in (
            (lambda p: torch.optim.AdamW(p, 1e-3), lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1e-2, total_steps=10)),
            (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=10)),
            (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
             lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2, base_momentum=0.6))):
        for is_early in (True, False):
            models = make_model(), make_model()
            optimizers = [make(model.parameters()) for model in models]
            made = [schedule(optimizer) for optimizer in optimizers] if is_early else []
            step = compile_step(models[0], optimizers[0])
            made = made or [schedule(optimizer) for optimizer in optimizers]
            for i in range(5):
                assert_near(step(make_batch(i)), step_in_pytorch(models[1], optimizers[1], make_batch(i)))
                assert step.learning_rates == [optimizers[0].param_groups[0]["lr"]]
                for scheduler in made:
                    scheduler.step()


def same_bits():
    """A package of `inputs` has the bits of one of constants."""
    for options in ({}, {"max_grad_norm": 0.5}):
        states = []
        for kind in ("constants", "inputs"):
            model = make_model()
            step = compile_step(model, torch.optim.AdamW(model.parameters(), 0.01, weight_decay=0.1), **options)
            if kind == "constants":  # as memopt-run would be given it
                from memopt.packages import Program, build_package
                prepared = step._prepared
                words = [word for word in prepared.get_words(options) if not word.startswith("--hyperparameters")]
                session = memopt.Session(build_package([Program("step", prepared.archive.content, words)]).path)
                session.initialize()
                for name, tensor in prepared.get_tensors().items():
                    if name in {variable["name"] for variable in session.manifest["variables"]}:
                        session.write(name, tensor.detach())
            else:
                session = step._session.session
            for i in range(4):
                if kind == "inputs":
                    step(make_batch(i))
                else:
                    session.set_rate("lr", 0.01)
                    batch = dict(zip(("input0", "input1", "target"), make_batch(i)))
                    session.run_step([[batch[tensor["name"]] for tensor in session.manifest["inputs"]]])
            states.append({variable["name"]: session.read_bytes(variable["name"]) for variable in session.manifest["variables"]
                           if variable["role"] in ("parameter", "optimizer_state")})
        assert states[0] == states[1]


def clipping():
    """The limit of the norm may change."""
    model, other = make_model(), make_model()
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, other)]
    step = compile_step(model, optimizers[0], max_grad_norm=0.5)
    for i, limit in enumerate((0.5, 0.1, 2.0)):
        step.max_grad_norm = limit
        optimizers[1].zero_grad()
        image, word, target = make_batch(i)
        loss = F.cross_entropy(other(image, word), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), limit)
        optimizers[1].step()
        assert_near(step(make_batch(i)), loss.item())
    refuses(memopt.BadInput, ["without clipping"], setattr, compile_step(model, optimizers[0]), "max_grad_norm", 1.0)


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.register_buffer("beta", torch.tensor(0.0))
        self.register_buffer("mask", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.inner(x) * (1 + self.beta) * self.mask


def buffers():
    """A buffer is written alone, by name, in the step or in the model; frozen parameters are the model's."""
    data = torch.randn(5, 6), torch.randint(3, (5,))
    torch.manual_seed(0)
    ours = Annealed()
    theirs = copy.deepcopy(ours)
    optimizers = [torch.optim.SGD([model.inner.weight], 0.1) for model in (ours, theirs)]
    step = memopt.compile(ours, F.cross_entropy, data, optimizer=optimizers[0])
    assert set(step.buffers) == {"beta", "mask"}

    def check():
        optimizers[1].zero_grad()
        loss = F.cross_entropy(theirs(data[0]), data[1])
        assert_near(step.evaluate(data), loss.item())
        loss.backward()
        optimizers[1].step()
        assert_near(step(data), loss.item())
    check()
    for value in (0.3, 1.5):
        step.buffers["beta"] = value
        theirs.beta.fill_(value)
        assert abs(step.buffers["beta"].item() - value) < 1e-6
        check()
    step.buffers["mask"] = torch.tensor([1.0, 0.0, 1.0])
    theirs.mask[1] = 0
    check()
    for model in (ours, theirs):
        model.beta.fill_(0.7)
        with torch.no_grad():
            model.inner.bias.add_(0.5)
    check()
    for model in (ours, theirs):
        model.beta = torch.tensor(-0.2)
    check()
    step.sync()
    check()
    refuses(memopt.BadInput, ["no buffer 'gamma'", "'beta'"], step.buffers.__setitem__, "gamma", 1.0)
    refuses(memopt.BadInput, ["shape [3]", "[2]"], step.buffers.__setitem__, "mask", torch.ones(2))


class Uncertain(nn.Module):
    def __init__(self):
        super().__init__()
        self.spread = nn.Parameter(torch.zeros(2))

    def forward(self, output, target):
        parts = torch.stack([F.cross_entropy(output, target), output.pow(2).mean()])
        return (parts * (-self.spread).exp() + self.spread).sum()


class Trainer:
    """Has the rest of a model, and a loss as a method."""

    def __init__(self, head, temperature):
        self.head, self.temperature, self.step = head, temperature, 0

    def loss(self, output, target):
        return F.cross_entropy(self.head(output) / self.temperature.exp(), target)


def make_losses():
    """By name: the loss, and what it has to be trained."""
    def make_head():
        torch.manual_seed(1)
        return nn.Linear(4, 3), nn.Parameter(torch.tensor(0.5))

    def closure():
        head, temperature = make_head()
        return lambda output, target: F.cross_entropy(head(output) / temperature.exp(), target), [*head.parameters(), temperature]

    def partial():
        head, temperature = make_head()

        def loss(scale, output, target, layer):
            return F.cross_entropy(layer(output) / scale.exp(), target)
        return functools.partial(loss, temperature, layer=head), [*head.parameters(), temperature]

    def method():
        head, temperature = make_head()
        return Trainer(head, temperature).loss, [*head.parameters(), temperature]

    def module():
        loss = Uncertain()
        return loss, list(loss.parameters())
    return {"closure": closure, "partial": partial, "method": method, "module": module}


def losses_with_parameters():
    """What the optimizer has of the loss is trained, and is in states and checkpoints."""
    batches = [(torch.randn(5, 6), torch.randint(3, (5,))) for _ in range(6)]

    def make(make_loss):
        torch.manual_seed(0)
        body = nn.Linear(6, 4)
        loss, own = make_loss()
        return body, loss, own, torch.optim.Adam([*body.parameters(), *own], 0.05)
    for name, make_loss in make_losses().items():
        print(" ", name, flush=True)
        body, loss, own, optimizer = make(make_loss)
        step = memopt.compile(body, loss, batches[0], optimizer=optimizer)
        other, other_loss, other_own, other_optimizer = make(make_loss)
        for number, (x, y) in enumerate(batches):
            other_optimizer.zero_grad()
            expected = other_loss(other(x), y)
            expected.backward()
            other_optimizer.step()
            assert_near(step((x, y)), expected.item())
            if number == 2:
                state = step.state_dict()
                step.save(FOLDER / f"saved-{name}")
        assert sorted(state["loss"]) == (["spread"] if name == "module" else sorted(state["loss"])) and len(state["loss"]) == len(own)
        if name == "closure":
            assert set(state["loss"]) == {"head.weight", "head.bias", "temperature"}, set(state["loss"])
        step.sync()
        for left, right in zip(own, other_own):
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
        bits = get_bits(step.state_dict())
        body, loss, own, optimizer = make(make_loss)
        resumed = memopt.compile(body, loss, batches[0], optimizer=optimizer)
        assert resumed.was_cached
        for restore in (lambda: resumed.load_state_dict(state), lambda: resumed.load(FOLDER / f"saved-{name}")):
            restore()
            for batch in batches[3:]:
                resumed(batch)
            assert get_bits(resumed.state_dict()) == bits
        del state["loss"]
        refuses(memopt.BadInput, ["of the loss"], resumed.load_state_dict, state)


def captured_twice():
    """A loss may read a parameter of the model by itself, and hold a module that nobody trains."""
    batch = torch.randn(5, 6), torch.randint(3, (5,))
    losses = []
    for is_compiled in (True, False):
        torch.manual_seed(0)
        model, teacher = nn.Linear(6, 3), nn.Linear(6, 3)
        weight = model.weight
        loss_fn = lambda output, target: F.cross_entropy(output, target) + weight.pow(2).sum() + (weight - teacher.weight).abs().sum()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = memopt.compile(model, loss_fn, batch, optimizer=optimizer) if is_compiled else None
        losses.append([])
        for i in range(4):
            with torch.no_grad():
                teacher.weight.mul_(0.9)
            if step:
                losses[-1].append(step(batch))
                continue
            optimizer.zero_grad()
            loss = loss_fn(model(batch[0]), batch[1])
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
        assert weight is model.weight
    for left, right in zip(*losses):
        assert_near(left, right)


class Small(nn.Module):
    """The product of its weight and the batch is a denormal number."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 1e-20))

    def forward(self, x):
        return self.weight * x * 1e38


def denormals():
    """torch.set_flush_denormal holds for all threads of a step, from one step to the next."""
    model = Small(1 << 20)
    batch = torch.full((1 << 20,), 1e-20), torch.zeros(1 << 20)
    step = memopt.compile(model, F.l1_loss, batch, optimizer=torch.optim.SGD(model.parameters(), 0.0), threads=2, run_threads=2)
    assert_near(step(batch), 1e-2, 1e-4)
    assert torch.set_flush_denormal(True)
    try:
        assert step(batch) == 0
    finally:
        torch.set_flush_denormal(False)
    assert_near(step(batch), 1e-2, 1e-4)


def strangers():
    """What is nowhere in the step is refused by its name."""
    model, other = nn.Linear(6, 3), nn.Linear(5, 2)
    data = torch.randn(5, 6), torch.randint(3, (5,))
    refuses(memopt.BadInput, ["neither the model nor the loss", "of shape [2, 5]"], memopt.compile, model, F.cross_entropy, data,
            optimizer=torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1))
    named = [*model.named_parameters(), *((f"critic.{name}", parameter) for name, parameter in other.named_parameters())]
    refuses(memopt.BadInput, ["critic.weight"], memopt.compile, model, F.cross_entropy, data, optimizer=torch.optim.AdamW(named))


run_cases([schedules_of_all_numbers, groups, other_groups, schedulers, same_bits, clipping, buffers, losses_with_parameters, captured_twice,
           denormals, strangers])
