#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trainings of several programs over one state, beside eager PyTorch and torch.compile: bytes, seconds, compile seconds.

    many_programs.py [text] [unet] [gan] [--rounds 5] [--threads 1] [--budget 0.6] [--bf16] [--json FILE]

text: a language model on batches of eight lengths, 32 to 512. unet: a U-Net on pictures of two resolutions. gan: a
generator and a discriminator with an optimizer each. All three ways train copies of one model on the same batches in one
process, and take turns step by step, so other work on the machine meets all of them alike. A round has each batch once.

  known      bytes that memopt says before the first step: one arena for all programs, with parameters, optimizer state
             and the batch
  peak       memopt: the same number, which the run is held to. PyTorch: the most bytes of its allocator in any step,
             parameters, optimizer state and batch included, scratch inside of libraries not
  s a step   least and median over the rounds, each as a mean over the batches of a round
  compile s  memopt.compile without its cache; of torch.compile (dynamic=True where there are several shapes), what
             the first two steps of each shape take longer than the median step
  loss       largest relative distance from eager's

With --budget a second memopt trains within that part of eager's peak, or within the smallest budget that it names. With --bf16
PyTorch also trains under torch.autocast, eagerly and compiled, and memopt with precision="bf16". Exit code 1 where a loss is further
than 1e-3 (bf16: 3e-2) from eager's, memopt needs more bytes than eager, or it is slower than the faster of eager and torch.compile in
the same types by both times.
"""
from __future__ import annotations

import argparse
import copy
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

import paths  # noqa: F401
import memopt_driver as driver
from pytorch_models import allocated_peak

import memopt

HEAD = ["training", "how", "known MiB", "peak MiB", "of eager %", "s a step, least", "median", "compile s", "loss"]
TOLERANCE, NARROW_TOLERANCE = 1e-3, 3e-2
LENGTHS = 32, 64, 128, 192, 256, 320, 384, 512


# ------------------------------------------------------------- models


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        query, key, value = self.mix(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Text(nn.Module):
    def __init__(self, width=192, blocks=4, words=2000):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(max(LENGTHS), width)
        self.blocks = nn.Sequential(*(Block(width, 6) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, target):
        x = self.blocks(self.words(tokens) + self.places.weight[:tokens.shape[1]])
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


def stage(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        sizes = width, 2 * width, 4 * width
        self.down = nn.ModuleList([stage(a, b) for a, b in zip((3, *sizes), sizes)])
        self.up = nn.ModuleList([stage(a + b, b) for a, b in zip(sizes[:0:-1], sizes[1::-1])])
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, picture, clean):
        kept = []
        for down in self.down:
            kept.append(down(F.avg_pool2d(kept[-1], 2) if kept else picture))
        x = kept.pop()
        for up in self.up:
            x = up(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1))
        return F.mse_loss(self.out(x), clean)


class Networks(nn.Module):
    """A generator and a discriminator of pictures of 32 x 32."""

    def __init__(self, width=32):
        super().__init__()
        turn = lambda a, b: [nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU()]
        self.generator = nn.Sequential(nn.Linear(64, 16 * 4 * width), nn.Unflatten(1, (4 * width, 4, 4)), *turn(4 * width, 2 * width),
                                       *turn(2 * width, width), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())
        down = lambda a, b: [nn.Conv2d(a, b, 4, 2, 1), nn.LeakyReLU(0.2)]
        self.discriminator = nn.Sequential(*down(3, width), *down(width, 2 * width), *down(2 * width, 4 * width), nn.Flatten(),
                                           nn.Linear(16 * 4 * width, 1))


class Discriminate(nn.Module):
    def __init__(self, networks):
        super().__init__()
        self.networks = networks

    def forward(self, real, noise):
        fake = self.networks.generator(noise).detach()
        return F.softplus(-self.networks.discriminator(real)).mean() + F.softplus(self.networks.discriminator(fake)).mean()


class Generate(Discriminate):
    def forward(self, noise):
        return F.softplus(-self.networks.discriminator(self.networks.generator(noise))).mean()


# ------------------------------------------------------------- trainings


class Training:
    """Modules that return their losses, an optimizer for each, and the batches of a round: (name of the module, batch).

    `variants` are further ways, functions of the training and the options of this script.
    """

    def __init__(self, model, parts, batches, generator, variants=()):
        self.model, self.parts, self.batches, self.generator, self.variants = model, parts, batches, generator, variants

    def has_one_shape(self):
        return len({tuple((name, value.shape) for name, value in batch.items()) for _, batch in self.batches}) == 1


def text():
    draw = torch.Generator().manual_seed(1)
    tokens = [torch.randint(2000, (4, length + 1), generator=draw) for length in LENGTHS]
    return Training(Text(), lambda model: {"text": (model, torch.optim.AdamW(model.parameters(), 3e-4))},
                    [("text", {"tokens": t[:, :-1].contiguous(), "target": t[:, 1:].contiguous()}) for t in tokens], draw)


def unet():
    draw = torch.Generator().manual_seed(1)
    clean = [torch.randn(count, 3, size, size, generator=draw) for count, size in ((8, 48), (4, 64))]
    return Training(UNet(), lambda model: {"unet": (model, torch.optim.AdamW(model.parameters(), 3e-4))},
                    [("unet", {"picture": c + 0.3 * torch.randn(c.shape, generator=draw), "clean": c}) for c in clean], draw)


def gan():
    draw = torch.Generator().manual_seed(1)
    make = lambda net: torch.optim.Adam(net.parameters(), 2e-4, betas=(0.5, 0.999))
    noise = lambda: torch.randn(32, 64, generator=draw)
    return Training(Networks(), lambda model: {"discriminator": (Discriminate(model), make(model.discriminator)),
                                               "generator": (Generate(model), make(model.generator))},
                    [("discriminator", {"real": torch.randn(32, 3, 32, 32, generator=draw), "noise": noise()}),
                     ("generator", {"noise": noise()})], draw)


TRAININGS = {"text": text, "unet": unet, "gan": gan}


class Way:
    """One of the ways to train: `losses` and `seconds` by round and batch."""

    known: int | None = None
    tolerance = TOLERANCE
    is_narrow = False  # trains in bf16

    def __init__(self, name, training):
        self.name, self.batches, self.losses, self.seconds = name, training.batches, [], []

    def run(self, number):
        begin = time.perf_counter()
        loss = self.step(number)
        self.seconds[-1].append(time.perf_counter() - begin)
        self.losses[-1].append(loss)

    def get_seconds(self, pick, skip):
        """A mean over the batches of a round."""
        return statistics.mean(pick(round_[i] for round_ in self.seconds[skip:]) for i in range(len(self.batches)))


class Eager(Way):
    """PyTorch's own step, in bf16 under torch.autocast; `adjust` is called with this way's copy of the model, `inductor` are options
    of torch.compile."""

    first_seconds = 0.0  # of a step that was made in front, which compiled

    def __init__(self, name, training, compiles, adjust=None, inductor=None, is_narrow=False):
        super().__init__(name, training)
        self.is_narrow, self.tolerance = is_narrow, NARROW_TOLERANCE if is_narrow else TOLERANCE
        self.model = copy.deepcopy(training.model).train()
        if adjust:
            adjust(self.model)
        self.parts = training.parts(self.model)
        dynamic = None if training.has_one_shape() else True
        self.forward = {part: torch.compile(module, dynamic=dynamic, options=inductor) if compiles else module
                        for part, (module, _) in self.parts.items()}

    def step(self, number):
        part, batch = self.batches[number]
        for parameter in self.model.parameters():  # those of other parts get gradients as well
            parameter.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_narrow):
            loss = self.forward[part](**batch)
        loss.backward()
        self.parts[part][1].step()
        for parameter in self.model.parameters():
            parameter.grad = None
        return loss.item()

    def get_resident(self, number):
        """Bytes of parameters, buffers, the optimizers' state and a batch, each storage once."""
        state = [value for _, optimizer in self.parts.values() for values in optimizer.state.values()
                 for value in values.values() if torch.is_tensor(value)]
        tensors = [*self.model.parameters(), *self.model.buffers(), *state, *self.batches[number][1].values()]
        return sum({tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}.values())

    def measure_peak(self):
        """The last thing that is done: these steps train, too."""
        def measure(number):
            step = lambda _: self.step(number)
            step.resident = lambda: self.get_resident(number)
            return allocated_peak(step, number)
        return max(measure(number) for number in range(len(self.batches)))

    def get_compile_seconds(self):
        usual = [statistics.median(round_[i] for round_ in self.seconds[2:]) for i in range(len(self.batches))]
        return self.first_seconds + sum(round_[i] - usual[i] for round_ in self.seconds[:2] for i in range(len(self.batches)))


