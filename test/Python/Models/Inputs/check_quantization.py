# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Observers and FakeQuantize of torch.ao.quantization: batch by batch beside PyTorch, in the program and in a compiled step."""

import torch
import torch.ao.quantization as quantization
import torch.nn.functional as F
from torch import nn

import memopt
from memopt import export
from rewriting import compare_step

FakeQuantize = quantization.FakeQuantize
CASES = {
    "averages": (FakeQuantize.with_args(observer=quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8),
                 FakeQuantize.with_args(observer=quantization.MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127,
                                        dtype=torch.qint8, qscheme=torch.per_channel_symmetric)),
    "extremes": (FakeQuantize.with_args(observer=quantization.MinMaxObserver, quant_min=0, quant_max=15, dtype=torch.quint8,
                                        qscheme=torch.per_tensor_symmetric),
                 FakeQuantize.with_args(observer=quantization.PerChannelMinMaxObserver, quant_min=-8, quant_max=7, dtype=torch.qint8,
                                        qscheme=torch.per_channel_affine, ch_axis=1)),
    "fused": (quantization.FusedMovingAvgObsFakeQuantize.with_args(observer=quantization.MovingAverageMinMaxObserver, quant_min=0,
                                                                   quant_max=255, dtype=torch.quint8),
              quantization.FusedMovingAvgObsFakeQuantize.with_args(observer=quantization.MovingAveragePerChannelMinMaxObserver,
                                                                   quant_min=-128, quant_max=127, dtype=torch.qint8,
                                                                   qscheme=torch.per_channel_symmetric)),
    "fused_symmetric": (quantization.FusedMovingAvgObsFakeQuantize.with_args(
        observer=quantization.MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
        qscheme=torch.per_tensor_symmetric),) * 2,
}


class Net(nn.Module):
    def __init__(self, activation, weight):
        super().__init__()
        self.linear, self.activation, self.weight = nn.Linear(6, 5), activation(), weight()

    def forward(self, x, t):
        return F.cross_entropy(F.linear(self.activation(x), self.weight(self.linear.weight), self.linear.bias), t)


def make(name):
    torch.manual_seed(0)
    return Net(*CASES[name]), [{"x": torch.randn(8, 6) * (1 + number) + number, "t": torch.randint(5, (8,))} for number in range(5)]


def check_program(name):
    model, batches = make(name)
    twin = make(name)[0]
    module = export.export_program(export.TrainingStep(twin), batches[0], training=True).module()
    for number, batch in enumerate(batches):
        if number == 3:
            for part in (model.activation, module.net.activation):
                part.observer_enabled[0] = 0
        if number == 4:
            for part in (model.activation, module.net.activation):
                part.fake_quant_enabled[0] = 0
        torch.testing.assert_close(module(**batch), model(**batch), rtol=1e-6, atol=1e-6, msg=lambda text: f"{name}, {number}: {text}")
        mine = dict(module.net.named_buffers())
        for key, value in model.named_buffers():
            torch.testing.assert_close(mine[key], value, rtol=1e-6, atol=0, msg=lambda text: f"{name}, {number}, {key}: {text}")
    print(f"ok {name}")


def check_refusal():
    model = Net(FakeQuantize.with_args(observer=quantization.HistogramObserver, quant_min=0, quant_max=255, dtype=torch.quint8), nn.Identity)
    try:
        export.export_program(export.TrainingStep(model), {"x": torch.randn(2, 6), "t": torch.zeros(2, dtype=torch.long)}, training=True)
    except memopt.Refused as error:
        assert "HistogramObserver" in str(error), error
    else:
        raise AssertionError("a histogram was taken")
    print("ok refusal")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in CASES:
        check_program(name)
    compare_step("by channel", lambda: (lambda model, batches: (model, batches[0]))(*make("averages")))
    check_refusal()
