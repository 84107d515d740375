# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs with masks, complex numbers, branches and loops, written anew; and one step with checks, compiled."""

import math

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

import memopt
from memopt import export
from rewriting import Model, case, check_all, compare_step


# Masks ----------------------------------------------------------------------------------------------------------

@case()
def rows(self, x, t):
    y = self.linear(x)
    kept = t >= 0
    return F.cross_entropy(y[kept], t[kept]) + y[~kept].pow(2).mean() + y[y > 0].log().sum()


@case()
def written(self, x, keep):
    y = self.linear(x)
    out = torch.zeros_like(y)
    out[keep] = y[keep] * y[keep].sum(1, keepdim=True)
    out[~keep] = y[~keep][:, 0:1]
    out[out > 1] = 1
    return out.square().sum()


@case()
def as_many_rows(self, x):
    """Masks that choose as many rows as another tensor has: of each sample one class, and rows for four of the samples."""
    y = self.linear(x)
    mask = F.one_hot(y.argmax(1), 5) == 1
    y = y + mask * (y[mask].cos() - y[mask]).unsqueeze(1)
    first = x[:, 0].argsort().argsort() < 4
    out = torch.zeros_like(y)
    out[first] = y[:4] * 2
    out[~first] = y[4:].tanh()
    return out.square().sum()


@case()
def written_at_labels(self, x, t):
    y = self.linear(x)
    classes = torch.zeros_like(y)
    kept = t >= 0
    classes[kept, t[kept]] = y[kept].sum(1)
    return F.binary_cross_entropy_with_logits(y, classes.sigmoid())


@case()
def padded_by_counts(self, x, t):
    """As many rows for each sample as the one with the most has, which counts say; a number for all, rows of all samples side by side."""
    y, sample = self.linear(x), t % 3
    _, counts = sample.unique(return_counts=True)
    most = counts.to(torch.int32).max()
    starts = torch.zeros(4, dtype=torch.int64).scatter_add_(0, sample + 1, torch.ones_like(sample)).cumsum(0)
    order = sample.argsort(stable=True)
    places = torch.arange(12) - starts[sample[order]]
    out = torch.zeros(3, most, 5)
    out[sample[order], places] = y[order]
    filled = out.sum(2, keepdim=True).gt_(0.0)
    wanted = (torch.arange(12) % 2 + torch.arange(3)[:, None] * out.shape[1]).flatten()
    return (out * filled).square().sum() + out.view(-1, 5)[wanted].sum() + x.new_full((2, 2), counts.max()).sum()


@case()
def lengths_to_mask(self, x):
    """As speech models make it."""
    y, lengths = self.linear(x).view(3, 4, 5), (x[:3, 0] > 9).long() + torch.tensor([2, 4, 3])
    longest = int(torch.max(lengths).item())
    mask = torch.arange(longest).expand(3, longest) >= lengths.unsqueeze(1)
    return y.masked_fill(mask.unsqueeze(2), 0.0).square().sum()


@case()
def known_masks(self, x):
    y = self.linear(x)
    near = y @ y.mT
    others = near[~torch.eye(12, dtype=torch.bool)].view(12, -1)
    upper = torch.ones(12, 12).triu_(1).bool()
    near = near.clone()
    near[upper] = others[:, :6].flatten()[:66] * 2
    i, j = torch.where(upper)
    apart = (y[:, None] - y)[None].masked_select(~torch.eye(12, dtype=torch.bool)[None, :, :, None]).reshape(1, 12, 11, -1)
    return others.logsumexp(1).sum() + near.square().sum() * 0.01 + (y[i] - y[j]).abs().sum() + apart[0, 3].exp().sum()


@case()
def counted(self, x, t):
    y = self.linear(x)
    known = t.clamp(min=0)
    count = torch.bincount(known, minlength=5)
    return (torch.zeros(5, 5).index_add(0, known, y) / count.clamp(min=1)[:, None]).exp().sum() + torch.bincount(
        known, weights=x[:, 0].double(), minlength=5).square().sum().float()


@case()
def counted_rows(self, x, t):
    """Degrees of nodes, without edges from a node to itself."""
    y = self.linear(x)
    known = t >= 0
    rows = t[known]
    count = torch.bincount(rows, minlength=5)
    means = torch.zeros(5, 5).index_add(0, rows, y[known]) / count.clamp(min=1)[:, None]
    return means.exp().sum() + torch.bincount(rows, weights=x[known, 0], minlength=6).square().sum()


@case()
def segments(self, x):
    y = self.linear(x)
    lengths = torch.tensor([3, 0, 5, 2])  # the last two rows have no segment
    offsets = torch.tensor([0, 4, 4, 12])
    total = torch.segment_reduce(y, "sum", lengths=lengths, unsafe=True).square().sum()
    total = total + torch.segment_reduce(y, "max", offsets=offsets, initial=-1.0).exp().sum()
    total = total + torch.segment_reduce(y, "mean", offsets=offsets, initial=0.0).square().sum()
    by_row = torch.segment_reduce(y, "min", lengths=torch.tensor([[2, 3]]).expand(12, 2), axis=1)
    return total + by_row.exp().sum() + torch.segment_reduce(y, "prod", offsets=offsets).sum()


@case()
def histograms(self, x):
    y = self.linear(x)
    counts, edges = torch.histogram(y.detach(), 6)
    given, _ = torch.histogram(y.detach(), torch.tensor([-2.0, -0.5, 0.25, 1.0]), weight=x[:, :5].abs())
    dense, _ = torch.histogram(y.detach(), 4, range=(-1.0, 1.0), density=True)
    grid, _ = torch.histogramdd(y[:, :2].detach(), [3, 2])
    return y.square().sum() * (counts * edges[:-1]).sum() + (given.square().sum() + dense.sum() + (grid * torch.arange(2)).sum()) * y.sum()


@case()
def fractional_pooling(self, x):
    image = self.linear(x).reshape(2, 2, 3, 5)
    where = torch.tensor([[[0.1, 0.9], [0.5, 0.4]], [[0.7, 0.2], [0.3, 0.6]]])
    small, index = torch.ops.aten.fractional_max_pool2d(image, [2, 2], [2, 3], where)
    volume = self.linear(x).reshape(1, 1, 3, 4, 5)
    volume, _ = torch.ops.aten.fractional_max_pool3d(volume, [2, 2, 2], [1, 2, 3], torch.tensor([[[0.1, 0.9, 0.3]]]))
    return small.exp().sum() + volume.square().sum() * index.sum()


@case()
def aligned_regions(self, x):
    image = self.linear(x).reshape(2, 2, 3, 5)
    boxes = torch.tensor([[0, 0.3, 0.2, 3.1, 2.7], [1, -1.0, 0.5, 9.0, 1.0], [1, 2.0, 1.0, 2.4, 5.0], [0, 7.0, 7.0, 8.0, 8.0]])
    align = torchvision.ops.roi_align
    return (align(image, boxes, (2, 3), sampling_ratio=2, aligned=True).sin().sum() + align(image, boxes, 2, 0.5, 3).cos().sum()
            + align(image, boxes, (2, 1), 0.5, aligned=True).exp().sum() + align(image, boxes, 3, 0.4).square().sum())