class Memopt(Way):
    """`keywords` are those of memopt.compile; `tolerance` is that of the losses."""

    def __init__(self, name, training, options, budget=None, tolerance=TOLERANCE, **keywords):
        super().__init__(name, training)
        self.is_narrow, self.tolerance = keywords.get("precision") == "bf16", tolerance
        model = copy.deepcopy(training.model).train()
        examples = {part: [batch for other, batch in training.batches if other == part] for part, _ in training.batches}
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="memopt-") as folder:
            os.environ["MEMOPT_CACHE"] = folder
            self.steps = memopt.compile_steps(
                {part: memopt.Training(module, None, examples[part][0], optimizer=optimizer, shapes=examples[part])
                 for part, (module, optimizer) in training.parts(model).items()}, device_memory=budget,
                threads=options.threads, run_threads=options.threads, **options.target, **keywords)
        self.compile_seconds = time.perf_counter() - begin
        self.known = self.steps.plan.peak_bytes["device"]

    def step(self, number):
        part, batch = self.batches[number]
        return self.steps[part](batch)

    def measure_peak(self):
        return self.steps.plan.peak_bytes["device"]

    def get_compile_seconds(self):
        return self.compile_seconds


def within(options, training, budget):
    """Within a budget, or the smallest that would do."""
    try:
        return Memopt("memopt, budget", training, options, budget)
    except memopt.DoesNotFit as refusal:
        return Memopt("memopt, smallest budget", training, options, refusal.smallest_budget)


