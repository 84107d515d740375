# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms as products with constant matrices of cosines and sines.

A length with divisors is split (Cooley and Tukey): of n = a b, the transforms of length a, a factor for each element, and those
of length b. So n elements take n (a + b) products, and the matrices have a² and b² elements.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from .pairs import Pair, as_real, is_complex

__all__ = ["RULES", "WINDOWS"]

#: Elements that are transformed by one product. That of a split's small matrices is several times slower; longer sums lose digits (the
#: error of 32, 64 and 128 elements is 1.3, 1.6 and 2.1 times that of PyTorch's transforms).
_MOST_DIRECT = 128


@functools.cache
def _table(rows: int, columns: int, length: int, is_sine: bool, weighted: bool = False) -> list[list[float]]:
    """sin or cos of 2 pi j k / length, for real results with the weights of the elements that a half spectrum stands for."""
    function = math.sin if is_sine else math.cos
    weights = [1 if not weighted or j == 0 or 2 * j == length else 2 for j in range(rows)]
    return [[weights[j] * function(2 * math.pi * (j * k % length) / length) for k in range(columns)] for j in range(rows)]


def _matrix(like: torch.Tensor, *facts: Any) -> torch.Tensor:
    return torch.tensor(_table(*facts), dtype=like.dtype)


def _divide(length: int) -> int:
    """The divisor next to the root, 1 for a prime."""
    return max(d for d in range(1, math.isqrt(length) + 1) if length % d == 0)


def _times(re: torch.Tensor, im: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, sign: int):
    """(re + i im) (cos + sign i sin)"""
    if im is None:
        return re @ cos, sign * (re @ sin)
    return re @ cos - sign * (im @ sin), im @ cos + sign * (re @ sin)


def _transform(re: torch.Tensor, im: torch.Tensor | None, sign: int):
    """Along the last dimension, without a factor."""
    length = re.shape[-1]
    a = _divide(length) if length > _MOST_DIRECT else 1
    if a == 1:
        cos, sin = (_matrix(re, length, length, length, is_sine) for is_sine in (False, True))
        return _times(re, im, cos, sin, sign)
    b = length // a
    # x[b i + j] along i, then the factor of (k, j), then along j; the result is y[k + a l].
    parts = [None if part is None else part.unflatten(-1, (a, b)).transpose(-1, -2) for part in (re, im)]
    re, im = (part.transpose(-1, -2) for part in _transform(*parts, sign))
    cos, sin = (_matrix(re, a, b, length, is_sine) for is_sine in (False, True))
    re, im = re * cos - sign * im * sin, im * cos + sign * re * sin
    return tuple(part.transpose(-1, -2).flatten(-2) for part in _transform(re, im, sign))


def _fit(part: torch.Tensor | None, length: int) -> torch.Tensor | None:
    if part is None or part.shape[-1] == length:
        return part
    if part.shape[-1] > length:
        return part[..., :length]
    return torch.nn.functional.pad(part, [0, length - part.shape[-1]])


def _factor(norm: str | None, length: int, is_inverse: bool) -> float:
    if norm == "ortho":
        return length ** -0.5
    return 1 / length if is_inverse == (norm in (None, "backward")) else 1.0


def _scale(part: torch.Tensor, factor: float) -> torch.Tensor:
    return part if factor == 1 else part * factor


def _real(value: Any) -> torch.Tensor:
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())


def _parts(value: Any, dim: int):
    parts = value if is_complex(value) else (_real(value), None)
    return [None if part is None else part.transpose(dim, -1) for part in parts]


def _pair(re, im, dim: int, factor: float):
    return Pair(*(_scale(part, factor).transpose(dim, -1) for part in (re, im)))


def _complex(value, n, dim, norm, sign):
    re, im = _parts(value, dim)
    n = n or re.shape[-1]
    return _pair(*_transform(_fit(re, n), _fit(im, n), sign), dim, _factor(norm, n, sign > 0))


def fft(value, n=None, dim=-1, norm=None):
    return _complex(value, n, dim, norm, -1)


def ifft(value, n=None, dim=-1, norm=None):
    return _complex(value, n, dim, norm, 1)