@case(w=lambda: torch.randn(4, 1, 2, 3), v=lambda: torch.randn(2, 2, 1, 2))
def moved_taps(self, x):
    image = self.linear(x).reshape(2, 2, 3, 5)
    offset = F.pad(self.linear(x).flatten(), (0, 84)).reshape(2, 24, 1, 3) + 0.3
    mask = offset[:, :12].sigmoid()
    y = torchvision.ops.deform_conv2d(image, offset, self.w, stride=(2, 2), padding=(0, 1), mask=mask)
    near = self.linear(x).flatten()[:40].reshape(2, 4, 1, 5).expand(2, 4, 3, 5) * 0.5
    z = torchvision.ops.deform_conv2d(image, near, self.v, torch.ones(2), padding=(0, 1), dilation=(1, 2))
    return y.sin().sum() + z.square().sum()


@case()
def apart(self, x):
    y = self.linear(x)
    mantissa, exponent = torch.frexp(y)
    whole, powers = torch.frexp(torch.tensor([0.0, 1.0, -0.5, 1e-40, 3e38, 5.0]))
    return (mantissa.square() * exponent).sum() + y.sum() * (whole * powers).sum()


@case()
def places(self, x, keep):
    y = self.linear(x)
    (found,) = torch.where(keep)
    total = torch.zeros(4, 5).index_add(0, found % 4, y[found].tanh())
    most = torch.full((4, 5), -9.0).scatter_reduce(0, (found % 4)[:, None].expand(-1, 5), y[found], "amax")
    return total.sum() + most.exp().sum() + torch.masked_select(y, y < 0).std() / keep.nonzero().size(0)


@case()
def coordinates(self, x, t):
    """Places of a mask that index where it lies: in place, along several axes, moved, added to, written once."""
    y = self.linear(x)
    (rows,) = torch.where(t > 0)
    both = (y > 0).nonzero()
    row, column = both[:, 0], both.unbind(1)[1]
    moved = rows + 0
    moved += (moved < 11).long()
    added = torch.zeros(12, 5).index_add(0, rows, y[rows].tanh()).index_add_(0, row, y[row] * y[row, column, None])
    written = torch.zeros(5, 12).clone()
    written[column, row] = y[row, column]
    written[column, row] += x.index_select(0, row)[:, 0]
    written[0][rows] = x[rows, 1]
    few = y[row].exp()  # equal along an axis until it counts
    return (added.square().sum() + written.cos().sum() + y[moved].sin().sum() + few.mean() + few[:, 0].std() + few[column > 2].sum()
            + (few @ y.mT).amax() + F.mse_loss(few, x[row, :5]) + few.shape[0] * 0.1 + F.relu(y[row], inplace=True).sum())


@case()
def two_masks(self, x, keep):
    y = self.linear(x)
    order = torch.arange(12)
    first, last = order < keep.sum(), order >= 12 - keep.sum()
    return (y[first] * y[last]).sum() + torch.cat([y[first], y[last], y]).amax(0).sum()


@case()
def positives(self, x, t):
    y = self.linear(x)
    found = torch.nonzero(t >= 0).squeeze(1)
    classes = torch.zeros_like(y)
    classes[found, t[found]] = 1
    each = F.binary_cross_entropy_with_logits(y, classes, reduction="none")
    count = (t >= 0).sum().clamp(min=1)
    return (each.sum() + F.smooth_l1_loss(y[found], x[found, :5], reduction="sum", beta=0.1) + F.mse_loss(
        y[t >= 0], x[t >= 0][:, 1:], reduction="sum")) / count + each[found].sum() / torch.sym_max(found.size(0), 1)


@case()
def slices(self, x, keep):
    rows = self.linear(x)[keep]
    return (rows[1:] * rows[:-1]).sum() + rows[-2:].mean() + rows[::2].square().sum() + rows[1:3].prod() + rows[-1].sum() + rows[1, 0] \
        + rows.diff(dim=0).abs().sum() + rows.diff(n=2, dim=0).square().mean() + rows.diff(dim=1).amax()


@case()
def ordered(self, x, keep):
    """Rows by their values, and the places of extremes, numbers among the rows that count."""
    rows = self.linear(x)[keep]
    values, order = rows[:, 0].sort(descending=True)
    largest, places = rows[:, 1].topk(2)
    most, place = rows.max(0)
    weights = torch.arange(values.size(0)) + 1
    return ((values * weights).sum() + (rows[order, 2] * values.cumsum(0)).sum() + rows[places].sin().sum() + (largest * most[:2]).sum()
            + rows[place, 3].exp().sum() + rows[rows[:, 4].argmin(), 0] + rows.sort(dim=1)[0][:, 0].prod()
            + (rows[rows[:, 3].argsort()][1:, 1] * rows[1:, 2]).sum())


@case()
def turned(self, x, keep):
    """Rows from the last to the first, and their elements one behind the other."""
    y = self.linear(x)
    rows = y[keep]
    back = rows.flip(0)
    filled = y.masked_scatter(keep[:, None], back.flip(-1)) + torch.zeros_like(y).index_copy(0, keep.nonzero()[:, 0], rows.flip(0, 1).sin())
    few = x.masked_scatter(x > 1.5, y[y[:, 0] > -100])
    return filled.pow(2).sum() + (back * rows).sum() + few.pow(3).sum()


