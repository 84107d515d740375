# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_composition.py FOLDER [--device FEATURES] [KIND...]: one small model of each kind that is written anew, under each technique.

Each is held against its own plain steps: bits where the technique changes none (the smallest budget, offloaded state and activations,
ranks beside accumulated batches), and the same numbers but for their rounding elsewhere; several techniques at once, too. With --device,
on the emulated device.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from memopt import export
from rewriting import Model

SAMPLES, STEPS = 8, 2


# Kinds ----------------------------------------------------------------------------------------------------------

def masks(self, x, t):
    y = self.linear(x)
    kept = t > 0
    return F.cross_entropy(y[kept], t[kept], reduction="sum") / 8 + torch.where(y > 0, y, 0).square().sum(1).mean()


def chosen(self, x, t):
    """Means over rows: the number of rows of a whole batch divides."""
    y = self.linear(x)
    kept = y[t > 1]
    (places,) = torch.where(x[:, 0] > 0)
    return kept.square().mean() + kept.log_softmax(1)[:, 0].sum() / kept.shape[0] + y[places, 2].tanh().mean() + y[y > 0].mean()


def experts(self, x, t):
    """A loop over experts, as Mixtral has it."""
    rows = x.reshape(16, 3)
    weights, which = self.router(rows).softmax(1).topk(2)
    out = torch.zeros(16, 5)
    for number, (up, down) in enumerate(zip(self.up, self.down)):
        row, place = torch.where(which == number)
        out.index_add_(0, row, (rows[row] @ up).relu() @ down * weights[row, place, None])
    return F.cross_entropy(out.reshape(8, 2, 5).mean(1), t)


def gradients(self, x, t):
    x = x.detach().requires_grad_()
    energy = self.linear(x).tanh().square().sum()
    (slope,) = torch.autograd.grad(energy, x, create_graph=True)
    return (slope.square().sum(1) - 1).square().mean()


def speech(self, x, t):
    logits = self.linear(x).reshape(8, 4, 5).transpose(0, 1).log_softmax(-1)
    lengths = torch.full((8,), 4), torch.full((8,), 1)
    return F.ctc_loss(logits, t.clamp(min=1)[:, None], *lengths, reduction="none").mean()


def spectra(self, x, t):
    z = torch.fft.rfft(self.linear(x)) * self.weight
    return F.cross_entropy(torch.fft.irfft(z, n=5), t)


def solves(self, x, t):
    a = self.linear(x).reshape(8, 4, 4)
    a = a @ a.mT + torch.eye(4)
    low = torch.linalg.cholesky(a)
    return (torch.linalg.solve(a, low).square().sum((1, 2)) + low.diagonal(dim1=-2, dim2=-1).log().sum(1)
            + torch.linalg.eigvalsh(a)[:, -1]).mean()


def branches(self, x, t):
    y = torch.cond(self.linear.bias.sum() > 0, lambda x: self.linear(x).tanh(), lambda x: self.linear(x).sigmoid() * 2, (x,))
    return F.cross_entropy(y, t)


def loops(self, x, t):
    from torch._higher_order_ops.map import map
    w, b = self.linear.weight, self.linear.bias
    return F.cross_entropy(map(lambda row: torch.tanh(row @ w.mT + b), x), t)