def _fold(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What cosines and sines meet: elements at equal distances from the first are added, or subtracted. Sums of half as many terms take
    half of the products, and lose fewer digits."""
    n = x.shape[-1]
    pairs = (n - 1) // 2
    begin, end = x[..., 1:pairs + 1], x[..., n - pairs:].flip(-1)
    return torch.cat([x[..., :1], begin + end, x[..., pairs + 1:n - pairs]], -1), begin - end


def rfft(value, n=None, dim=-1, norm=None):
    re, _ = _parts(value, dim)
    n = n or re.shape[-1]
    re, half = _fit(re, n), n // 2 + 1
    if n <= _MOST_DIRECT or _divide(n) == 1:
        even, odd = _fold(re)
        re = even @ _matrix(re, n // 2 + 1, half, n, False)
        im = -(odd @ _matrix(re, odd.shape[-1] + 1, half, n, True)[1:]) if odd.shape[-1] else torch.zeros_like(re)
    else:
        re, im = (part[..., :half] for part in _transform(re, None, -1))
    return _pair(re, im, dim, _factor(norm, n, False))


def irfft(value, n=None, dim=-1, norm=None):
    re, im = _parts(value, dim)
    n = n or 2 * (re.shape[-1] - 1)
    half = n // 2 + 1
    re, im = _fit(re, half), _fit(torch.zeros_like(re) if im is None else im, half)
    if n <= _MOST_DIRECT or _divide(n) == 1:
        cos, sin = (_matrix(re, half, n, n, is_sine, True) for is_sine in (False, True))
        result = re @ cos - im @ sin
    else:
        rest = n - half
        whole = [torch.cat([part, sign * part[..., 1:rest + 1].flip(-1)], -1) for part, sign in ((re, 1), (im, -1))]
        result, _ = _transform(*whole, 1)
    return _scale(result, _factor(norm, n, True)).transpose(dim, -1)


_OPPOSITE = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfft(value, n=None, dim=-1, norm=None):
    re, im = value if is_complex(value) else (value, torch.zeros_like(value))
    return irfft(Pair(re, -im), n, dim, _OPPOSITE[norm])


def ihfft(value, n=None, dim=-1, norm=None):
    result = rfft(value, n, dim, _OPPOSITE[norm])
    return Pair(result.re, -result.im)


def _rank(value: Any) -> int:
    return (value.re if is_complex(value) else value).dim()


def _several(last, other, is_real_first: bool):
    """A transform along several dimensions; `last` is that of the last of them."""
    def transform(value, s=None, dim=None, norm=None):
        dims = list(dim) if dim is not None else list(range(_rank(value)))[-len(s):] if s is not None else list(range(_rank(value)))
        sizes = list(s) if s is not None else [None] * len(dims)
        sizes = [None if size in (None, -1) else size for size in sizes]
        pairs = list(zip(sizes, dims))
        if is_real_first:
            value = last(value, *pairs[-1], norm)
            for size, place in pairs[:-1]:
                value = other(value, size, place, norm)
            return value
        for size, place in pairs[:-1]:
            value = other(value, size, place, norm)
        return last(value, *pairs[-1], norm)
    return transform


def _hermitian(is_inverse: bool):
    """Transforms of real signals with the other sign: of the conjugate spectra, with the factors of the other direction."""
    def transform(value, s=None, dim=None, norm=None):
        if is_inverse:
            found = _several(rfft, fft, True)(value, s, dim, _OPPOSITE[norm])
            return Pair(found.re, -found.im)
        value = Pair(value.re, -value.im) if is_complex(value) else value
        return _several(irfft, ifft, False)(value, s, dim, _OPPOSITE[norm])
    return transform


def _of_two(transform):
    return lambda value, s=None, dim=(-2, -1), norm=None: transform(value, s, dim, norm)


def _shifted(sign: int):
    def shift(value, dim=None):
        dims = range(_rank(value)) if dim is None else [dim] if isinstance(dim, int) else dim
        roll = lambda part: torch.roll(part, [part.shape[d] // 2 if sign > 0 else -(part.shape[d] // 2) for d in dims], list(dims))
        return type(value)(*map(roll, value)) if is_complex(value) else roll(value)
    return shift


# ----------------------------------------------------------------------------------------------------------
# Short-time transforms
# ----------------------------------------------------------------------------------------------------------

def _window(window, win_length, n_fft, like):
    win_length = win_length or n_fft
    if window is None:
        window = torch.ones(win_length, dtype=like.dtype)
    before = (n_fft - win_length) // 2
    return torch.nn.functional.pad(window, [before, n_fft - win_length - before]) if win_length != n_fft else window


def stft(x, n_fft, hop_length=None, win_length=None, window=None, normalized=False, onesided=None, return_complex=None,
         align_to_window=None):
    hop = hop_length or n_fft // 4
    parts = tuple(x) if isinstance(x, Pair) else (x,)
    frames = [part.unfold(-1, n_fft, hop) * _window(window, win_length, n_fft, part) for part in parts]
    found = fft(Pair(*frames)) if len(frames) == 2 else (fft if onesided is False else rfft)(*frames)
    found = type(found)(*(_scale(part.transpose(-1, -2), n_fft ** -0.5 if normalized else 1) for part in found))
    return found if return_complex else as_real(found)


def istft(value, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None,
          return_complex=False):
    hop = hop_length or n_fft // 4
    window = _window(window, win_length, n_fft, value[0])
    spectrum = type(value)(*(part.transpose(-1, -2) for part in value))
    if return_complex:
        frames = list(ifft(spectrum))
    else:  # of a whole spectrum PyTorch reads the first half alone
        frames = [irfft(type(value)(*(part[..., :n_fft // 2 + 1] for part in spectrum)), n_fft)]
    factor = n_fft ** 0.5 if normalized else 1
    signals = [_overlap(_scale(part, factor), window, hop, n_fft, center, length) for part in frames]
    return type(value)(*signals) if return_complex else signals[0]


def _overlap(frames, window, hop, n_fft, center, length):
    """The sum of windowed frames where they lie, over that of the squared windows."""
    frames = frames * window
    count = frames.shape[-2]
    total = n_fft + hop * (count - 1)
    places = (torch.arange(count)[:, None] * hop + torch.arange(n_fft)).flatten()
    signal = frames.new_zeros([*frames.shape[:-2], total]).index_add(-1, places, frames.flatten(-2))
    weights = window.new_zeros([total]).index_add(0, places, (window * window).expand(count, n_fft).flatten())
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - start if center else total
    signal, weights = signal[..., start:end], weights[start:end]
    result = signal / weights
    return _fit(result, length) if length is not None else result


def _cosines(*weights: float):
    """A window of cosines: the sum of (-1)^k weight k cos(2 pi k i / length)."""
    def make(length, periodic=True, *others, dtype=None, **_):
        used = (others[0], others[1] if len(others) > 1 else 1 - others[0]) if others else weights
        turns = max(length if periodic else length - 1, 1)
        values = [sum((-1) ** k * weight * math.cos(2 * math.pi * k * i / turns) for k, weight in enumerate(used)) for i in range(length)]
        return torch.tensor(values if length > 1 else [1.0] * length, dtype=dtype or torch.get_default_dtype())
    return make


def _triangle(length, periodic=True, *, dtype=None, **_):
    turns = max(length if periodic else length - 1, 1)
    values = [1 - abs(2 * i / turns - 1) for i in range(length)]
    return torch.tensor(values if length > 1 else [1.0] * length, dtype=dtype or torch.get_default_dtype())


WINDOWS = {"hann_window": _cosines(0.5, 0.5), "hamming_window": _cosines(0.54, 0.46), "blackman_window": _cosines(0.42, 0.5, 0.08),
           "bartlett_window": _triangle}
#: What operators below torch.fft call the norms, of which gradients inside a step consist.
_FORWARD, _INVERSE = ("backward", "ortho", "forward"), ("forward", "ortho", "backward")


def _from_complex(value, dim, normalization, forward):
    transform, norms = (fft, _FORWARD) if forward else (ifft, _INVERSE)
    return _several(transform, transform, False)(value, None, dim, norms[normalization])


def _from_real(value, dim, normalization, onesided):
    return (_several(rfft, fft, True) if onesided else _several(fft, fft, False))(value, None, dim, _FORWARD[normalization])


def _to_real(value, dim, normalization, last_dim_size):
    return _several(irfft, ifft, False)(value, [None] * (len(dim) - 1) + [last_dim_size], dim, _INVERSE[normalization])


RULES = {"fft_fft": fft, "fft_ifft": ifft, "fft_rfft": rfft, "fft_irfft": irfft, "fft_hfft": hfft, "fft_ihfft": ihfft,
         "fft_fftn": _several(fft, fft, False), "fft_ifftn": _several(ifft, ifft, False),
         "fft_rfftn": _several(rfft, fft, True), "fft_irfftn": _several(irfft, ifft, False),
         "fft_fft2": _of_two(_several(fft, fft, False)), "fft_ifft2": _of_two(_several(ifft, ifft, False)),
         "fft_rfft2": _of_two(_several(rfft, fft, True)), "fft_irfft2": _of_two(_several(irfft, ifft, False)),
         "fft_hfftn": _hermitian(False), "fft_hfft2": _of_two(_hermitian(False)),
         "fft_ihfftn": _hermitian(True), "fft_ihfft2": _of_two(_hermitian(True)),
         "fft_fftshift": _shifted(1), "fft_ifftshift": _shifted(-1), "stft": stft, "istft": istft,
         "_fft_c2c": _from_complex, "_fft_r2c": _from_real, "_fft_c2r": _to_real}