@case()
def hardest(self, x, keep):
    """As many as follow from the data."""
    losses = self.linear(x).square().sum(1)
    others = losses[~keep]
    count = int((keep.sum() + 1) // 2)
    return losses[keep].sum() + others.topk(count)[0].square().sum() + losses.topk(count, largest=False)[0].mean()


@case(outside=70, head=lambda: nn.Linear(70, 60))
def wide(self, x, keep):
    """Products leave out rows that do not count, and what follows is defined on them."""
    rows = self.linear(x[keep])
    return self.head(rows.abs().log()).exp().mean() + (rows @ self.head.weight.mT).abs().sqrt().sum()


@case()
def degrees(self, x, t):
    """Edges without loops and then all loops, and as many ones."""
    y, nodes = self.linear(x), torch.arange(12)
    edges = torch.stack([nodes.repeat(2), torch.cat([(nodes + t) % 12, (nodes * 5) % 12])])
    edges = torch.cat([edges[:, edges[0] != edges[1]], nodes.expand(2, 12)], 1)
    degree = torch.zeros(12).scatter_add_(0, edges[1], torch.ones(edges.size(1)))
    weight = degree.rsqrt()[edges[0]] * degree.rsqrt()[edges[1]]
    return torch.zeros_like(y).index_add_(0, edges[1], weight[:, None] * y[edges[0]]).square().sum()


@case()
def columns(self, x, t):
    """Splines write the ends of their bins so."""
    rows = self.linear(x)[t >= 0]
    edges = F.pad(rows.softmax(-1).cumsum(-1), (1, 0))
    edges[..., 0] = -1.0
    edges[:, -1] = rows[:, 0]
    edges[:, 1:3] += 1
    return ((edges[:, 1:] - edges[:, :-1]) * rows).sum()


@case()
def reductions(self, x, keep):
    y = self.linear(x)[keep]
    return y.logsumexp(0).sum() + y.amax(0).sum() + y.var() + y.softmax(-1).max(-1).values.mean() + y.std(0).sum() + y[:, 1].norm()


@case()
def rows_of_rows(self, x, keep):
    y = self.linear(x)[keep]
    overlap = torch.zeros_like(y[:, 0])
    both = (y[:, 1] > y[:, 0]) & (torch.max(y[:, 2], y[:, 0]) < 1)
    overlap[both] = (y[both][:, 1] - y[both][:, 0]) * 2
    return overlap.square().sum() + y[both].exp().sum() + F.hardswish(y).mean()


@case()
def groups(self, x, t, keep):
    """Elements by a mask of rows that is expanded over them, and by another mask, in rows of five and three."""
    y = self.linear(x)
    expanded = (t >= 0).unsqueeze(1).expand_as(y)
    both = (expanded + (t == 2)[:, None].expand_as(y)).gt(0)
    others = (keep[:, None] & (torch.arange(5) != 2)).reshape(4, 15)
    return (F.smooth_l1_loss(y[expanded].view(-1, 5), x[:, 1:][both].view(-1, 5), reduction="sum")
            + (y.reshape(4, 15)[others].view(-1, 2) * torch.tensor([1.0, 3.0])).square().sum())


@case()
def numbered(self, x, t):
    y = self.linear(x)[t >= 0]
    count, classes = y.shape[0], torch.full_like(y, 0.1)
    classes[range(count), t[t >= 0]] = 0.9
    return F.binary_cross_entropy_with_logits(y, classes, reduction="sum")


@case()
def widened(self, x, keep):
    y = self.linear(x)[keep]
    return F.pad(y.cumsum(-1), (1, 0), value=0.5).square().sum() + F.pad(y, (1, 1)).exp().mean()


@case()
def places_of_numbers(self, x, t):
    """Places that follow from the data, in slices, narrow, writes and arithmetic."""
    y, t = self.linear(x), t.clamp(0, 3)
    place, z = int(t[0]), y.clone()
    z[place] = y[0] * 2
    z[:, place] = y[:, 3]
    z[place:place + 2] += 1
    z[..., place:place + 2] = 0.5
    z[place, :] = 3.0
    return (y.narrow(1, t[1], 2).square().sum() + y.narrow(0, place, 3).sum() + y[place + 1].tanh().sum() + y[place:place + 2].exp().sum()
            + place * y.mean() + z.square().sum() + z[:, place].sum())


@case()
def likelihood(self, x):
    """The check of gaussian_nll_loss is one of the step."""
    mean, scale = self.linear(x)[:, :2], F.softplus(self.linear(x)[:, 2:4])
    first, second = torch.atleast_2d(mean.mean(), scale.mean())
    return (F.gaussian_nll_loss(mean, x[:, :2], scale) + nn.GaussianNLLLoss(full=True, reduction="sum")(mean, x[:, 2:4], scale.mean(-1))
            + (first * second).sum())


@case()
def advantages(self, x):
    """What was made of nothing is written under torch.no_grad(), and behind it."""
    y, found = self.linear(x), torch.zeros_like(x[:, 0])
    with torch.no_grad():
        for number in range(3):
            found[number + 1] = y[number, 1] * 2
        found[4:].add_(y[4:, 0])
    found[7] = y[7, 3]
    return (found * y[:, 2]).sum()


@case()
def one_of_each(self, x, t):
    y = self.linear(x)
    found, inverse, counts = torch.unique(t, return_inverse=True, return_counts=True)
    runs, lengths = torch.unique_consecutive(t, return_counts=True)
    rows = y[found % 12].tanh()
    return (rows[inverse] * y).sum() + (rows.square().sum(1) * counts).sum() + (y[runs % 12].sum(1) * lengths).sum()


@case()
def repeated(self, x, keep):
    y = self.linear(x)
    counts = torch.where(torch.arange(12) < 6, keep, ~keep.roll(6)).to(torch.int64)  # six in all
    places = torch.repeat_interleave(counts, output_size=6)
    return (torch.repeat_interleave(y, counts, dim=0, output_size=6) * x[places, :5].cos()).square().sum()


# Complex numbers ------------------------------------------------------------------------------------------------

@case(weight=lambda: torch.randn(5, 3, dtype=torch.cfloat))
def spectrum(self, x):
    z = torch.fft.fft(self.linear(x)) @ self.weight
    z = z / (1 + z.abs()) + torch.polar(z.abs(), z.imag) * 1j
    return torch.fft.irfft(z, n=6).square().sum() + z.angle().sum() + (z * z.conj()).real.mean()


@case(outside=200)
def long_spectra(self, x):
    y = self.linear(x)
    z = torch.fft.rfft(y, norm="ortho")
    return (torch.fft.irfft(z * torch.exp(-z.abs()), n=200, norm="ortho") * y).sum() + torch.fft.fft2(y).abs().mean()


@case(outside=64)
def short_time(self, x):
    window = torch.hann_window(16)
    z = torch.stft(self.linear(x), 16, 4, window=window, return_complex=True)
    return torch.istft(z * z.abs(), 16, 4, window=window, length=64).square().mean()


@case(outside=64)
def whole_short_time(self, x):
    z = torch.stft(self.linear(x), 16, 4, window=torch.hann_window(16), onesided=False, return_complex=True)
    y = torch.istft(z * z.abs(), 16, 4, window=torch.hann_window(16), length=64)
    back = torch.istft(z * 1j, 16, 4, window=torch.hann_window(16), return_complex=True)
    again = torch.stft(back, 16, 8, window=torch.hann_window(16), return_complex=True)
    return y.square().mean() + back.abs().mean() + (again.mH @ again).abs().mean()


@case(weight=lambda: torch.randn(5, dtype=torch.cfloat))
def complex_directions(self, x):
    z = self.linear(x) * self.weight + 1j * self.linear(x).cos()
    return torch.view_as_real(F.normalize(z, p=1.0, dim=1) + z / z.abs().sum(0, keepdim=True).expand_as(z)).square().sum()


@case()
def repeated_rows(self, x, keep):
    """One behind the other, as two views of what a batch chooses."""
    y = self.linear(x)[keep]
    both = y.repeat(2, 1)
    alike = F.normalize(both, dim=1) @ F.normalize(y.repeat(1, 2)[:, :5], dim=1).mT
    return both.square().mean() + alike.exp().sum() + y[None].repeat(2, 3, 1).amax() + (both - torch.cat([y.cos(), y.sin()])).abs().mean()


@case()
def complex_names(self, x):
    """What operators make shares nothing with what they were given; conjugates are views."""
    y = self.linear(x)
    z = torch.complex(y, x[:, :5])
    torch.view_as_real(z)[..., 0].mul_(0.5)
    moved = z + 1
    moved.mul_(1j)
    conjugate, turned = z.conj(), z.mH
    z.mul_(1 + 0.5j)
    conjugate[0].mul_(2)
    total = (y * z.real).square().mean() + moved.abs().mean() + (conjugate * moved).imag.square().mean()
    return total + turned.imag.sum() * 0.1 + z.imag.sin().mean()


@case(weight=lambda: torch.randn(5, dtype=torch.cfloat))
def far_complex(self, x):
    """Whose squares vanish or overflow."""
    sizes = torch.tensor([1e-30, 1e-3, 1, 1e3, 1e30])
    z = self.linear(x) * self.weight * sizes
    return (z.abs() / sizes).square().sum() + ((1 / z).detach().abs() * sizes).log().sum()


@case(weight=lambda: torch.randn(5, dtype=torch.cfloat))
def written_complex(self, x, keep):
    z = self.linear(x) * self.weight + 1j * self.linear(x).cos()
    z = torch.where(keep[:, None], z, z.conj() * 0.5)[:, torch.tensor([2, 0, 1, 3])]
    z[~keep] = 0.25j
    return (z.abs() + z.roll(1, 0).real).square().sum()


@case(weight=lambda: torch.randn(5, dtype=torch.cfloat))
def written_parts(self, x):
    """What is written to a view of the parts is written to the complex tensor, and the other way."""
    z = self.linear(x) * self.weight
    parts = torch.view_as_real(z)
    parts.mul_(2)
    z[0] = z[1] * 2
    z.mul_(1j)
    torch.view_as_real(z[:5].diagonal())[..., 1].add_(3)
    torch.view_as_complex(torch.view_as_real(z)).mul_(1 + 2j)
    filled = torch.scatter(z, 1, torch.zeros(12, 1, dtype=torch.long), 2.0).index_fill(0, torch.tensor([3]), 1 - 1j)
    total = torch.asinh(z).abs().sum() + torch.acos(z).abs().mean() + torch.atan(z).real.sum() + torch.cov(z.mT).abs().sum()
    return total + parts.square().sum() + z.real.cos().sum() + (filled * filled).imag.sum() + torch.isclose(z, z * 1.000001).sum()


@case(weight=lambda: torch.randn(5, dtype=torch.cfloat))
def converted(self, x):
    z = self.linear(x).to(torch.cfloat) * self.weight
    return torch.fft.hfft2(z).square().mean() + torch.fft.irfft(self.linear(x)).square().sum() + torch.fft.ihfftn(self.linear(x)).abs().sum()


@case(weight=lambda: torch.randn(5, dtype=torch.cfloat), kernel=lambda: torch.randn(4, 2, 2, dtype=torch.cfloat),
      shift=lambda: torch.randn(4, dtype=torch.cfloat))
def complex_functions(self, x):
    """Functions of complex numbers that follow from those of their parts."""
    z = self.linear(x) * self.weight
    parts = [z.sin(), z.cos(), z.tan(), z.sinh(), z.cosh(), z.tanh(), z.sigmoid(), z.expm1(), z.log1p(), z.log2(), z.log10(), z.rsqrt(),
             torch.exp2(z), (40 * z).tanh()]
    total = sum(part.abs().clamp(max=9).mean() + (part.real * x[:, :5]).clamp(-9, 9).sum() for part in parts)
    total = total + z.logsumexp(1).abs().sum() + z.prod(1, keepdim=True).abs().sum() + z.var(0).sum() + z.std().sum()
    total = total + torch.var_mean(z, 1, correction=0)[1].abs().sum()
    row, column = torch.meshgrid(z[0], self.weight, indexing="ij")
    wide, _ = torch.broadcast_tensors(z[:, None], x[:, :4, None])
    total = total + (row * column.conj()).imag.sum() + wide.abs().square().mean() + z.diff(dim=1).abs().sum() + z.flipud().real[0].sum()
    found = torch.baddbmm(wide[:4, :, :4], wide[:4, :, :4], wide[4:8, :, :4], alpha=0.5) + torch.addr(z[0, :4], z[1, :4], z[2, :4])
    total = total + found.abs().mean() + torch.lerp(z, self.weight, 0.3).abs().sum() + torch.addcmul(z, z, self.weight, value=2).abs().sum()
    total = total + torch.tensordot(z, z, dims=([0], [0])).abs().sum() + torch.inner(z, self.weight).abs().sum() + (z @ z.mT).trace().abs()
    image = F.conv1d(z[:, :4].reshape(6, 2, 4), self.kernel, self.shift, stride=2, padding=1)
    back = F.conv_transpose1d(image, self.kernel, None, stride=2)
    total = total + image.abs().square().mean() + back.abs().mean() + F.mse_loss(z.real, x[:, :5]) + torch.isfinite(z).sum()
    return total + torch.dstack([z, z.conj()]).abs().mean() + torch.block_diag(z, self.weight).abs().sum() + torch.dist(z, self.weight)


@case(weight=lambda: torch.randn(5, dtype=torch.cfloat))
def complex_conversions(self, x, keep):
    """Truth values are of both parts; other types have the real one."""
    z = self.linear(x) * self.weight
    z = torch.where(keep[:, None], z, 1j * z.imag)  # some have no real part
    z = torch.where(torch.arange(5) == 1, torch.zeros((), dtype=torch.cfloat), z)
    truths = z.bool().float() + torch.logical_and(z, self.weight) + torch.logical_not(z) * 3 + z.any(1, keepdim=True) + z.all(0)
    parts = z.to(torch.cfloat).abs() + z.type_as(x).square() + x[:, :5].type_as(z).abs() * truths
    shuffled = F.pixel_shuffle(z[:, :4, None, None], 2).abs().square().sum()
    written = torch.masked_scatter(z, keep[:, None], z.conj() * 2).abs().sum() + torch.diagonal_scatter(z, z[0] * 3).real.exp().sum()
    return (parts * torch.arange(5)).mean() + shuffled + written


@case()
def into_chosen_rows(self, x, t):
    """Sums into one row for each number that occurs, into rows that a mask has chosen, and along their other dimension."""
    y = self.linear(x)
    found, inverse, counts = torch.unique(t, return_inverse=True, return_counts=True)
    means = torch.zeros(len(found), 5).index_add_(0, inverse, y) / counts[:, None]
    most = torch.zeros(len(found), 5).scatter_reduce(0, inverse[:, None].expand(-1, 5), y, "amax", include_self=False)
    kept = t >= 0
    chosen, labels = y[kept], t[kept]
    hot = torch.zeros_like(chosen).scatter_(1, labels[:, None], 1.0)
    moved = torch.zeros_like(chosen).scatter_add(1, labels[:, None], chosen[:, :1])
    swapped = chosen.index_add(1, torch.tensor([4, 0]), chosen[:, 1:3])
    return means[inverse].square().sum() + most.sum() + (hot * chosen.exp()).sum() + (moved * swapped).sum()


@case(adaptive=lambda: nn.AdaptiveLogSoftmaxWithLoss(5, 20, [3, 9], div_value=1.5))
def adaptive_softmax(self, x, t):
    labels = (t + 2) * 2 + torch.arange(12) % 3
    found = self.adaptive(self.linear(x), labels)
    return found.loss + found.output.square().sum()


# Statistics and decompositions ----------------------------------------------------------------------------------

@case()
def spreads(self, x, t):
    y = self.linear(x)
    slopes = torch.gradient(y, spacing=[0.5], dim=[0], edge_order=2)[0] + torch.gradient(y, spacing=(torch.tensor([0., 1, 3, 4, 6]),), dim=1)[0]
    weights = t.abs() + 1
    return (torch.cov(y.mT).square().sum() + torch.corrcoef(y.mT).tril(-1).sum() + y.cov(fweights=weights[:5], aweights=x[:5, 0].exp()).sum()
            + slopes.square().sum() + F.multilabel_margin_loss(y, torch.where(t < 0, -1, t)[:, None].expand(-1, 5)) + (y * 2).round().mode(0)[0].sum())


# Branches and loops ---------------------------------------------------------------------------------------------

@case()
def branch(self, x):
    return torch.cond(x.mean() > 0, lambda x: self.linear(x).tanh(), lambda x: self.linear(x) * 2, (x,)).sum()


@case(outside=6)
def loop(self, x):
    w = self.linear.weight * 0.3
    with torch.no_grad():
        _, z = torch._higher_order_ops.while_loop(
            lambda i, z: (i < 9) & (z.abs().max() > 0.05), lambda i, z: (i + 2, torch.tanh(z @ w.mT + 0.1 * x)),
            (torch.tensor(1), torch.ones_like(x)))
    return torch.tanh(self.linear(z)).sum()


@case(outside=6)
def loop_from_zeros(self, x):
    """The counter starts at what the program makes, and no constant of the model."""
    with torch.no_grad():
        _, z = torch._higher_order_ops.while_loop(lambda i, z: i < 4, lambda i, z: (i + 1, z / 2 + x),
                                                  (torch.zeros((), dtype=torch.int64), torch.ones_like(x)))
    return torch.tanh(self.linear(z)).sum()


@case()
def regions(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = self.linear(x)
    return y.float().square().sum() + torch.polar(y.float().square(), y.float()).real.mean()


@case()
def guarded_branch(self, x):
    h = self.linear(x).relu() * (x.sum() > 1e6)
    return torch.cond(h.sum() > 0, lambda h: h / h.norm() + h.sum().log(), lambda h: h + 1, (h,)).square().sum() + self.linear(x).sum()


@case()
def switch(self, x, t):
    from torch._higher_order_ops.switch import switch
    y = self.linear(x)
    return switch(t[0].clamp(min=0), (lambda y: y.tanh(), lambda y: y * 2, lambda y: y + y.mean()), (y,)).square().sum()


# Layers ---------------------------------------------------------------------------------------------------------

@case(rnn=lambda: nn.GRU(5, 3, bidirectional=True, batch_first=True))
def packed(self, x, keep):
    lengths = keep.reshape(3, 4).sum(1).clamp(min=1)
    rows = nn.utils.rnn.pack_padded_sequence(self.linear(x).reshape(3, 4, 5), lengths, batch_first=True, enforce_sorted=False)
    found, last = self.rnn(nn.utils.rnn.PackedSequence(rows.data.tanh(), *rows[1:]))
    found, _ = nn.utils.rnn.pad_packed_sequence(found, batch_first=True, total_length=4)
    return found.square().sum() + last.exp().mean()


@case(rnn=lambda: nn.LSTM(5, 4, num_layers=2, bidirectional=True, proj_size=3), first=lambda: nn.Parameter(torch.randn(4, 3, 3)),
      cells=lambda: nn.Parameter(torch.randn(4, 3, 4)))
def packed_cells(self, x, keep):
    lengths = keep.reshape(3, 4).sum(1).clamp(min=1)
    rows = nn.utils.rnn.pack_padded_sequence(self.linear(x).reshape(3, 4, 5).transpose(0, 1), lengths, enforce_sorted=False)
    found, (hidden, cells) = self.rnn(rows, (self.first, self.cells))
    return found.data.square().mean() + hidden.exp().mean() + cells.square().sum(2).sqrt().mean()


@case()
def speech(self, x, t):
    logits = self.linear(x).reshape(6, 2, 5).log_softmax(-1)
    return F.ctc_loss(logits, t[:6].clamp(min=1).reshape(2, 3), torch.tensor([6, 2]), torch.tensor([2, 3]), zero_infinity=True)


@case()
def speech_by_mask(self, x, t):
    logits = self.linear(x).reshape(6, 2, 5).log_softmax(-1)
    labels = t[:8].reshape(2, 4)
    there = labels > 0
    return F.ctc_loss(logits, labels.masked_select(there), torch.tensor([6, 5]), there.sum(1), reduction="sum", zero_infinity=True)


def check_formulas():
    """Gradients that are formulas, which PyTorch does not run as a part of a program."""
    @torch.library.custom_op("rewriting::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x ** 3
    cube.register_fake(torch.empty_like)
    cube.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0], setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))

    def decompose(self, x):
        a = self.linear(x)
        a = a @ a.mT + torch.eye(3)
        low = torch.linalg.cholesky(a)
        return (torch.linalg.solve(a, x[:, :1]).sum() + torch.linalg.solve_triangular(low, x, upper=False).square().sum()
                + torch.linalg.qr(a[:2]).R.tril(1).sum() + torch.linalg.slogdet(a).logabsdet + torch.inverse(a).sum() + cube(a).mean()
                + torch.fft.fft(self.weight).abs().sum() + self.norm(x).exp().sum())
    compare_step("formulas", lambda: (Model(decompose, 3, 3, weight=torch.randn(3, dtype=torch.cfloat),
                                            norm=nn.BatchNorm1d(3, momentum=None)), {"x": torch.randn(3, 3)}))

    def solve(self, x):
        a = self.linear(x)
        square = a[:5] + 2 * torch.eye(5)
        p, low, up = torch.linalg.lu(a)
        return (torch.linalg.lstsq(a, x).solution.square().sum() + (p @ low @ up.tanh()).square().sum() + torch.linalg.cond(square)
                + torch.linalg.lu_solve(*torch.linalg.lu_factor(square), x[:5]).square().sum() + torch.linalg.norm(a, 2)
                + torch.linalg.matrix_norm(a, "nuc") + torch.linalg.pinv(a, rtol=1e-3).square().sum() + torch.linalg.eigvalsh(a.mT @ a).log().sum()
                + (torch.linalg.matrix_rank(a) * a).mean() + torch.linalg.tensorsolve(square, x[:5, 0]).sum())
    compare_step("solves", lambda: (Model(solve, 6, 5), {"x": torch.randn(8, 6)}))

    def graded(self, x):
        """Columns of very different sizes, whose eigenvectors stay orthogonal."""
        sizes = 10.0 ** -torch.arange(0.0, 4.0, 0.5)
        values, vectors = torch.linalg.eigh((lambda a: a + a.mT)(self.linear(x) * sizes * sizes[:, None]))
        return values.square().sum() + (vectors.mT @ vectors - torch.eye(8)).square().sum()
    compare_step("graded", lambda: (Model(graded, 6, 8), {"x": torch.randn(8, 6)}))


