# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is left out of a step because nobody reads it: frequencies of transforms, and rows that an expert does not take."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

import memopt


def train(model, batch, steps=3, compiled=False, **options):
    """Losses and parameters; of a compiled step also its bytes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if compiled:
        step = memopt.compile(model, None, batch, optimizer=optimizer, **options)
        losses = [step(batch) for _ in range(steps)]
        step.sync()
        return losses, model.state_dict(), step.plan.peak_bytes["device"]
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def distance(found, wanted):
    """The largest error of losses and parameters, by the largest of each."""
    pairs = [(torch.tensor(found[0]).double(), torch.tensor(wanted[0]).double())]
    pairs += [(torch.view_as_real(value) if value.is_complex() else value, torch.view_as_real(other) if other.is_complex() else other)
              for value, other in zip(found[1].values(), wanted[1].values())]
    return max(((value.double() - other.double()).abs().max() / other.abs().max()).item() for value, other in pairs)


def wide(value):
    return value.double() if value.is_floating_point() else value


def widen(model):
    for module in model.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(value.detach().to(torch.cdouble if value.is_complex() else torch.double)))
    return model


def compare(name, model, batch):
    """Beside PyTorch in float64, not more than twice as far from it as PyTorch itself; returns the bytes."""
    exact = train(widen(copy.deepcopy(model)), {key: wide(value) for key, value in batch.items()})
    plain = distance(train(copy.deepcopy(model), batch), exact)
    *found, size = train(copy.deepcopy(model), batch, compiled=True)
    error = distance(found, exact)
    assert error <= max(2 * plain, 1e-6), (name, error, plain)
    print(f"ok {name}")
    return size


# --------------------------------------------------------------- spectra


class Spectral(nn.Module):
    """A layer of a Fourier operator, that takes and gives `kept` frequencies of each end: in one dimension, two or three, over real or
    complex transforms, of lengths that are split or not."""

    def __init__(self, dims, kept, norm, width=3):
        super().__init__()
        self.dims, self.kept, self.norm = dims, kept, norm
        self.before, self.after = nn.Linear(2, width), nn.Linear(width, 1)
        self.weight = nn.Parameter(torch.randn(2, width, width, *[kept] * dims, dtype=torch.cfloat) / width)

    def forward(self, x, y):
        x = self.before(x).movedim(-1, 1)
        places = list(range(-self.dims, 0))
        spectrum = torch.fft.rfftn(x, dim=places, norm=self.norm)
        out = torch.zeros_like(spectrum)
        sum_over = {1: "bix,iox->box", 2: "bixy,ioxy->boxy", 3: "bixyz,ioxyz->boxyz"}[self.dims]
        first = (..., *[slice(self.kept)] * self.dims)
        last = (..., *[slice(-self.kept, None)] * (self.dims - 1), slice(self.kept))
        out[first] = torch.einsum(sum_over, spectrum[first], self.weight[0])
        if self.dims > 1:
            out[last] = torch.einsum(sum_over, spectrum[last], self.weight[1])
        x = x + torch.fft.irfftn(out, s=x.shape[-self.dims:], dim=places, norm=self.norm)
        return F.mse_loss(self.after(F.gelu(x).movedim(1, -1)), y)


class Filter(nn.Module):
    """A band of a signal's complex spectrum, and a few of the frequencies of windows."""

    def __init__(self):
        super().__init__()
        self.linear, self.gain = nn.Linear(40, 40), nn.Parameter(torch.rand(6))

    def forward(self, x, y):
        z = torch.fft.fft(self.linear(x))
        band = z[:, 3:9] * self.gain
        wide = torch.zeros_like(z)
        wide[:, 20:26] = band
        windows = torch.stft(self.linear(x), 16, 4, return_complex=True, window=torch.ones(16))
        low = windows[:, :3].abs().square().mean()
        return F.mse_loss(torch.fft.ifft(wide).real + torch.fft.irfft(torch.fft.rfft(x, n=80)[:, :5], n=40), y) + low


