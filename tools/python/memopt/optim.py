# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers that memopt-compile has and torch.optim has not, or otherwise, as optimizers of torch.

    optimizer = memopt.optim.Lion(model.parameters(), lr=1e-4)

They step in PyTorch, and `memopt.compile` takes them as the option of that name, with the same numbers within rounding.
docs/Optimizers.md says where each comes from.
"""

from __future__ import annotations

from typing import Any

import torch

from .errors import BadInput

__all__ = ["AdamMini", "Apollo", "ApolloMini", "Lion", "Muon", "SM3"]


class _Optimizer(torch.optim.Optimizer):
    """A rule for each parameter; the state counts its steps."""

    def __init__(self, params, **defaults: Any):
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            names = group.get("param_names") or [""] * len(group["params"])
            for name, parameter in zip(names, group["params"]):
                if parameter.grad is None:
                    continue
                if parameter.grad.is_sparse:
                    raise BadInput(f"{type(self).__name__} takes no sparse gradients")
                state = self.state[parameter]
                state["step"] = state.get("step", torch.tensor(0.0)) + 1
                self._update(name, parameter, parameter.grad, state, group)
        return loss

    def _update(self, name: str, parameter: torch.Tensor, gradient: torch.Tensor, state: dict, group: dict) -> None:
        raise NotImplementedError


def _get(state: dict, key: str, like: torch.Tensor) -> torch.Tensor:
    """State that begins at zero."""
    if key not in state:
        state[key] = torch.zeros_like(like)
    return state[key]


def _step_by_adam(parameter: torch.Tensor, direction: torch.Tensor, square: torch.Tensor, state: dict, group: dict,
                  betas: tuple[float, float]) -> None:
    """With bias corrections, from averages of the gradient and of its square."""
    steps = float(state["step"])
    denominator = square.sqrt() / (1 - betas[1] ** steps) ** 0.5 + group["eps"]
    parameter.sub_(group["lr"] / (1 - betas[0] ** steps) * (direction / denominator))


class Lion(_Optimizer):
    """Chen et al., Symbolic Discovery of Optimization Algorithms, 2023."""

    def __init__(self, params, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0):
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay)

    def _update(self, name, parameter, gradient, state, group):
        average, (beta1, beta2) = _get(state, "exp_avg", parameter), group["betas"]
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(group["lr"] * torch.sign(beta1 * average + (1 - beta1) * gradient))
        average.mul_(beta2).add_((1 - beta2) * gradient)


class SM3(_Optimizer):
    """Anil et al., Memory-Efficient Adaptive Optimization, 2019, SM3-II: a vector of state for each dimension."""

    def __init__(self, params, lr: float = 0.1, momentum: float = 0.9, eps: float = 1e-30):
        super().__init__(params, lr=lr, momentum=momentum, eps=eps)

    def _update(self, name, parameter, gradient, state, group):
        rank = gradient.dim()
        total = None
        for dim in range(max(1, rank)):
            like = gradient.new_zeros(gradient.shape[dim] if rank else ())
            seen = _get(state, f"accumulator_{dim}", like).reshape([-1 if place == dim else 1 for place in range(rank)])
            total = seen if total is None else torch.minimum(total, seen)
        total = total + gradient * gradient
        for dim in range(max(1, rank)):
            others = [place for place in range(rank) if place != dim]
            state[f"accumulator_{dim}"] = total.amax(others) if others else total.clone()
        direction = (1 - group["momentum"]) * gradient / torch.sqrt(total + group["eps"])
        if group["momentum"] != 0:
            direction = state["momentum_buffer"] = group["momentum"] * _get(state, "momentum_buffer", parameter) + direction
        parameter.sub_(group["lr"] * direction)


_ROWS = ("embed", "embd", "wte", "lm_head", "output", "final_layer", "v_proj", "wv", "value", "o_proj", "wo", "attn.proj",
         "feed_forward", "linear", "mlp")
_HEADS = ("k_proj", "q_proj", "wq", "wk", "query", "key")


class AdamMini(_Optimizer):
    """Zhang et al., Adam-mini: Use Fewer Learning Rates To Gain More, 2024: a second moment for each block.

    Blocks go by the names of the parameters, so it is made from `model.named_parameters()`.
    """

    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, n_heads: int = 0):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, n_heads=n_heads)
        if any("param_names" not in group for group in self.param_groups):
            raise BadInput("AdamMini goes by the parameters' names; make it from model.named_parameters()")

    @staticmethod
    def _count_blocks(name: str, parameter: torch.Tensor, group: dict) -> int:
        elements = parameter.numel()
        if "bias" in name or elements == 0:
            return max(1, elements)
        if any(word in name for word in _HEADS) and parameter.dim() >= 2:
            heads, square = group["n_heads"], parameter.shape[1] ** 2
            if not heads or square % heads or elements % (square // heads):
                raise BadInput(f"AdamMini: n_heads={heads} does not cut '{name}', which its name makes a query or key "
                               "projection, into heads")
            return elements // (square // heads)
        return parameter.shape[0] if any(word in name for word in _ROWS) and parameter.dim() else 1

    def _update(self, name, parameter, gradient, state, group):
        name = name.lower()
        average, betas = _get(state, "exp_avg", parameter), group["betas"]
        blocks = self._count_blocks(name, parameter, group)
        square = _get(state, "vmean", gradient.new_zeros(blocks)).reshape(-1)
        if not any(word in name for word in ("norm", "ln", "bias")):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        average.mul_(betas[0]).add_((1 - betas[0]) * gradient)
        square.mul_(betas[1]).add_((1 - betas[1]) * gradient.square().reshape(blocks, -1).mean(1))
        state["vmean"] = square
        _step_by_adam(parameter.view(blocks, -1), average.view(blocks, -1), square[:, None], state, group, betas)


class Muon(_Optimizer):
    """Jordan et al., Muon, 2024: matrices by orthogonal momentum, everything else by AdamW.

    As torch.optim.Muon, but in the parameters' type where that rounds to bf16, and for whole models: parameters that are no
    matrices, and groups with `muon=False`, where embeddings belong, are updated by AdamW with betas 0.9 and 0.999.
    """

    def __init__(self, params, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None):
        if adjust_lr_fn not in (None, "original", "match_rms_adamw", "spectral_unclamped"):
            raise BadInput(f"adjust_lr_fn={adjust_lr_fn!r}: expected original, match_rms_adamw or spectral_unclamped")
        super().__init__(params, lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, eps=eps,
                         ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn, muon=True)

    def _update(self, name, parameter, gradient, state, group):
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        if parameter.dim() != 2 or not group["muon"]:
            betas = 0.9, 0.999
            average, square = _get(state, "exp_avg", parameter), _get(state, "exp_avg_sq", parameter)
            average.lerp_(gradient, 1 - betas[0])
            square.mul_(betas[1]).add_((1 - betas[1]) * gradient * gradient)
            return _step_by_adam(parameter, average, square, state, group, betas)
        buffer = _get(state, "momentum_buffer", parameter)
        buffer.lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
        rows, columns = parameter.shape
        factor = {"match_rms_adamw": 0.2 * max(rows, columns) ** 0.5,
                  "spectral_unclamped": (rows / columns) ** 0.5}.get(group["adjust_lr_fn"], max(1.0, rows / columns) ** 0.5)
        parameter.sub_(group["lr"] * factor * self._orthogonalize(direction, group))

    @staticmethod
    def _orthogonalize(direction: torch.Tensor, group: dict) -> torch.Tensor:
        x = direction / direction.norm().clamp(min=group["eps"])
        is_tall = x.shape[0] > x.shape[1]
        x = x.T if is_tall else x
        for _ in range(group["ns_steps"]):
            gram = x @ x.T
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        return x.T if is_tall else x


def _draw_normal(rows: int, columns: int, step: int, id: int) -> torch.Tensor:
    """Normal numbers by counter, as the compiled step draws them (memopt.random with seed 0)."""
    words = 2 * rows * columns
    number = torch.arange((words + 3) // 4, dtype=torch.int64)
    low, counter = 0xFFFFFFFF, [number & 0xFFFFFFFF, number >> 32, torch.full_like(number, step & 0xFFFFFFFF), torch.full_like(number, id)]
    keys = [0, 0]

    def multiply(factor: int, word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The upper and the lower half of a product of 64 bits, by parts that fit."""
        upper, lower = factor * (word >> 16), factor * (word & 0xFFFF)
        sum_ = (upper & 0xFFFF) * 65536 + lower
        return (upper >> 16) + (sum_ >> 32), sum_ & low

    for _ in range(10):
        (high0, low0), (high1, low1) = multiply(0xD2511F53, counter[0]), multiply(0xCD9E8D57, counter[2])
        counter = [high1 ^ counter[1] ^ keys[0], low1, high0 ^ counter[3] ^ keys[1], low0]
        keys = [(keys[0] + 0x9E3779B9) & low, (keys[1] + 0xBB67AE85) & low]
    pairs = torch.stack(counter, 1).reshape(-1)[:words].reshape(-1, 2)
    inside = ((pairs >> 9).double() + 0.5) * 2.0 ** -23
    normal = torch.sqrt(-2 * torch.log(inside[:, 0])) * torch.cos(2 * torch.pi * inside[:, 1])
    return normal.reshape(rows, columns)


