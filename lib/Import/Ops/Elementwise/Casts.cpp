//===- Casts.cpp - conversions and copies -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpContext.h"

using namespace llvm;
using namespace memopt::pt2;

/// The same tensor where the element type stays and no copy is asked for.
static Error lowerTo(OpContext &op) {
  Tensor self = op.tensor("self");
  DType type = op.dtype("dtype").value_or(self.dtype);
  if (type == self.dtype)
    return setResult(op, op.flag("copy") ? op.copy(self) : self);
  return setResult(op, castTo(op, self, type));
}

static Error lowerToCopy(OpContext &op) {
  Tensor self = op.tensor("self");
  return setResult(op, op.copy(castTo(op, self, op.dtype("dtype").value_or(self.dtype))));
}

static Error lowerTypeAs(OpContext &op) {
  return setResult(op, castTo(op, op.tensor("self"), op.tensor("other").dtype));
}

static Error lowerIdentity(OpContext &op) { return setResult(op, op.tensor("self")); }
static Error lowerClone(OpContext &op) { return setResult(op, op.copy(op.tensor("self"))); }

/// Fills memory that exists with other elements.
static Error lowerCopy(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(Tensor source, expand(op, op.tensor("src"), self.sizes));
  return setResult(op, op.copy(castTo(op, source, self.dtype)));
}

void memopt::pt2::registerCasts(OpTable &table) {
  table.add(
      "aten.to.dtype",
      "Tensor self, dtype dtype, bool non_blocking=False, bool copy=False, ignored memory_format",
      lowerTo);
  table.add("aten.to.dtype_layout",
            "Tensor self, dtype? dtype=None, ignored layout, ignored device, ignored pin_memory, "
            "bool non_blocking=False, bool copy=False, ignored memory_format",
            lowerTo);
  table.add("aten.to.device",
            "Tensor self, ignored device, dtype dtype, bool non_blocking=False, bool copy=False, "
            "ignored memory_format",
            lowerTo);
  table.add("aten._to_copy.default",
            "Tensor self, dtype? dtype=None, ignored layout, ignored device, ignored pin_memory, "
            "bool non_blocking=False, ignored memory_format",
            lowerToCopy);
  table.add("aten.type_as.default", "Tensor self, Tensor other", lowerTypeAs);
  table.add("aten.contiguous.default", "Tensor self, ignored memory_format", lowerIdentity);
  table.add("aten.clone.default", "Tensor self, ignored memory_format", lowerClone);
  table.add("aten.lift_fresh_copy.default", "Tensor self", lowerClone);
  table.add("aten.lift_fresh.default", "Tensor self", lowerIdentity);
  table.add("aten.copy.default", "Tensor self, Tensor src, bool non_blocking=False", lowerCopy);
}