def check_spectra():
    for dims, size, kept, norm in ((1, (200,), 7, None), (1, (15,), 4, "ortho"), (2, (16, 24), 3, None), (2, (9, 16), 4, "forward"),
                                   (3, (8, 6, 10), 2, None)):
        torch.manual_seed(0)
        batch = {"x": torch.randn(2, *size, 2), "y": torch.randn(2, *size, 1)}
        compare(f"{dims} dimensions, {kept} of {size}", Spectral(dims, kept, norm), batch)
    torch.manual_seed(0)
    compare("bands", Filter(), {"x": torch.randn(3, 40), "y": torch.randn(3, 40)})


# --------------------------------------------------------------- experts


class Expert(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(width, 2 * width, bias), nn.Linear(width, 2 * width, bias), nn.Linear(2 * width, width, bias)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    def __init__(self, mix, count=8, width=48, bias=False):
        super().__init__()
        self.mix, self.gate = mix, nn.Linear(width, count)
        self.experts = nn.ModuleList(Expert(width, bias) for _ in range(count))

    def forward(self, x, y):
        rows = x.flatten(0, -2)
        return F.mse_loss(self.mix(self, rows, self.gate(rows).softmax(-1)).view_as(x), y)


def one_expert(self, x, scores):
    """As Switch has it: a mask of the rows whose best expert this is."""
    weight, chosen = scores.max(-1)
    out = torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        mask = chosen == number
        if mask.any():
            out[mask] = expert(x[mask]) * weight[mask, None]
    return out


def places_of_two(self, x, scores):
    weights, chosen = scores.topk(2)
    out = torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        row, place = torch.where(chosen == number)
        out = out.index_add(0, row, expert(x[row]) * weights[row, place, None])
    return out


def any_of_two(self, x, scores):
    weights, chosen = scores.topk(2)
    out = torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        hit = chosen == number
        mask = hit.any(-1)
        out[mask] += expert(x[mask]) * (weights * hit).sum(-1)[mask, None]
    return out


def one_hot(self, x, scores):
    """As Mixtral has it."""
    weights, chosen = scores.topk(2)
    mask = F.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
    out = torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        place, row = torch.where(mask[number])
        out.index_add_(0, row, expert(x[row]) * weights[row, place, None])
    return out


def by_scores(self, x, scores):
    """Each expert takes what it has more than its share of, so there is no limit to the rows of all."""
    out = torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        mask = scores[:, number] > 0.12
        out[mask] += expert(x[mask]) * scores[:, number][mask, None]
    return out


def check_experts():
    torch.manual_seed(0)
    batch = {"x": torch.randn(4, 40, 48), "y": torch.randn(4, 40, 48)}
    sizes = {}
    for mix, bias in ((one_expert, False), (places_of_two, True), (any_of_two, True), (one_hot, False), (by_scores, False), (by_scores, True)):
        torch.manual_seed(1)
        sizes[mix.__name__, bias] = compare(f"{mix.__name__}, bias {bias}", Experts(mix, bias=bias), batch)
    for (name, bias), size in sizes.items():
        assert name == "by_scores" or size < 0.75 * sizes["by_scores", bias], sizes
    # Experts that no row has, and one that all have.
    torch.manual_seed(1)
    model = Experts(one_expert, bias=True)
    with torch.no_grad():
        model.gate.weight.zero_()
        model.gate.bias[5] = 9
    compare("all rows of one expert", model, batch)


def check_bits():
    """Within the smallest budget, too, which runs some kernels again."""
    torch.manual_seed(0)
    batch = {"x": torch.randn(4, 40, 48), "y": torch.randn(4, 40, 48)}
    model = Experts(one_hot)
    losses, state, size = train(copy.deepcopy(model), batch, compiled=True)
    try:
        train(copy.deepcopy(model), batch, compiled=True, device_memory=1)
        raise AssertionError("no model fits into a byte")
    except memopt.DoesNotFit as refusal:
        smallest = refusal.smallest_budget
    assert smallest < size, (smallest, size)
    again, other, _ = train(copy.deepcopy(model), batch, compiled=True, device_memory=smallest)
    assert losses == again and all(torch.equal(state[key], other[key]) for key in state)
    print("ok bits within the smallest budget")


if __name__ == "__main__":
    torch.set_num_threads(1)
    check_spectra()
    check_experts()
    check_bits()