def check_blocks():
    """Triangles of several blocks, the last of which is shorter; what is no triangle has gradients above its diagonal."""
    def process(self, x):
        at = self.linear(x)
        gap = at[:, None] - at
        low = torch.linalg.cholesky(torch.exp(-gap.square().sum(-1)) + 0.5 * torch.eye(len(x)))
        unit = torch.linalg.solve_triangular(low * 0.1, x, upper=False, unitriangular=True)
        return (torch.cholesky_solve(x[:, :1], low) * x[:, :1]).sum() + low.diagonal().log().sum() + (
            torch.cholesky_solve(torch.eye(len(x)), low).diagonal().sum() + unit.square().mean()
            + torch.linalg.solve_triangular(low.mT, gap[0], upper=True).square().mean()) + torch.cholesky_solve(x[:5], self.square).sum()
    compare_step("blocks", lambda: (Model(process, 3, 2, square=torch.randn(5, 5) + 4 * torch.eye(5)), {"x": torch.randn(101, 3)}))


def check_mapped_solve():
    """Under torch.vmap, where PyTorch looks at a solver's answer in an order that it keeps by tokens."""
    def solve(self, x):
        a = self.linear(x).reshape(4, 3, 3)
        return torch.vmap(lambda a, b: torch.linalg.solve(a @ a.mT + torch.eye(3), b).square().mean()
                          + torch.linalg.slogdet(a).logabsdet + torch.linalg.det(a))(a, x[:, :3]).mean()
    compare_step("mapped solve", lambda: (Model(solve, 6, 9), {"x": torch.randn(4, 6)}))