def take_turns(ways, training, rounds):
    for turn in range(rounds):
        for way in ways:
            way.seconds.append([])
            way.losses.append([])
        for number in range(len(training.batches)):
            for way in ways[:: 1 if turn % 2 else -1]:
                way.run(number)


def compile_with_torch(training, name="torch.compile", inductor=None, is_narrow=False):
    """None where it has an error. What a copy has compiled is there for the next."""
    way, probe = (Eager(name, training, True, inductor=inductor, is_narrow=is_narrow) for _ in range(2))
    begin = time.perf_counter()
    try:
        probe.step(0)
    except Exception as error:
        print(f"torch.compile: {str(error).strip().splitlines()[0][:200]}", file=sys.stderr)
        return None
    way.first_seconds = time.perf_counter() - begin
    return way


def measure(name, make, options, failures):
    torch.manual_seed(0)
    training, skip = make(), 2
    eager, compiled = Eager("eager", training, False), compile_with_torch(training)
    others = [eager, compiled] if compiled else [eager]
    ways = [*others, Memopt("memopt", training, options)]
    if options.bf16:
        narrow = [Eager("eager, autocast", training, False, is_narrow=True),
                  compile_with_torch(training, "torch.compile, autocast", is_narrow=True)]
        ways += [*filter(None, narrow), Memopt("memopt, bf16", training, options, tolerance=NARROW_TOLERANCE, precision="bf16")]
    ways += filter(None, (variant(training, options) for variant in training.variants))
    if options.budget:
        probe = Eager("probe", training, False)
        probe.step(0), probe.step(len(training.batches) - 1)  # with the optimizers' state
        ways.append(within(options, training, int(options.budget * probe.measure_peak())))
    take_turns(ways, training, options.rounds + skip)
    peaks = {way: way.measure_peak() for way in ways}
    times = {way: (way.get_seconds(min, skip), way.get_seconds(statistics.median, skip)) for way in ways}
    for way in ways:
        distance = max(abs(a - b) / abs(b) for mine, theirs in zip(way.losses, eager.losses) for a, b in zip(mine, theirs))
        if not distance <= way.tolerance:
            failures.append(f"{name} {way.name}: losses are {distance:.1e} from eager's")
        if isinstance(way, Memopt) and not peaks[way] < peaks[eager]:
            failures.append(f"{name} {way.name}: {peaks[way]} bytes, eager has {peaks[eager]}")
        faster = min((other for other in ways if isinstance(other, Eager) and other.is_narrow == way.is_narrow), key=times.get)
        if isinstance(way, Memopt) and all(mine > theirs for mine, theirs in zip(times[way], times[faster])):
            failures.append(f"{name} {way.name}: slower than {faster.name}, {times[way]} and {times[faster]} s")
        yield [name, way.name, driver.mib(way.known) if way.known else "-", driver.mib(peaks[way]), f"{100 * peaks[way] / peaks[eager]:.0f}",
               *(f"{seconds:.4f}" for seconds in times[way]), f"{way.get_compile_seconds():.1f}" if way is not eager else "-", f"{distance:.0e}"]


def main(trainings, text):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainings", nargs="*", choices=[*trainings, []], default=list(trainings))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, help="part of eager's peak that a second memopt gets")
    parser.add_argument("--bf16", action="store_true", help="PyTorch under torch.autocast and memopt with precision=\"bf16\" as well")
    parser.add_argument("--isa", choices=driver.ISAS, default="native", help="instructions that all sides are held to")
    parser.add_argument("--json", type=pathlib.Path, help="writes the rows there too")
    options = parser.parse_args()
    options.target = {"target_features": driver.AVX2_PROCESSOR} if driver.hold_to(options.isa) else {}
    torch.set_num_threads(options.threads)
    rows, failures = [], []
    for name in options.trainings or trainings:
        try:
            rows += measure(name, trainings[name], options, failures)
        except (memopt.Error, driver.Failed) as failure:
            failures.append(f"{name}: {failure}")
    driver.report(HEAD, rows, failures, options.json)


if __name__ == "__main__":
    main(TRAININGS, __doc__)
