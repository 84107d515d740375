# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_recurrent.py [--device]: recurrent layers are loops, with PyTorch's numbers.

Each kind of layer trains three steps, held against PyTorch in float64: losses and parameters may be off by three times what
PyTorch in float32 is. Micro-batches give the same numbers, the smallest budget the same bits. A program has as many
instructions for a long sequence as for one of another length with as many loops, and four times as many steps need about
twice the memory. A trace looks at as many turns of a long sequence as of a short one, and gives the shapes that PyTorch gives.
With --device, the kinds on the emulated device.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

import memopt
from memopt import export

KINDS = {
    "lstm": lambda: nn.LSTM(6, 10, num_layers=2, bidirectional=True),
    "projected": lambda: nn.LSTM(6, 12, proj_size=5),
    "gru": lambda: nn.GRU(6, 10, batch_first=True),
    "gru without bias": lambda: nn.GRU(6, 7, bias=False, bidirectional=True),
    "tanh": lambda: nn.RNN(6, 10, num_layers=2),
    "relu": lambda: nn.RNN(6, 10, nonlinearity="relu"),
}


class Sequence(nn.Module):
    """A layer over [time, samples, 6], and what its last states say, with `outputs` those too."""

    def __init__(self, layer, outputs):
        super().__init__()
        self.layer, self.outputs = layer, outputs
        width = (layer.proj_size or layer.hidden_size) * (2 if layer.bidirectional else 1)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        y, last = self.layer(x.transpose(0, 1) if self.layer.batch_first else x)
        last = last[0] if isinstance(last, tuple) else last
        if not self.outputs:
            return self.head(last[-1])
        return self.head(y).mean(1 if self.layer.batch_first else 0) + last.mean((0, 2))[:, None]


def make(kind, steps=40, samples=4, outputs=True):
    torch.manual_seed(3)
    model = Sequence(KINDS[kind](), outputs)
    return model, [(torch.randn(steps, samples, 6), torch.randn(samples, 3)) for _ in range(3)]


def _compute_loss(model, batch, dtype):
    x, t = batch
    return F.mse_loss(model(x.to(dtype)), t.to(dtype))


def train_here(model, batches, dtype, rate=0.3, compute_loss=_compute_loss):
    model = copy.deepcopy(model).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = compute_loss(model, batch, dtype)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, dict(model.named_parameters())


def compile_step(model, batches, **options):
    model = copy.deepcopy(model)
    return memopt.compile(model, F.mse_loss, batches[0], optimizer=torch.optim.SGD(model.parameters(), lr=0.3), **options)


def train(step, batches):
    losses = [float(step(batch)) for batch in batches]
    return losses, step.state_dict()["model"]


def compare(kind, found, exact, single, factor=3):
    losses, state = found
    for mine, theirs, plain in zip(losses, exact[0], single[0]):
        assert abs(mine - theirs) <= factor * abs(plain - theirs) + 1e-6 * abs(theirs), (kind, losses, exact[0])
    allowed = max((single[1][name] - value).abs().max() for name, value in exact[1].items())
    for name, value in exact[1].items():
        error = (state[name].double() - value).abs().max()
        assert error <= factor * allowed + 1e-6 * value.abs().max(), (kind, name, error, allowed)


def check_numbers(kind, **options):
    model, batches = make(kind)
    exact, single = (train_here(model, batches, dtype) for dtype in (torch.float64, torch.float32))
    found = train(compile_step(model, batches, **options), batches)
    compare(kind, found, exact, single)
    return model, batches, found, exact, single


def check_kind(kind):
    model, batches, plain, exact, single = check_numbers(kind)
    compare(kind, train(compile_step(model, batches, micro_batches=2), batches), exact, single)
    least, step = compile_smallest(model, batches)
    losses, state = train(step, batches)
    assert losses == plain[0], (kind, losses, plain[0])
    for name, value in plain[1].items():
        assert torch.equal(state[name], value), (kind, name)
    print(f"{kind}: PyTorch's numbers, the same bits in {least} bytes")


def count_packings(step):
    return sum(call["kind"] == "pack_weights" for call in step.plan.manifest["library_calls"])


