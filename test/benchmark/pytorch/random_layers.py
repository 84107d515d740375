# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models put together at random, for random_models.py: `RandomModel(seed)` is a training step with data.

A model begins with images, tokens, sequences or features, and applies up to a dozen layers: what PyTorch has for the shape
at hand, functions of elements, operations along one dimension, parameters that broadcast, and joins with what earlier
layers gave. One of a dozen losses ends it. Every third model is large enough for sums in parts, blocks of products, and several
tiles of everything. Equal seeds are equal models. Needs torch.
"""
from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 4
TOKENS = 17
CLASSES = 5
MOST_ELEMENTS, MOST_OF_LARGE = 8000, 300000


class Apply(nn.Module):
    """A function of this module, which holds its layers and parameters, and of one or two tensors."""

    def __init__(self, name, function, *layers, **parameters):
        super().__init__()
        self.name, self.function, self.layers = name, function, nn.ModuleList(layers)
        for key, value in parameters.items():
            self.register_parameter(key, nn.Parameter(value))

    def forward(self, *tensors):
        return self.function(self, *tensors)


def normal(*shape, scale=0.5):
    return torch.randn(*shape) * scale


ELEMENTWISE = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "softplus": F.softplus, "elu": F.elu, "selu": F.selu, "celu": lambda x: F.celu(x, 0.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1), "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "mish": F.mish,
    "abs": torch.abs, "square": lambda x: x.square() * 0.3, "sqrt": lambda x: (x.abs() + 1).sqrt(),
    "bell": lambda x: torch.exp(-x * x), "sin": torch.sin, "cos": torch.cos, "clamp": lambda x: x.clamp(-0.8, 1.1),
    "rsqrt": lambda x: torch.rsqrt(x * x + 1), "log1p": lambda x: torch.log1p(x.abs()), "erf": torch.erf, "atan": torch.atan,
    "expm1": lambda x: torch.expm1(x.clamp(max=1.5)), "softsign": F.softsign, "logsigmoid": F.logsigmoid, "relu6": F.relu6,
    "hardtanh": F.hardtanh, "softshrink": lambda x: F.softshrink(x, 0.3), "tanhshrink": F.tanhshrink, "sinc": torch.sinc,
    "threshold": lambda x: F.threshold(x, 0.1, -0.2), "pow": lambda x: (x.abs() + 0.1) ** 1.7, "frac": torch.frac,
    "reciprocal": lambda x: 1 / (1 + x.abs()), "where": lambda x: torch.where(x > 0.2, x * 2, torch.sin(x)),
    "xlogy": lambda x: torch.xlogy(x, x.abs() + 0.5), "hypot": lambda x: torch.hypot(x, x.new_full((), 0.7)),
    "maximum": lambda x: torch.maximum(x, x.flip(-1)), "minimum": lambda x: torch.minimum(x, 0.5 * x.roll(1, -1)),
    "cosh": lambda x: torch.cosh(x.clamp(-2, 2)), "masked_fill": lambda x: x.masked_fill(x < -0.5, 0.25),
    "sign": lambda x: x + torch.sign(x).detach() * 0.1, "floor": lambda x: x + torch.floor(x) * 0.1,
    "remainder": lambda x: torch.remainder(x, 0.9), "nan_to_num": torch.nan_to_num, "detach": lambda x: x + x.detach() * 0.25,
    "double": lambda x: (x.double() * 1.5).to(x.dtype), "logaddexp": lambda x: torch.logaddexp(x, x * 0.5),
    "atan2": lambda x: torch.atan2(x, x.square() + 0.3), "lerp": lambda x: torch.lerp(x, torch.tanh(x), 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, torch.sigmoid(x), value=0.5),
}


def along(d, n, k, order):
    """Operations along dimension `d` of `n` elements, which may be cut at `k` or put into `order`."""
    return {
        "softmax": lambda x: F.softmax(x, d) * n, "log_softmax": lambda x: F.log_softmax(x, d),
        "cumsum": lambda x: torch.cumsum(x, d) / n, "flip": lambda x: x.flip(d), "roll": lambda x: x.roll(k, d),
        "center": lambda x: x - x.mean(d, keepdim=True), "amax": lambda x: x - x.amax(d, keepdim=True),
        "standardize": lambda x: (x - x.mean(d, keepdim=True)) / (x.std(d, keepdim=True) + 0.3),
        "logsumexp": lambda x: x - torch.logsumexp(x, d, keepdim=True), "sort": lambda x: x.sort(d)[0],
        "sort_down": lambda x: torch.sort(x, d, descending=True)[0], "normalize": lambda x: F.normalize(x, dim=d),
        "normalize_1": lambda x: F.normalize(x, p=1, dim=d), "cummax": lambda x: torch.cummax(x, d)[0],
        "swap": lambda x: torch.cat([x.narrow(d, k, n - k), x.narrow(d, 0, k)], d),
        "unbind": lambda x: torch.stack([part * (i + 1) / n for i, part in enumerate(x.unbind(d))], d),
        "index_select": lambda x: x.index_select(d, torch.tensor(order)), "gather": lambda x: x.gather(d, x.argsort(d)),
        "norm": lambda x: x / (x.norm(dim=d, keepdim=True) + 0.5), "prod": lambda x: x + torch.tanh(x).prod(d, keepdim=True),
        "max": lambda x: x + x.max(d, keepdim=True)[0] * 0.3, "min": lambda x: x - x.min(d, keepdim=True)[0] * 0.3,
        "var": lambda x: x / (1 + x.var(d, keepdim=True, unbiased=False)),
        "diff": lambda x: torch.cat([torch.diff(x, dim=d), x.narrow(d, 0, 1)], d),
        "slice": lambda x: x.narrow(d, k, n - k), "head": lambda x: x.narrow(d, 0, k),
        "pad": lambda x: torch.cat([x, torch.zeros_like(x.narrow(d, 0, 1))], d),
        "repeat": lambda x: x.repeat_interleave(2, d), "logcumsumexp": lambda x: torch.logcumsumexp(x, d),
        "one_hot": lambda x: x + F.one_hot(x.argmax(d), n).movedim(-1, d).to(x.dtype) * 0.1,
        "scatter": lambda x: torch.zeros_like(x).scatter_add(d, x.argsort(d) // 2, x),
        "median": lambda x: x - x.median(d, keepdim=True)[0], "cumprod": lambda x: torch.cumprod(torch.tanh(x) + 0.5, d),
        "stride": lambda x: x[(slice(None),) * (d % x.dim()) + (slice(None, None, 2),)],
    }


RESHAPES = {
    3: {"transpose": lambda x: x.transpose(1, 2), "flatten": lambda x: x.flatten(1), "mean": lambda x: x.mean(1),
        "max": lambda x: x.amax(2), "last": lambda x: x[:, -1], "image": lambda x: x.unsqueeze(1),
        "flatten_transposed": lambda x: x.transpose(1, 2).reshape(x.shape[0], -1)},
    4: {"channels_last": lambda x: x.permute(0, 2, 3, 1), "tokens": lambda x: x.flatten(2).transpose(1, 2),
        "pool": lambda x: x.mean((2, 3)), "flatten": lambda x: x.flatten(1), "lines": lambda x: x.flatten(1, 2),
        "permute": lambda x: x.permute(0, 3, 1, 2), "halves": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)},
}


def attention(kind, length, width, heads):
    """Attention with one of the ways to tell places apart."""
    size = width // heads

    def rotate(x):
        half = size // 2
        angle = torch.arange(length, dtype=x.dtype)[:, None] * torch.arange(half, dtype=x.dtype)[None] * 0.3
        even, odd = x[..., :half], x[..., half:]
        return torch.cat([even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin()], -1)

    def attend(module, x):
        q, k, v = module.layers[0](x).view(x.shape[0], length, 3, heads, size).permute(2, 0, 3, 1, 4)
        mask = None
        if kind == "relative":
            mask = module.bias.unsqueeze(0)
        elif kind == "slopes":
            places = torch.arange(length)
            mask = -(places[None] - places[:, None]).abs().to(x.dtype) * module.slope.view(-1, 1, 1)
        elif kind == "rotary" and size % 2 == 0:
            q, k = rotate(q), rotate(k)
        elif kind == "shared":
            k, v = k[:, :1].expand(-1, heads, -1, -1), v[:, :1].expand(-1, heads, -1, -1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=kind == "causal")
        return module.layers[1](out.transpose(1, 2).reshape(x.shape[0], length, width))

    parameters = {"relative": {"bias": normal(heads, length, length)}, "slopes": {"slope": torch.rand(heads)}}
    return Apply(kind, attend, nn.Linear(width, 3 * width), nn.Linear(width, width), **parameters.get(kind, {}))


def experts(width):
    """Two of three layers for each sample, weighted by a gate."""
    def choose(module, x):
        top, which = F.softmax(module.layers[0](x), -1).topk(2, -1)
        all_of_them = torch.einsum("bf,efo->beo", x, module.w)
        picked = all_of_them.gather(1, which.unsqueeze(-1).expand(-1, -1, all_of_them.shape[-1]))
        return (picked * top.unsqueeze(-1)).sum(1)
    return Apply("experts", choose, nn.Linear(width, 3), w=normal(3, width, 8, scale=0.3))


def window(channels, height, width):
    """Windows of 2 x 2, shifted by one, whose elements attend to each other."""
    def attend(module, x):
        x = x.roll((1, 1), (2, 3)).view(-1, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 3, 5, 1)
        z = x.reshape(-1, 4, channels)
        z = z + F.softmax(z @ z.transpose(1, 2) / channels + module.bias, -1) @ z
        return z.view(x.shape).permute(0, 5, 1, 3, 2, 4).reshape(-1, channels, height, width).roll((-1, -1), (2, 3))
    return Apply("window", attend, bias=normal(4, 4))


class Layers:
    """Draws a layer for a tensor; None where the drawn one does not fit."""

    def __init__(self, draw: random.Random):
        self.draw = draw

    def choose(self, pool):
        """A layer, and the numbers of the tensors that it takes."""
        x, last, number = pool[-1], [len(pool) - 1], self.draw.random()
        for limit, make in ((0.22, self.elementwise), (0.34, self.along), (0.42, self.parameter), (0.5, self.last)):
            if number < limit:
                return make(x), last
        if number < 0.6:
            return self.join(x, pool)
        if number < 0.7:
            return self.reshape(x), last
        ranks = {2: self.features, 3: self.sequence, 4: self.image}
        return ranks[x.dim()](x) if x.dim() in ranks else Apply("flatten", lambda _, v: v.flatten(1)), last

    def maybe(self, probability=0.5):
        return self.draw.random() < probability

    def elementwise(self, _):
        name = self.draw.choice(list(ELEMENTWISE))
        return Apply(name, lambda _, x: ELEMENTWISE[name](x))

    def along(self, x):
        dims = [d for d in range(1, x.dim()) if x.shape[d] >= 2]
        if not dims:
            return None
        d = self.draw.choice(dims)
        n = x.shape[d]
        order = self.draw.sample(range(n), n)
        table = along(d - x.dim() if self.maybe(0.3) else d, n, self.draw.randrange(1, n), order)
        name = self.draw.choice(list(table))
        return Apply(f"{name}@{d}", lambda _, v: table[name](v))

    def parameter(self, x):
        shape = [1] + [n if self.maybe(0.6) else 1 for n in x.shape[1:]]
        while self.maybe() and len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        table = {"times": lambda m, v: v * m.w, "plus": lambda m, v: v + m.w, "from": lambda m, v: m.w - v,
                 "over": lambda m, v: v / (1.5 + torch.tanh(m.w))}
        name = self.draw.choice(list(table))
        return Apply(name, table[name], w=normal(*shape) + 1)

    def last(self, x):
        n = x.shape[-1]
        if n < 2 or x.dim() < 2:
            return None
        return self.draw.choice([
            lambda: nn.LayerNorm(n), lambda: nn.RMSNorm(n), lambda: nn.PReLU(x.shape[1] if self.maybe() else 1),
            lambda: nn.LayerNorm(x.shape[-2:] if x.dim() > 2 else n, elementwise_affine=self.maybe()),
            lambda: nn.Linear(n, self.draw.choice([3, 6, 8, 16]), bias=self.maybe(0.7))])()

    def reshape(self, x):
        if x.dim() == 2:
            n = x.shape[1]
            divisors = [k for k in range(2, n) if n % k == 0]
            k = self.draw.choice(divisors) if divisors else 1
            return Apply("unflatten", lambda _, v: v.unflatten(1, (k, n // k)))
        if x.dim() not in RESHAPES:
            return None
        name, function = self.draw.choice(list(RESHAPES[x.dim()].items()))
        return Apply(name, lambda _, v: function(v))

    def join(self, x, pool):
        same = [i for i, tensor in enumerate(pool[:-1]) if tensor.shape == x.shape and tensor.is_floating_point()]
        if same and self.maybe(0.7):
            d = self.draw.randrange(1, x.dim())
            table = {"add": lambda _, v, o: v + o, "gate": lambda _, v, o: v * torch.sigmoid(o), "maximum": lambda _, v, o: torch.maximum(v, o),
                     "cat": lambda _, v, o: torch.cat([v, o], d), "detached": lambda _, v, o: o - v.detach() * 0.5 + v,
                     "where": lambda _, v, o: torch.where(v > o, v, o * 0.5), "product": lambda _, v, o: v * o * 0.3}
            name = self.draw.choice(list(table))
            return Apply(name, table[name]), [len(pool) - 1, self.draw.choice(same)]
        number = self.draw.randrange(len(pool))
        if not pool[number].is_floating_point():
            return None, []
        n, rank = x.shape[-1], x.dim()

        def scale(module, v, o):
            return v * (1 + torch.tanh(module.layers[0](o.flatten(1).mean(1, keepdim=True))).view(-1, *[1] * (rank - 2), n))
        return Apply("scale", scale, nn.Linear(1, n)), [len(pool) - 1, number]

    def features(self, x):
        n = x.shape[1]
        return self.draw.choice([
            lambda: nn.Linear(n, self.draw.choice([4, 8, 10, 24])), lambda: nn.BatchNorm1d(n), lambda: experts(n),
            lambda: Apply("outer", lambda _, v: v.unsqueeze(1) * v.unsqueeze(2) * 0.5),
            lambda: Apply("bilinear", lambda m, v: m.layers[0](v, torch.tanh(v)), nn.Bilinear(n, n, 6)),
            lambda: Apply("glu", lambda _, v: F.glu(v, -1)),
            lambda: Apply("over_batch", lambda _, v: v - v.mean(0, keepdim=True))])()

    def sequence(self, x):
        t, d = x.shape[1:]
        heads = next(h for h in (4, 2, 1) if d % h == 0)
        groups = self.draw.choice([g for g in (1, 2, t) if t % g == 0])
        recurrent = self.draw.choice([nn.LSTM, nn.GRU, nn.RNN])
        kinds = ["plain", "causal", "relative", "slopes", "shared", "rotary"]
        made = [
            lambda: Apply("multihead", lambda m, v: m.layers[0](v, v, v, need_weights=False)[0],
                          nn.MultiheadAttention(d, heads, batch_first=True)),
            lambda: nn.TransformerEncoderLayer(d, heads, 24, dropout=0.0, batch_first=True, norm_first=self.maybe(),
                                               activation=self.draw.choice(["relu", "gelu"])),
            lambda: nn.Conv1d(t, t if groups == t else 4 * groups, self.draw.choice([1, 3]), self.draw.choice([1, 2]),
                              self.draw.choice([0, 1]), groups=groups, bias=self.maybe()),
            lambda: Apply("transposed", lambda m, v: m.layers[0](v.transpose(1, 2)).transpose(1, 2),
                          nn.ConvTranspose1d(d, 5, 3, stride=self.draw.choice([1, 2]), padding=1)),
            lambda: self.draw.choice([nn.MaxPool1d(2), nn.AvgPool1d(3, 1, 1), nn.AdaptiveAvgPool1d(3), nn.AdaptiveMaxPool1d(2),
                                      nn.LPPool1d(2, 2)]),
            lambda: Apply("matmul", lambda _, v: torch.matmul(v, v.transpose(1, 2)) / d),
            lambda: Apply("einsum", lambda m, v: torch.einsum("btd,tde->bte", v, m.w), w=normal(t, d, 5, scale=0.3)),
            lambda: nn.BatchNorm1d(t, affine=self.maybe(0.8)), lambda: nn.InstanceNorm1d(t, affine=self.maybe()),
            lambda: nn.GroupNorm(next(g for g in (4, 2, 1) if t % g == 0), t),
            lambda: Apply("unfold", lambda _, v: v.unfold(1, 3, 1).flatten(2))]
        if t <= 40:  # whose steps are written out
            made.append(lambda: Apply(recurrent.__name__, lambda m, v: m.layers[0](v)[0], recurrent(
                d, 6, batch_first=True, bidirectional=self.maybe(0.3), num_layers=self.draw.choice([1, 2]))))
        made += [lambda kind=kind: attention(kind, t, d, heads) for kind in kinds] if max(t, d) <= 130 else []
        return self.draw.choice(made)()

    def image(self, x):
        c, h, w = x.shape[1:]
        ceil, k, dilation = self.maybe(0.3), self.draw.choice([1, 3, 3, 5]), self.draw.choice([1, 1, 2])
        groups = self.draw.choice([g for g in (1, 1, 2, 3, 4) if c % g == 0])
        mode = self.draw.choice(["nearest", "bilinear", "bicubic"])
        aligned = {} if mode == "nearest" else {"align_corners": self.maybe()}
        convolutions = [lambda: nn.Conv2d(c, 4 * groups, k, self.draw.choice([1, 1, 2]), k // 2 * dilation, dilation, groups, self.maybe(),
                                          self.draw.choice(["zeros", "zeros", "reflect", "replicate", "circular"]))]
        return self.draw.choice(convolutions * 4 + [
            lambda: nn.BatchNorm2d(c, affine=self.maybe(0.85)), lambda: nn.InstanceNorm2d(c, affine=self.maybe()),
            lambda: nn.GroupNorm(next(g for g in (4, 3, 2, 1) if c % g == 0), c),
            lambda: self.draw.choice([nn.MaxPool2d(2, ceil_mode=ceil), nn.MaxPool2d(3, 2, 1, ceil_mode=ceil), nn.MaxPool2d(3, 1, 1),
                                      nn.AvgPool2d(3, 1, 1, ceil, self.maybe()), nn.LPPool2d(2, 2), nn.AdaptiveMaxPool2d(2),
                                      nn.AdaptiveAvgPool2d((2, 3))]),
            lambda: Apply("up_" + mode, lambda _, v: F.interpolate(v, scale_factor=2, mode=mode, **aligned)),
            lambda: nn.PixelShuffle(2), lambda: nn.PixelUnshuffle(2), lambda: window(c, h, w),
            lambda: nn.ConvTranspose2d(c, 4 * groups, self.draw.choice([2, 3, 4]), self.draw.choice([1, 2]), 1, 0, groups, self.maybe()),
            lambda: nn.Conv2d(c, c * self.draw.choice([1, 1, 2]), self.draw.choice([3, 5, 7]), self.draw.choice([1, 2]), 2, groups=c),
            lambda: self.draw.choice([nn.ReflectionPad2d(1), nn.ReplicationPad2d((1, 0, 2, 1)), nn.ZeroPad2d((0, 1, 1, -1)),
                                      nn.CircularPad2d(1), nn.ConstantPad2d(1, 0.3)]),
            lambda: Apply("excite", lambda m, v: v * torch.sigmoid(m.layers[1](F.relu(m.layers[0](v.mean((2, 3), keepdim=True))))),
                          nn.Conv2d(c, 4, 1), nn.Conv2d(4, c, 1)),
            lambda: Apply("patches", lambda _, v: F.unfold(v, 3, padding=1)),
            lambda: Apply("norm_channels", lambda m, v: m.layers[0](v.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), nn.LayerNorm(c))])()


def sample_sums(x):
    return x.flatten(1).sum(1).mean()


LOSSES = {
    "cross_entropy": F.cross_entropy, "smoothed": lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1),
    "margin": lambda z, y: F.multi_margin_loss(z, y.clamp(min=0)),
    "weighted": lambda z, y: F.nll_loss(F.log_softmax(z, -1), y, z.new_tensor([0.5, 1.0, 2.0, 1.5, 0.7])),
    "mse": F.mse_loss, "bce": F.binary_cross_entropy_with_logits, "smooth_l1": lambda z, y: F.smooth_l1_loss(z, y, beta=0.5),
    "huber": F.huber_loss, "l1": lambda z, y: sample_sums((z - y).abs()), "sum_squares": lambda z, y: sample_sums((z - y) ** 2),
    "kl": lambda z, y: F.kl_div(F.log_softmax(z.flatten(1), 1), y.flatten(1), reduction="batchmean"),
    "cosine": lambda z, y: 1 - F.cosine_similarity(z.flatten(1), y.flatten(1)).mean(),
    "poisson": lambda z, y: F.poisson_nll_loss(z.clamp(max=3), y),
}
OF_CLASSES = ("cross_entropy", "smoothed", "margin", "weighted")


class RandomModel(nn.Module):
    """`sample` holds a batch; `text` names the layers."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.draw = random.Random(seed)
        large = seed % 3 == 0
        self.most_elements = MOST_OF_LARGE if large else MOST_ELEMENTS
        length, width = (self.draw.choice(sizes) for sizes in (((33, 64, 130), (32, 40, 96)) if large else ((5, 8, 9, 16), (6, 8, 12, 16))))
        kind = self.draw.choice(["image", "image", "tokens", "sequence", "features"])
        channels, height, lines, features = (((3, 16, 33), (24, 32), (20, 40, 45), (100, 256, 513)) if large
                                             else ((1, 3, 4), (7, 8, 12), (8, 9, 12), (6, 12, 20)))
        pool = [{"image": lambda: torch.randn(BATCH, *(self.draw.choice(sizes) for sizes in (channels, height, lines))),
                 "tokens": lambda: torch.randint(0, TOKENS, (BATCH, length)), "sequence": lambda: torch.randn(BATCH, length, width),
                 "features": lambda: torch.randn(BATCH, self.draw.choice(features))}[kind]()]
        self.layers, self.wiring = nn.ModuleList(), []
        if kind == "tokens":
            self.add(nn.Embedding(TOKENS, width, padding_idx=0 if self.draw.random() < 0.3 else None), [0], pool)
        layers, depth = Layers(self.draw), self.draw.randrange(3, 13)
        for _ in range(60):
            if len(self.layers) < depth:
                self.add_drawn(layers, pool)
        self.loss = self.draw.choice(list(LOSSES))
        self.extra = self.draw.randrange(1, len(pool)) if self.draw.random() < 0.25 else None
        self.sample = {"x": pool[0], "y": self.choose_head(pool[-1])}
        self.text = " ".join([kind, *(getattr(layer, "name", type(layer).__name__) for layer in self.layers), self.loss])

    def add_drawn(self, layers, pool):
        try:
            layer, wiring = layers.choose(pool)
        except (AssertionError, RuntimeError, ValueError):
            return
        if layer is not None:
            self.add(layer, wiring, pool)

    def add(self, layer, wiring, pool):
        """Unless it does not fit the tensor at hand, or what it gives is too large or no number."""
        try:
            with torch.no_grad():
                result = layer(*[pool[i] for i in wiring])
        except (AssertionError, IndexError, RuntimeError, ValueError):
            return
        fits = result.dim() >= 2 and result.shape[0] == BATCH and result.is_floating_point()
        if fits and 0 < result.numel() <= self.most_elements and bool(torch.isfinite(result).all()):
            self.layers.append(layer)
            self.wiring.append(wiring)
            pool.append(result)

    def choose_head(self, x):
        """Makes the last layer, and gives targets for the loss."""
        if self.loss in OF_CLASSES:
            self.head = nn.Linear(x.flatten(1).shape[1], CLASSES)
            y = torch.randint(0, CLASSES, (BATCH,))
            if self.loss != "margin" and self.draw.random() < 0.3:
                y[self.draw.randrange(BATCH)] = -100
            return y
        self.head = nn.Linear(x.shape[-1], 4)
        shape = self.head(x).shape
        if self.loss == "kl":
            return F.softmax(torch.randn(shape).flatten(1), 1).view(shape)
        return torch.rand(shape) if self.loss in ("bce", "poisson") else torch.randn(shape)

    def forward(self, x, y):
        pool = [x]
        for layer, wiring in zip(self.layers, self.wiring):
            pool.append(layer(*[pool[i] for i in wiring]))
        last = pool[-1].flatten(1) if self.loss in OF_CLASSES else pool[-1]
        loss = LOSSES[self.loss](self.head(last), y)
        if self.extra is not None:
            loss = loss + 0.1 * pool[self.extra].square().mean()
        return loss