def check_groups():
    """The operator of transformers for layers of experts on processors, whose code loops over numbers in a tensor."""
    def multiply(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        parts, start = [], 0
        for matrix, end in zip(weight, offs.tolist()):
            parts.append(input[start:end] @ matrix)
            start = end
        return torch.cat(parts)
    group = torch.library.custom_op("transformers::grouped_mm_fallback", multiply, mutates_args=())
    group.register_fake(lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))

    def backward(ctx, g):
        with torch.enable_grad():
            leaves = [value.detach().requires_grad_() for value in ctx.saved_tensors[:2]]
            return *torch.autograd.grad(multiply(*leaves, ctx.saved_tensors[2]), leaves, g), None
    group.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    compare_step("groups", lambda: (
        Model(lambda self, x, ends: group(x, self.weight, ends).square().sum(), 6, 5, weight=torch.randn(3, 6, 4) * 0.1),
        {"x": torch.randn(9, 6), "ends": torch.tensor([2, 2, 9])}))


def check_running():
    """Beside a loop: PyTorch's own gradient of `associative_scan` is another."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def scan(self, x):
        a, b = self.linear(x).sigmoid(), self.linear(x)
        join = lambda one, two: (one[0] * two[0], one[1] * two[0] + two[1])
        return sum(associative_scan(join, (a[:size], b[:size]), dim=0, combine_mode="pointwise")[1].square().sum() for size in (1, 2, 5, 12))

    def loop(self, x):
        a, b, total, h = self.linear(x).sigmoid(), self.linear(x), 0, 0
        for number in range(12):
            h = a[number] * h + b[number]
            total = total + h.square().sum() * sum(number < size for size in (1, 2, 5, 12))
        return total
    torch.manual_seed(0)
    model, x = Model(scan, 6, 5), torch.randn(12, 6)
    module = export.export_program(export.TrainingStep(model), {"x": x}, training=True).module()
    expected, found = loop(model, x), module(x=x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for got, wanted in zip(torch.autograd.grad(found, list(module.parameters())), torch.autograd.grad(expected, list(model.parameters()))):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    print("ok running")


def check_branch():
    """Branches by a number of rows and by a mask: the step has both sides."""
    def mean(self, x, keep):
        each = self.linear(x).square().sum(1)[keep]
        return self.linear(x).mean() + each.sum() / max(each.numel(), 1) + (each.mean() if each.numel() > 0 else 0.0)

    def experts(self, x, keep):
        y, out = self.linear(x), torch.zeros(4, 5)
        for number, mask in enumerate([keep, ~keep]):
            if mask.any():
                out[mask] = y[mask] * (number + 1)
        return out.square().sum()
    rows = torch.tensor([True, False, True, True])
    for function in (mean, experts):
        model, plain = (Model(function, 6, 5) for _ in range(2))
        plain.load_state_dict(model.state_dict())
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        step = None
        for keep in (rows, torch.zeros_like(rows), ~rows, torch.ones_like(rows)):
            batch = {"x": torch.randn(4, 6), "keep": keep}
            step = step or memopt.compile(model, None, batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
            optimizer.zero_grad()
            loss = plain(**batch)
            loss.backward()
            optimizer.step()
            torch.testing.assert_close(torch.tensor(step(batch)), loss.detach())
        torch.testing.assert_close(step.state_dict()["model"]["linear.weight"], plain.linear.weight.detach())
    print("ok branches")


def check_queue():
    """A queue with a place that the step moves on, and buffers that it writes through `.data`."""
    def loss(self, x):
        y = self.linear(x)
        place = int(self.place)
        total = (y @ self.queue.clone()).logsumexp(1).mean() + y[place % 4].square().sum()
        self.queue[:, place:place + 4] = y.detach().T
        self.place[0] = (place + 4) % 12
        self.mean.data.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        return total + (y - self.mean).square().mean()

    def make():
        model = Model(loss, 6, 5)
        torch.manual_seed(3)
        for name, value in {"queue": torch.randn(5, 12), "place": torch.tensor([0]), "mean": torch.zeros(5)}.items():
            model.register_buffer(name, value)
        return model
    model, plain = make(), make()
    plain.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    step = memopt.compile(model, None, {"x": torch.randn(4, 6)}, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(4):
        x = torch.randn(4, 6)
        optimizer.zero_grad()
        expected = plain(x=x)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(torch.tensor(step({"x": x})), expected.detach())
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(step.state_dict()["model"][name], value)
    print("ok queue")


def check_definite():
    """torch.distributions looks at a covariance: whether it is symmetric, and then whether it is positive definite."""
    def density(self, x):
        a = self.linear(x)
        normal = torch.distributions.MultivariateNormal(torch.zeros(5), a.mT @ a + torch.eye(5))
        return -normal.log_prob(a).mean()
    compare_step("definite", lambda: (Model(density, 6, 5), {"x": torch.randn(8, 6)}))


def check_checks():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 3)

        def forward(self, x):
            assert (x >= 0).all(), "counts must not be negative"
            if x.max() > 100:
                raise ValueError("counts must be small")
            if (x == 77).any():
                first = torch.where(x == 77)[0][0]
                torch._assert(False, f"sevens in row {first}")
            torch._check((x.sum() < 1000).item(), lambda: "too many counts")
            return self.linear(x)
    model = Counts()
    batch = torch.rand(4, 6), torch.randint(3, (4,))
    step = memopt.compile(model, F.cross_entropy, batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert math.isfinite(step(batch))
    before = step.state_dict()["model"]["linear.weight"]
    try:
        step((batch[0] - 2, batch[1]))
    except memopt.Error as error:
        for text in ("counts must not be negative", "counts must be small", "sevens in row", "too many counts", "check_rewriting.py:"):
            assert text in str(error), error
    else:
        raise AssertionError("a batch that the model refuses was trained on")
    assert torch.equal(before, step.state_dict()["model"]["linear.weight"])
    print("ok checks")


def check_answers():
    """Answers about all elements that have to hold of each of them keep samples apart, which micro-batches take one by one."""
    class Answers(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 3)

        def forward(self, x, t):
            assert t.max() < 3, "labels beyond the classes"
            torch._assert(x.amax() <= 9, "beyond nine")
            if t.min() < 0:
                raise ValueError("labels below zero")
            if not torch.isfinite(x).all():
                raise ValueError("inputs that are no numbers")
            if (x == 7).any():
                raise ValueError("sevens")
            if x.min().item() < -5:
                raise ValueError("below minus five")
            return F.cross_entropy(self.linear(x), t.clamp(0, 2))
    model = Answers()
    batch = {"x": torch.rand(4, 6), "t": torch.tensor([0, 2, 1, 0])}
    step = memopt.compile(model, None, batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.0), micro_batches=4)

    def change(name, value):
        return {**batch, name: torch.cat([batch[name][:2], torch.full_like(batch[name][2:3], value), batch[name][3:]])}
    torch.testing.assert_close(torch.tensor(step(batch)), model(**batch).detach(), rtol=1e-5, atol=1e-6)
    for name, value, text in (("t", 3, "labels beyond the classes"), ("x", 10, "beyond nine"), ("t", -1, "labels below zero"),
                              ("x", -float("inf"), "no numbers"), ("x", 7, "sevens"), ("x", -6, "below minus five")):
        for run in (lambda other: model(**other), step):
            try:
                run(change(name, value))
            except (AssertionError, ValueError, memopt.Error) as error:
                assert text in str(error), error
            else:
                raise AssertionError(f"a batch that the model refuses was trained on: {text}")
    print("ok answers")


def check_asserts():
    """What PyTorch asks of numbers that follow from the data: that a size fits, and how many rows there are."""
    class Segments(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 5)

        def forward(self, x, segments, keep):
            y = self.linear(x)
            sums = torch.zeros(int(segments.max()) + 1, 5).index_add_(0, segments, y)
            rows = y[keep]
            torch._check(rows.shape[0] >= 1, lambda: "no rows")
            assert rows.shape[0] < 7, "most rows"
            if segments[0] == 1:  # of pairs
                sums = sums * y[keep][:, 0].reshape(-1, 2).sum()
            return (sums + torch.ones(3, 5)).square().mean() + rows.sum()
    model = Segments()
    good = {"x": torch.randn(8, 6), "segments": torch.arange(8) % 3, "keep": torch.arange(8) < 4}
    step = memopt.compile(model, None, good, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))
    pairs = {"segments": (torch.arange(8) + 1) % 3}
    for other in ({}, pairs, {"keep": torch.arange(8) < 3}, {"keep": torch.arange(8) < 1}):
        batch = {**good, **other}
        torch.testing.assert_close(torch.tensor(step(batch)), model(**batch).detach(), rtol=1e-5, atol=1e-6)
    before = step.state_dict()["model"]
    for other, text in (({"segments": torch.arange(8) % 2}, "has to be 2"), ({"keep": torch.zeros(8).bool()}, "no rows"),
                        ({"keep": torch.ones(8).bool()}, "most rows"), ({**pairs, "keep": torch.arange(8) < 3}, "n % 2 = 0")):
        batch = {**good, **other}
        for run in (lambda: model(**batch), lambda: step(batch)):
            try:
                run()
            except (RuntimeError, AssertionError, memopt.Error) as error:
                assert not isinstance(error, memopt.Error) or text in str(error) and "check_rewriting.py:" in str(error), error
            else:
                raise AssertionError(f"a batch that the model refuses was trained on: {other}")
    for name, value in step.state_dict()["model"].items():
        assert torch.equal(before[name], value), name
    print("ok asserts")


@case()
def views_of_rows_that_are_written(m, x, keep):
    """A slice of rows, a row and a row's element are views: what is written to them is written to the rows, and the other way."""
    h = m.linear(x)[keep]
    last, rest, first = h[-1], h[1:], h[0]
    h[1:] = h[1:] - h[:-1]
    h[1:, 0] *= 2
    h[0] = h[-1]
    h[h.size(0) - 1:].add_(1)
    h[0, 1] = 3
    first.mul_(2)
    return h.pow(3).sum() + (last * first).sum() + rest.square().mean()


