# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The PyTorch side of pytorch_side_by_side.py: full-size models, and what one process measures of them.

Needs torch, torchvision and transformers.
"""
from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import resource
import sys
import time
from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SEED = 1


class Classifier(nn.Module):
    """An image classifier and its loss."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, image, label):
        return F.cross_entropy(self.net(image), label)


class NextToken(nn.Module):
    """A causal language model and its loss; the targets are given, so nothing is shifted."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, tokens, targets):
        logits = self.net(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def images(batch):
    return lambda: {"image": torch.randn(batch, 3, 224, 224), "label": torch.randint(0, 1000, (batch,))}


def resnet50(batch):
    import torchvision
    net = torchvision.models.resnet50()
    for block in net.modules():  # residual branches that start small keep the first steps from magnifying rounding
        if isinstance(block, torchvision.models.resnet.Bottleneck):
            nn.init.constant_(block.bn3.weight, 0.1)
    return Classifier(net), images(batch)


def gpt2(batch, length=512):
    import transformers
    config = transformers.GPT2Config(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, use_cache=False,
                                     attn_implementation="sdpa")
    tokens = lambda: torch.randint(0, config.vocab_size, (batch, length))
    return NextToken(transformers.GPT2LMHeadModel(config)), lambda: {"tokens": tokens(), "targets": tokens()}


def mobilenet_v2(batch):
    import torchvision
    net = torchvision.models.mobilenet_v2(dropout=0.0)
    for block in net.modules():
        if isinstance(block, torchvision.models.mobilenetv2.InvertedResidual) and block.use_res_connect:
            nn.init.constant_(block.conv[-1].weight, 0.1)
    return Classifier(net), images(batch)


def vit_s16(batch):
    import torchvision
    net = torchvision.models.VisionTransformer(image_size=224, patch_size=16, num_layers=12, num_heads=6,
                                               hidden_dim=384, mlp_dim=1536)
    nn.init.normal_(net.heads.head.weight, std=0.02)  # zeros would leave the first step's gradient to the head alone
    return Classifier(net), images(batch)


@dataclasses.dataclass
class Benchmark:
    """A model, how many samples a step takes, and what block checkpointing recomputes."""

    build: Callable
    batch: int
    blocks: Callable


MODELS = {
    "resnet50": Benchmark(resnet50, 16, lambda net: [*net.layer1, *net.layer2, *net.layer3, *net.layer4]),
    "mobilenet_v2": Benchmark(mobilenet_v2, 32, lambda net: list(net.features)),
    "vit_s16": Benchmark(vit_s16, 16, lambda net: list(net.encoder.layers)),
    "gpt2": Benchmark(gpt2, 2, lambda net: list(net.transformer.h)),
}


def make(name, batches):
    """The model in training mode and its batches: the same ones in every process."""
    torch.manual_seed(SEED)
    model, draw = MODELS[name].build(MODELS[name].batch)
    return model.train(), [draw() for _ in range(batches)]


# ------------------------------------------------------------- one step


class Step:
    """Forward, backward and update in one of PyTorch's ways, named by words joined with `+`.

    eager                 as the model stands
    channels_last         convolutions in that memory format
    checkpoint            torch.utils.checkpoint around each block
    step_in_backward      a parameter is updated, and its gradient dropped, as soon as the gradient is there
    autocast              the forward pass under torch.autocast, in bfloat16
    compile, compile:0.5  torch.compile, with that activation_memory_budget
    """

    def __init__(self, name, way, batches, optimizer):
        self.model, self.batches = make(name, batches)
        self.make_optimizer, self.optimizers, self.updates_at_end = optimizer, [], True
        words = way.split("+")
        for word in words:
            if word.split(":")[0] not in ("eager", "channels_last", "checkpoint", "step_in_backward", "autocast", "compile"):
                raise ValueError(f"{word}: no such way to train")
        if "channels_last" in words:
            self.model = self.model.to(memory_format=torch.channels_last)
            for batch in self.batches:
                batch["image"] = batch["image"].to(memory_format=torch.channels_last)
        if "checkpoint" in words:
            for block in MODELS[name].blocks(self.model.net):
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        self.update_in_backward() if "step_in_backward" in words else self.update_at_end()
        self.forward = self.autocast if "autocast" in words else self.model
        for word in words:
            if word.startswith("compile"):
                torch._functorch.config.activation_memory_budget = float(word.partition(":")[2] or 1)
                self.forward = torch.compile(self.model)

    def autocast(self, **batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(**batch)

    def update_at_end(self):
        self.optimizers = [self.make_optimizer(self.model.parameters())]

    def update_in_backward(self):
        self.updates_at_end = False
        for parameter in self.model.parameters():
            optimizer = self.make_optimizer([parameter])
            self.optimizers.append(optimizer)

            def update(parameter, optimizer=optimizer):
                optimizer.step()
                parameter.grad = None
            parameter.register_post_accumulate_grad_hook(update)

    def resident(self):
        """Bytes of parameters, buffers, the optimizer's state and the batch, each storage once."""
        state = [value for optimizer in self.optimizers for values in optimizer.state.values()
                 for value in values.values() if isinstance(value, torch.Tensor)]
        tensors = [*self.model.parameters(), *self.model.buffers(), *state, *self.batches[0].values()]
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
        return sum(storages.values())

    def __call__(self, number):
        loss = self.forward(**self.batches[number % len(self.batches)])
        loss.backward()
        if self.updates_at_end:
            self.optimizers[0].step()
            self.optimizers[0].zero_grad(set_to_none=True)
        return loss.item()


# --------------------------------------------------------------- memory


def allocated_peak(step, number):
    """Peak of the bytes that PyTorch's CPU allocator hands out during a step, resident tensors included.

    The profiler reports each allocation and release, those of compiled code too. A step begins without gradients,
    so all that it releases it has allocated. Scratch that libraries allocate themselves is not seen.
    """
    gc.collect()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        step(number)
    events = [event for event in profile.kineto_results.events()
              if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU]
    alive = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return step.resident() + peak


def peak_rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def make_optimizer(name, rate):
    return functools.partial({"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name], lr=rate)


def measure(name, way, batches, optimizer, steps, threads, memory):
    """Losses and seconds of `steps` steps, resident memory before the model and at its peak, and, if asked, the peak
    of the allocator's bytes."""
    torch.set_num_threads(threads)
    importlib.import_module("transformers.models.gpt2" if name == "gpt2" else "torchvision")
    before = peak_rss()
    step = Step(name, way, batches, optimizer)
    losses, seconds = [], []
    for number in range(steps):
        begin = time.perf_counter()
        losses.append(step(number))
        seconds.append(time.perf_counter() - begin)
        print(f"{name} {way}: step {number} {seconds[-1]:.3f} s, loss {losses[-1]:.6f}", file=sys.stderr, flush=True)
    result = {"losses": losses, "step_seconds": seconds, "peak_rss": peak_rss(), "rss_before": before}
    if memory:
        result["peak_bytes"] = allocated_peak(step, steps)
    return result


def export(name, batches, folder):
    """Writes model.pt2, with weights, and inputs.safetensors."""
    from safetensors.torch import save_file
    import memopt_export
    model, batches = make(name, batches)
    memopt_export.save(memopt_export.export_program(model, batches[0], training=True), folder / "model.pt2")
    save_file({f"step{number}.{key}": value for number, batch in enumerate(batches) for key, value in batch.items()},
              folder / "inputs.safetensors")
