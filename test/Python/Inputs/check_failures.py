# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_failures.py FOLDER [CASE...]: what cannot be done, and what stops."""

import os
import signal
import threading

import torch
import torch.nn.functional as F

import memopt
from training import compile_step, get_bits, make_batch, make_model, refuses, run_cases


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
    refuses(memopt.BadInput, ["no option batchsize=; did you mean batch_size=?"], compile_step, model, optimizer, batchsize=4)
    refuses(memopt.BadInput, ["lr= is no option", "torch optimizer"], compile_step, model, optimizer, lr=1)
    refuses(memopt.BadInput, ["no parameter of the model"], compile_step, model, torch.optim.SGD(make_model().parameters()))
    refuses(memopt.BadInput, ["needs an optimizer"], compile_step, model, None)
    for kind, options, part in (("LBFGS", {}, "LBFGS has no counterpart, as it steps by a closure"), ("SGD", {"differentiable": True}, "has differentiable=True"),
                                ("Adam", {"decoupled_weight_decay": True}, "has decoupled_weight_decay=True")):
        refuses(memopt.Refused, [part], compile_step, model, getattr(torch.optim, kind)(model.parameters(), **options))
    model.conv.weight.register_post_accumulate_grad_hook(lambda weight: None)
    refuses(memopt.Refused, ["a hook behind the accumulation of the gradient of 'conv.weight'"], compile_step, model, optimizer)


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


run_cases([failures, interrupts, plans])