@case()
def pairs_of_rows_that_are_written(m, x, keep):
    h = m.linear(x)[keep][:, 0]
    pairs = h[: h.size(0) // 2 * 2].view(-1, 2)
    pairs[0] = 2.0
    return h.pow(3).sum() + pairs.sum()


@case()
def lengths_of_rows(m, x, keep):
    """As the Lovasz loss has them."""
    h = m.linear(x)[keep].sum(1).sort(descending=True).values
    count = len(h)
    if count > 1:
        h[1:count] = h[1:count] - h[0:-1]
    if len(h) == 0:
        return h.sum() * 0
    return h.square().sum() / len(h) + h[:count // 2].sum()


@case()
def rows_by_other_names(m, x, keep):
    h = m.linear(x)[keep].tanh()
    return (h.arccos() + torch.special.expm1(h) + h.arctan().square() + torch.float_power(h.sigmoid(), 2) + torch.clip(h, -0.5, 1)
            + torch.multiply(h, 2)).sum().float()


@case()
def rows_by_rows(m, x, keep):
    """Rows of one mask meet those of another as a matrix: products, distances, and what is made of differences."""
    y = m.linear(x)
    a, b = y[keep], y[x[:, 0] > 0]
    distances = torch.cdist(a, b)
    likeness = torch.einsum("id,jd->ij", a, b)
    nearest = distances.min(1).values.mean() + distances.min(0)[0].mean()
    differences = (a[:, None] - b[None]).abs().sum(-1).neg().exp().sum()
    return (nearest + differences + torch.logsumexp(likeness, dim=1).mean() + likeness.T.logsumexp(1).sum() + likeness.argmax(1).sum()
            + F.mse_loss(likeness, torch.zeros_like(likeness)) + likeness.flatten().max() + ((a @ b.T / 2).softmax(-1) @ b).square().sum())


@case()
def rows_by_themselves(m, x, keep, t):
    """As losses of contrasts have them."""
    y, z, labels = F.normalize(m.linear(x))[keep], F.normalize(m.linear(x * 2))[keep], t[keep]
    count = y.shape[0]
    both, numbers = y @ z.t(), torch.arange(count)
    own = y @ y.t()
    same, unit = labels[:, None] == labels[None], torch.eye(count, dtype=torch.bool)
    logits = own - own.max(1, keepdim=True).values.detach()
    contrast = logits - torch.log(torch.exp(logits).sum(1, keepdim=True))
    distances = torch.cdist(y, y)
    hardest = F.relu((distances * same).max(1)[0] - (distances + 1e5 * same).min(1)[0] + 1).mean()
    others = own.masked_fill(unit, -1e9).logsumexp(1).mean() + distances[~unit].mean() + (own - torch.eye(count)).pow(2).mean()
    own[unit] = -1e9
    return (F.cross_entropy(both, numbers) + F.cross_entropy(both.t(), numbers) - ((same.float() * contrast).sum(1) / same.sum(1)).mean()
            + hardest + others + own.logsumexp(1).mean() + torch.diagonal(distances).sum() + torch.triu(distances, 1).sum())


@case()
def rows_beside_rows(m, x, keep):
    """Expanded, or repeated, by their own number; rows, columns and the spread of a matrix of them."""
    y = m.linear(x)
    rows, mean = y[keep], y.mean(0)
    count = rows.size(0)
    first, second = rows.unsqueeze(1).expand(count, count, 5), rows.unsqueeze(0).expand(count, -1, -1)
    product = rows @ rows.T
    repeated = rows.unsqueeze(1).repeat(1, count, 1).square().sum() + (mean.repeat(count, 1) * rows).sum() + rows.repeat(1, 2).square().sum()
    return (first.pow(2).sum() + (first * second).sum(-1).tanh().sum() + (first - second).pow(2).mean() + mean.expand(count, 5).square().sum()
            + x.new_ones(5).expand(count, count, 5).sum() + product[0].sum() + product[:, 1].sum() + product.std() + product.var(1).sum() + repeated)


@case(outside=6)
def longest_of_samples(m, x, t):
    """A size that follows from the data and cuts what is as long as it can be."""
    lengths = t.clamp(min=0) + 1
    longest = lengths.max().item()
    y = m.linear(x)[:, :longest]
    mask = torch.arange(longest)[None] < lengths[:, None]
    weights = y.masked_fill(~mask, float("-inf")).softmax(1)
    padded = torch.zeros(12, longest)
    padded[:, 0] = y[:, 0]
    return (weights * y * mask).pow(2).sum() / mask.sum() + padded.square().sum() / longest


@case()
def places_of_each_sample(m, x):
    """As many rows for each sample as the one with the most has, as attention to chosen tokens has them: a count has a bound."""
    chosen = x > 0.3
    y = m.linear(x)[:, :, None].expand(12, 5, 6) * x[:, None, :]
    counts = chosen.long().sum(1)
    most = counts.max()
    if chosen.any():
        wanted = chosen.nonzero(as_tuple=True)
        fits = torch.arange(most) < counts.unsqueeze(-1)
        places, others = fits.nonzero(as_tuple=True), (fits == 0).nonzero(as_tuple=True)
        keys = y.new_zeros(12, most, 5)
        keys[places] = y.transpose(1, 2)[wanted]
        scores = torch.einsum("bdl,bsd->bls", y, keys).transpose(1, 2)
        scores[others[0], others[1], :] = -1e9
        joined = torch.cat((scores.transpose(1, 2), y.transpose(1, 2)), -1).softmax(-1)
        y = y * joined.narrow(-1, 0, most).sum(-1)[:, None] + joined.narrow(-1, most, joined.size(-1) - most).sum()
    return y.square().mean()


def check_state():
    """Parameters without a gradient that forward replaces, or writes, are state, as a codebook that follows averages is."""
    class Codes(nn.Module):
        def __init__(self, replaces):
            super().__init__()
            self.linear, self.codes, self.replaces = nn.Linear(6, 4), nn.Embedding(8, 4), replaces
            self.codes.weight.requires_grad = False
            self.sums = nn.Parameter(torch.randn(8, 4), requires_grad=False)

        def forward(self, x):
            z = self.linear(x)
            nearest = F.one_hot(torch.cdist(z, self.codes.weight).argmin(1), 8).to(z.dtype)
            found = nearest @ self.codes.weight
            if self.replaces:
                self.sums = nn.Parameter(self.sums * 0.9 + 0.1 * nearest.t() @ z, requires_grad=False)
                self.codes.weight = nn.Parameter(self.sums / 0.5, requires_grad=False)
            else:
                with torch.no_grad():
                    self.sums.mul_(0.9).add_(nearest.t() @ z, alpha=0.1)
                    self.codes.weight.data.copy_(self.sums / 0.5)
            return (found.detach() - z).square().mean() + (z + (found - z).detach()).pow(3).mean()
    for replaces in (True, False):
        compare_step(f"codes, {'replaced' if replaces else 'written'}", lambda: (Codes(replaces), {"x": torch.randn(12, 6)}))


def check_windows():
    """Windows that overlap, of a tensor that is stored in another order, as Longformer has them."""
    def windows(self, x):
        heads = self.linear(x).view(8, 2, 2).transpose(0, 1)
        return heads.view(2, 2, 4, 2).as_strided((2, 3, 4, 2), (2, 8, 4, 1)).softmax(-1).square().sum()
    compare_step("windows", lambda: (Model(windows, 6, 4), {"x": torch.randn(8, 6)}))


def check_experts():
    """A loop over experts, each of which multiplies its own rows."""
    def experts(self, x):
        h = self.linear(x)
        weights, chosen = self.gate(h).softmax(-1).topk(2)
        out = torch.zeros_like(h)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            out.index_add_(0, row, expert(h[row]) * weights[row, place, None])
        return (h + out).square().mean()
    experts_of = lambda: nn.ModuleList(nn.Sequential(nn.Linear(64, 96), nn.SiLU(), nn.Linear(96, 64)) for _ in range(4))
    compare_step("experts", lambda: (Model(experts, 6, 64, gate=nn.Linear(64, 4), experts=experts_of()), {"x": torch.randn(40, 6)}))


@case(w=lambda: torch.randn(5, 5, dtype=torch.cfloat), b=lambda: torch.randn(12, 5, dtype=torch.cfloat))
def adjoints(self, x):
    z = torch.complex(self.linear(x), self.linear(x).sin())
    y = torch.addmm(self.b, z, self.w.mH, beta=0.5, alpha=2 - 1j) + z @ self.w.adjoint()
    return y.real.tanh().sum() + y.imag.sin().sum()


@case()
def padded(self, x):
    """By numbers that are not complex, which pad the real part."""
    z = torch.complex(self.linear(x), self.linear(x).sin())
    y = F.pad(z, (1, 2), value=1.5) * F.pad(z, (2, 1)) + F.pad(z[None], (2, 1), mode="reflect")[0]
    return y.real.tanh().sum() + y.imag.sin().sum()


def check_gradients_of_samples():
    """Norms of each sample's gradients, whose parts lie in memory in another order than PyTorch's own."""
    def norms(self, x, y):
        def loss(parameters, a, b):
            return F.mse_loss(torch.func.functional_call(self.net, parameters, (a[None],)), b[None])
        slopes = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(dict(self.net.named_parameters()), x, y)
        return F.mse_loss(self.net(x), y) + sum(slope.flatten(1).square().sum(1) for slope in slopes.values()).sqrt().mean()
    compare_step("gradients_of_samples", lambda: (Model(norms, 4, 1, net=nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 1))),
                                                  {"x": torch.randn(6, 4), "y": torch.randn(6, 1)}))


def check_roots():
    """Square roots of matrices and polar decompositions, of matrices with equal eigenvalues as well."""
    def roots(self, x):
        y = self.linear(x)
        positive = y.mT @ y + 0.5 * torch.eye(5)
        u, h = torch.linalg.polar(y)
        near = torch.linalg.matrix_sqrth(2 * torch.eye(5) + 0 * positive) @ positive
        return (torch.linalg.matrix_sqrth(positive).sin().sum() + u.sin().sum() + h.cos().sum() + near.sin().sum()
                + torch.linalg.polar(positive)[1].square().sum() * 0.01)
    compare_step("roots", lambda: (Model(roots, 6, 5), {"x": torch.randn(12, 6)}))


if __name__ == "__main__":
    check_all()
    check_roots()
    check_gradients_of_samples()
    check_state()
    check_windows()
    check_experts()
    check_groups()
    check_running()
    check_formulas()
    check_blocks()
    check_mapped_solve()
    check_branch()
    check_queue()
    check_definite()
    check_checks()
    check_answers()
    check_asserts()
