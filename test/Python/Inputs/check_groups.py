# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_groups.py FOLDER [CASE...]: what of a model an optimizer trains, and how."""

import copy

import torch

import memopt
from training import assert_near, compile_step, make_batch, make_model, refuses, run_cases, step_in_pytorch


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
    ours.param_groups[1]["eps"] = 0.25
    refuses(memopt.BadInput, ["eps of the optimizer's group 1 has become 0.25"], step, make_batch(0))


def settings_of_their_own():
    """Groups that differ in any setting, of every optimizer that has settings; state is each group's own."""
    kinds = {"SGD": [{"nesterov": True}, {"momentum": 0.0}, {"dampening": 0.5}, {"maximize": True}],
             "Adam": [{"amsgrad": True}, {"eps": 1e-3}, {"betas": (0.5, 0.9), "maximize": True}], "AdamW": [{"amsgrad": True, "eps": 1e-2}],
             "RMSprop": [{"alpha": 0.5, "centered": True}, {"momentum": 0.9, "eps": 1e-4}], "Rprop": [{"etas": (0.3, 1.5)}],
             "Adagrad": [{"lr_decay": 0.5}], "Adadelta": [{"rho": 0.5}], "NAdam": [{"momentum_decay": 0.1, "decoupled_weight_decay": True}],
             "RAdam": [{"eps": 1e-3}], "ASGD": [{"t0": 2, "lambd": 0.1}], "Adafactor": [{"d": 2.0, "beta2_decay": -0.5}]}
    for name, variants in kinds.items():
        for own in variants:
            print(" ", name, own, flush=True)
            models = make_model(), make_model()

            def make(model):
                first = [model.conv.weight, *model.norm.parameters(), model.table.weight]
                rest = [*model.inner.parameters(), model.head.bias]
                more = {"momentum": 0.9} if name == "SGD" else {}
                decays = {} if name == "Rprop" else {"weight_decay": 0.1}
                return getattr(torch.optim, name)([{"params": first}, {"params": rest, **decays, **own}], lr=0.01, **more)
            ours, theirs = map(make, models)
            step = compile_step(models[0], ours)
            for seed in range(4):
                assert_near(step(make_batch(seed)), step_in_pytorch(models[1], theirs, make_batch(seed)), 1e-4)
            step.sync()
            step.close()
            state, expected = ({number: sorted(entry) for number, entry in optimizer.state_dict()["state"].items()} for optimizer in (ours, theirs))
            assert state == expected, (name, own, state, expected)
            for mine, other in zip(models[0].parameters(), models[1].parameters()):
                torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def of_other_libraries():
    """timm's classes with an algorithm that memopt has; what they have beyond it is refused."""
    try:
        import timm.optim
    except ImportError:
        return
    for make in (lambda p: timm.optim.Lion(p, lr=1e-3, weight_decay=0.1), lambda p: timm.optim.AdamWLegacy(p, lr=0.01, maximize=True)):
        models = make_model(), make_model()
        ours, theirs = (make(model.parameters()) for model in models)
        step = compile_step(models[0], ours)
        for seed in range(4):
            assert_near(step(make_batch(seed)), step_in_pytorch(models[1], theirs, make_batch(seed)), 1e-4)
        step.sync()
        assert_near(*(step_in_pytorch(model, optimizer, make_batch(5)) for model, optimizer in zip(models, (ours, theirs))), 1e-4)
    model = make_model()
    refuses(memopt.Refused, ["has caution=True"], compile_step, model, timm.optim.Lion(model.parameters(), caution=True))
    refuses(memopt.Refused, ["timm.optim.lamb.Lamb has no counterpart"], compile_step, model, timm.optim.Lamb(model.parameters()))


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


run_cases([groups_and_schedules, settings_of_their_own, of_other_libraries, parts_of_a_model])
