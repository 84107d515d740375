# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that were written over behind the back of autograd, as by `x.detach().clamp_(min=1)`: other values, with the gradient of x."""

from __future__ import annotations

import torch

__all__ = ["WITH_GRADIENT_OF"]

_library = torch.library.Library("memopt", "FRAGMENT")
#: What was written; its gradient is that of `value`, whatever the two are, infinite ones too.
_library.define("with_gradient_of(Tensor written, Tensor value) -> Tensor", tags=(torch.Tag.pointwise,))
_library.impl("with_gradient_of", lambda written, value: written.clone(), "CompositeExplicitAutograd")
torch.library.register_fake("memopt::with_gradient_of", lambda written, value: torch.empty_like(written), lib=_library)
torch.library.register_autograd("memopt::with_gradient_of", lambda ctx, gradient: (None, gradient), lib=_library)
WITH_GRADIENT_OF = torch.ops.memopt.with_gradient_of.default
