//===- Forms.cpp - forms of a step ---------------------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Search/Forms.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir::memopt;

Form Form::of(const PipelineOptions &options) {
  return {options.batch,
          options.microBatches,
          options.precision,
          options.activationDtype,
          options.activationShare,
          llvm::is_contained(options.tileModules, kAllLayers),
          options.offloadOptimizer,
          options.offloadParam};
}

void Form::apply(PipelineOptions &options) const {
  options.batch = batch;
  options.microBatches = microBatches;
  options.precision = precision;
  options.activationDtype = activationDtype;
  options.activationShare = activationShare;
  if (tilesLayers && !llvm::is_contained(options.tileModules, kAllLayers)) {
    options.tileModules = {std::string(kAllLayers)};
    options.tileModuleParts = kMostParts;
  }
  options.offloadOptimizer = offloadOptimizer;
  options.offloadParam = offloadParam;
}