@torch.library.custom_op("composition::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x ** 3


cube.register_fake(torch.empty_like)
cube.register_autograd(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def operators(self, x, t):
    return F.cross_entropy(cube(self.linear(x)), t)


def quantized(self, x, t):
    return F.cross_entropy(torch.fake_quantize_per_tensor_affine(self.linear(x), 0.05, 0, -128, 127), t)


def checks(self, x, t):
    """What the step verifies: an assertion, one of PyTorch's, and those of a distribution."""
    y = self.linear(x)
    assert t.max() < 5, "labels"
    torch._assert_async((x.abs() < 100).all())
    normal = torch.distributions.Normal(y, F.softplus(y) + 0.1, validate_args=True)
    return F.cross_entropy(y, t) - normal.log_prob(torch.ones(5)).mean()


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor
    parts: dict


torch.export.register_dataclass(Output)


def interfaces(self, x, t):
    """A dataclass with a mapping inside; what is logged is beside what is trained on."""
    y = self.linear(x)
    return Output(y, F.cross_entropy(y, t), {"size": y.detach().square().mean()})


def packed(self, x, t):
    rows = nn.utils.rnn.pack_padded_sequence(self.linear(x).reshape(8, 4, 5), t.clamp(min=1), batch_first=True, enforce_sorted=False)
    _, last = self.rnn(rows)
    return last.square().sum(-1).mean()


KINDS = {"masks": (masks, 5, {}), "chosen": (chosen, 5, {}),
         "experts": (experts, 5, {"router": lambda: nn.Linear(3, 4), "up": lambda: torch.randn(4, 3, 4), "down": lambda: torch.randn(4, 4, 5)}),
         "gradients": (gradients, 5, {}), "speech": (speech, 20, {}),
         "spectra": (spectra, 5, {"weight": lambda: torch.randn(3, dtype=torch.cfloat)}), "solves": (solves, 16, {}),
         "checks": (checks, 5, {}), "interfaces": (interfaces, 5, {}), "branches": (branches, 5, {}), "loops": (loops, 5, {}), "operators": (operators, 5, {}), "quantized": (quantized, 5, {}),
         "packed": (packed, 20, {"rnn": lambda: nn.GRU(5, 3, batch_first=True)})}

#: Kinds whose samples are not told apart, so that they are neither cut into micro-batches nor shared out among ranks: packed
#: sequences are sorted by length.
WHOLE = {"packed"}


# Runs -----------------------------------------------------------------------------------------------------------

def run(folder, name, *options):
    """Parameters after the steps; None where it is refused, with what was said."""
    state = folder / name
    done = subprocess.run(["memopt-run", str(folder / "step.pt2"), f"--data={folder}/data.safetensors", "--optimizer=adamw", "--lr=1e-2",
                           "--eps=1e-3", f"--steps={STEPS}", "--quiet", f"--save={state}", *options], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr
    return load_file(state / "model.safetensors"), done.stderr


def write(folder, kind):
    folder.mkdir(parents=True, exist_ok=True)
    function, width, parameters = KINDS[kind]
    torch.manual_seed(0)
    model = Model(function, 6, width, **{key: make() for key, make in parameters.items()})
    batches = [{"x": torch.randn(SAMPLES, 6), "t": torch.randint(5, (SAMPLES,))} for _ in range(2 * STEPS)]
    program = export.export_program(export.TrainingStep(model), batches[0], training=True)
    export.save(program, folder / "step.pt2")
    save_file({f"step{i}.{key}": value.clone() for i, batch in enumerate(batches) for key, value in batch.items()},
              folder / "data.safetensors")


def same(one, other):
    return all(torch.equal(value, other[key]) for key, value in one.items())


def distance(one, other):
    return max(((value - other[key]).abs().max() / value.abs().max().clamp(min=1)).item() for key, value in one.items()
               if value.is_floating_point() and value.numel())


def smallest_budget(folder, *options):
    _, text = run(folder, "refused", "--device-memory=1KiB", *options)
    return re.search(r"smallest budget that would do is (\d+)", text).group(1)


def check(folder, kind, device):
    write(folder, kind)
    plain, text = run(folder, "plain")
    assert plain is not None, f"{kind}: {text}"
    if device:
        found, text = run(folder, "device", "--device=cuda", "--target=cuda", f"--target-features={device}")
        return [("device", found is not None and distance(plain, found) < 1e-4, text if found is None else distance(plain, found))]
    said = []

    def hold(name, ok, options, reference=plain):
        found, text = run(folder, name, *options)
        said.append((name, found is not None and ok(reference, found), text.strip() if found is None else distance(reference, found)))
    hold("budget", same, [f"--device-memory={smallest_budget(folder)}"])
    hold("offload", same, ["--offload-optimizer=cpu"])
    hold("activations offloaded", same, ["--offload-activation=cpu"])
    close = lambda a, b: distance(a, b) < 2e-5
    rounded = lambda a, b: distance(a, b) < 3e-2
    if kind in WHOLE:
        for option in ("--micro-batches=2", "--ranks=2"):
            found, text = run(folder, "parts", option)
            said.append((option, found is None and "mixes samples" in text, text.strip()))
    else:
        hold("micro-batches", close, ["--micro-batches=2"])
        accumulated, _ = run(folder, "accumulated", "--accumulative-counts=2")
        hold("ranks", same, ["--ranks=2"], accumulated)
        hold("ranks, all in shards", same, ["--ranks=2", "--zero-stage=3"], accumulated)
        together = ["--micro-batches=2", "--offload-optimizer=cpu"]
        budget = f"--device-memory={smallest_budget(folder, *together)}"
        hold("micro-batches, offload and budget", close, [*together, budget])
        hold("ranks, micro-batches, offload and bf16", rounded, [*together, "--ranks=2", "--precision=bf16"], accumulated)
    hold("bf16", rounded, ["--precision=bf16"])
    return said


def main():
    words, device = sys.argv[2:], None
    if words[:1] == ["--device"]:
        device, words = words[1], words[2:]
    torch.set_num_threads(1)
    failed = 0
    for kind in words or KINDS:
        for name, ok, what in check(pathlib.Path(sys.argv[1]) / kind, kind, device):
            failed += not ok
            print(f"{'ok' if ok else 'FAILED'} {kind}, {name}: {what}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