def check_packing():
    """Weights are packed in front of loops where bytes allow, which changes no bit, in bf16 either."""
    for options in ({}, {"precision": "bf16"}):
        torch.manual_seed(3)
        model = Sequence(nn.LSTM(6, 64), outputs=True)
        batches = [(torch.randn(60, 16, 6), torch.randn(16, 3)) for _ in range(3)]
        free = compile_step(model, batches, **options)
        least, tight = compile_smallest(model, batches, **options)
        assert count_packings(free) > count_packings(tight) == 0, (options, count_packings(free), count_packings(tight))
        (losses, state), (expected, expected_state) = train(tight, batches), train(free, batches)
        assert losses == expected and all(torch.equal(state[name], value) for name, value in expected_state.items()), options
    print("packed weights: the same bits")


def compile_smallest(model, batches, **options):
    """The smallest budget, and its step: what the error about one that does not do says. Padding between buffers may still ask for
    a little more, which the next error says."""
    budget = 1
    for _ in range(6):
        try:
            return budget, compile_step(model, batches, device_memory=budget, **options)
        except memopt.DoesNotFit as error:
            assert budget == 1 or error.smallest_budget <= 1.03 * budget, (budget, error.smallest_budget)
            budget = error.smallest_budget
    raise AssertionError(f"no step in {budget} bytes")


def check_growth():
    """Without the sequence itself; four times as many steps."""
    bytes_of, instructions = {}, {}
    for steps in (100, 400):
        model, batches = make("relu", steps, samples=16, outputs=False)
        bytes_of[steps] = compile_smallest(model, batches)[0] - batches[0][0].numel() * 4
    assert bytes_of[400] <= 2.5 * bytes_of[100], bytes_of
    for steps in (601, 620):  # 64 loops each
        model, batches = make("gru", steps)
        instructions[steps] = len(compile_step(model, batches).plan.manifest["instructions"])
    assert instructions[601] == instructions[620], instructions
    print(f"growth: {bytes_of}; {instructions[601]} instructions")


def trace(kind, steps):
    """The program of a step, and how many activations of turns PyTorch's decompositions of layers have computed for it."""
    model, (batch, *_) = make(kind, steps)
    turns = 0

    def count(tensor):
        nonlocal turns
        turns += 1
        return sigmoid(tensor)
    sigmoid, torch.Tensor.sigmoid = torch.Tensor.sigmoid, count
    try:
        step = export.TrainingStep(model, F.mse_loss, ["target"], return_prediction=False)
        return export.export_program(step, {"x": batch[0], "target": batch[1]}, training=True), turns
    finally:
        torch.Tensor.sigmoid = sigmoid


def check_trace():
    for kind in ("lstm", "gru"):
        (short, few), (long, many) = trace(kind, 5), trace(kind, 700)
        assert few == many > 0, (kind, few, many)
        shapes = [[tuple(node.meta["val"].shape) for node in program.graph.nodes
                   if isinstance(node.meta.get("val"), torch.Tensor)] for program in (short, long)]
        assert [tuple(700 if size == 5 else size for size in shape) for shape in shapes[0]] == shapes[1], shapes
        layer = next(node for node in long.graph.nodes if node.target in (torch.ops.aten.lstm.input, torch.ops.aten.gru.input))
        outputs, *last = layer.meta["val"]
        model, (batch, *_) = make(kind, 700)
        x = batch[0].transpose(0, 1) if model.layer.batch_first else batch[0]
        expected, of_last = model.layer(x)
        of_last = of_last if isinstance(of_last, tuple) else (of_last,)
        for traced, computed in zip([outputs, *last], [expected, *of_last], strict=True):
            assert traced.shape == computed.shape, (kind, traced.shape)
    print("traces of one turn")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", action="store_true")
    arguments = parser.parse_args()
    if arguments.device:
        for kind in KINDS:
            check_numbers(kind, device="cuda")
        print(f"{len(KINDS)} kinds on a device")
        return
    for kind in KINDS:
        check_kind(kind)
    check_packing()
    check_growth()
    check_trace()


if __name__ == "__main__":
    main()