class Apollo(_Optimizer):
    """Zhu et al., APOLLO: SGD-like Memory, AdamW-level Performance, 2025.

    Adam's moments of a random projection of a matrix' gradient say how long the update of each row or column is; the update
    is the gradient. What is no matrix, or has a side no longer than the rank, is updated as by AdamW.
    """

    _is_of_all = False  #: one factor for the matrix

    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
                 weight_decay: float = 0.0, rank: int = 256, update_proj_gap: int = 200, apollo_scale: float = 1.0):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, rank=rank,
                         update_proj_gap=update_proj_gap, apollo_scale=apollo_scale)

    def _update(self, name, parameter, gradient, state, group):
        (beta1, beta2), steps = group["betas"], int(state["step"])
        is_projected = parameter.dim() == 2 and min(parameter.shape) > group["rank"]
        low = self._project(gradient, steps, group) if is_projected else gradient
        average, square = _get(state, "exp_avg", low), _get(state, "exp_avg_sq", low)
        average.mul_(beta1).add_((1 - beta1) * low)
        square.mul_(beta2).add_((1 - beta2) * low * low)
        update = average / (square.sqrt() + group["eps"])
        if is_projected:
            update = self._scale(gradient, update, low, state, group)
        parameter.sub_(group["lr"] * (1 - beta2 ** steps) ** 0.5 / (1 - beta1 ** steps) * update)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])

    @staticmethod
    def _project(gradient: torch.Tensor, steps: int, group: dict) -> torch.Tensor:
        tall = gradient if gradient.shape[0] >= gradient.shape[1] else gradient.T
        drawn = _draw_normal(tall.shape[1], group["rank"], (steps - 1) // group["update_proj_gap"], 1 << 29)
        return tall @ drawn.to(tall) / group["rank"] ** 0.5

    def _scale(self, gradient: torch.Tensor, update: torch.Tensor, low: torch.Tensor, state: dict, group: dict) -> torch.Tensor:
        if self._is_of_all:
            scaled = gradient * (update.norm() / (low.norm() + 1e-8))
        else:
            factor = update.norm(dim=1) / (low.norm(dim=1) + 1e-8)
            scaled = gradient * (factor[:, None] if gradient.shape[0] >= gradient.shape[1] else factor)
        norm, growth = scaled.norm().double(), 1.0
        if int(state["step"]) > 1:
            growth = (norm / (state["scaled_norm"] + 1e-8)).clamp(min=1.01) / 1.01
        state["scaled_norm"] = norm / growth
        return group["apollo_scale"] ** 0.5 * (scaled / growth)


class ApolloMini(Apollo):
    """APOLLO-Mini: one projected dimension, and one factor for a matrix."""

    _is_of_all = True

    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
                 weight_decay: float = 0.0, rank: int = 1, update_proj_gap: int = 200, apollo_scale: float = 128.0):
        super().__init__(params, lr, betas, eps, weight_decay, rank, update_proj_gap, apollo_scale)
