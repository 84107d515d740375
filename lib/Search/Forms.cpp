//===- Forms.cpp - forms of a step ---------------------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Search/Forms.h"

using namespace mlir::memopt;

Form Form::of(const PipelineOptions &options) {
  return {options.batch,           options.microBatches,    options.precision,
          options.activationDtype, options.activationShare, options.offloadOptimizer,
          options.offloadParam};
}

void Form::apply(PipelineOptions &options) const {
  options.batch = batch;
  options.microBatches = microBatches;
  options.precision = precision;
  options.activationDtype = activationDtype;
  options.activationShare = activationShare;
  options.offloadOptimizer = offloadOptimizer;
  options.offloadParam = offloadParam;
}
