# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The export helper's refusals, each with a model that must be refused, and models beside them that must not be."""
import torch
from torch import nn

from memopt import export
from memopt.tracing import gradients

BATCH = {"x": torch.randn(2, 4), "y": torch.randn(2, 4)}


class Model(nn.Module):
    """A layer, whose product `change` sees."""

    def __init__(self, change):
        super().__init__()
        self.layer, self.change = nn.Linear(4, 4), change

    def forward(self, x, y):
        return (self.change(self, x) - y).square().mean()


def under_autocast(enabled):
    def change(model, x):
        with torch.autocast("cpu", enabled=enabled):
            return model.layer(x).float()
    return change


def under_autocast_without_gradients(model, x):
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        scale = model.layer(x).abs().amax()
    return model.layer(x) / scale


def writing_a_parameter(model, x):
    with torch.no_grad():
        model.layer.weight.mul_(x.std())
    return model.layer(x)


def differentiating(model, x):
    product = model.layer(x)
    return product + torch.autograd.grad(product.sum(), model.layer.weight)[0].sum()


def dropping_a_layer(probability):
    def change(model, x):
        drawn = torch.rand([])
        return x if model.training and drawn < probability else model.layer(x)
    return change


def replacing_a_parameter(model, x):
    model.layer.weight = nn.Parameter(model.layer.weight * 0.9)
    return model.layer(x)


def by_second_names(model, x):
    h = torch.negative(model.layer(x)).tanh()
    h = torch.where(torch.greater(h, 0), torch.arctan2(h, torch.absolute(h) + 1), torch.multiply(h, 2)) + h.arcsinh() + torch.fix(h)
    return torch.subtract(h, 1)


class _Criterion:
    def __init__(self, model):
        self.steps, self.scale = torch.arange(4.0), [model.layer.bias.detach() + 1]


def made_by_the_first_call(model, x):
    """What forward keeps for its later calls is no tensor of a trace, though a branch has the model traced several times."""
    if getattr(model, "criterion", None) is None:
        model.criterion = _Criterion(model)
    y = model.layer(x)
    if x.sum() > 100:
        y = y * 2
    return y * model.criterion.scale[0] + model.criterion.steps


REFUSED = {replacing_a_parameter: "in the place of the parameter 'layer.weight'",
           writing_a_parameter: "writes the parameter layer.weight"}
KEPT = [under_autocast(False), under_autocast(True), differentiating, under_autocast_without_gradients, dropping_a_layer(0.0), dropping_a_layer(1),
        by_second_names, made_by_the_first_call]


def get_program(model):
    return export.export_program(export.TrainingStep(model), BATCH, training=True)


for change, words in REFUSED.items():
    try:
        get_program(Model(change))
    except gradients.Refused as refusal:
        assert words in str(refusal), refusal
    else:
        raise AssertionError(f"not refused: {words}")
hooked = Model(lambda model, x: model.layer(x))
hooked.layer.weight.register_post_accumulate_grad_hook(lambda weight: None)
try:
    get_program(hooked)
except gradients.Refused as refusal:
    assert "a hook behind the accumulation of the gradient of 'layer.weight'" in str(refusal), refusal
else:
    raise AssertionError("a hook on a parameter was not refused")
for change in KEPT:
    model = Model(change)
    result = get_program(model).module()(**BATCH)
    assert torch.equal(result if torch.is_tensor(result) else result[0], model(**BATCH))
kept = Model(made_by_the_first_call)
get_program(kept)
assert "criterion" not in vars(kept), "an attribute with tensors of a trace"
names = {str(node.target) for node in get_program(Model(by_second_names)).graph.nodes}
assert not names & {f"aten.{name}" for name in ("negative.default", "greater.Scalar", "arctan2.default", "absolute.default", "fix.default")}, names
# A branch by a random number is drawn in each step, with both sides in the program.
drawn = {str(node.target) for node in get_program(Model(dropping_a_layer(0.5))).graph.nodes}
assert any("rand" in name for name in drawn) and any("where" in name for name in drawn), drawn
