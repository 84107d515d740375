//===- Forms.cpp - forms of a step ---------------------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Search/Forms.h"

#include "llvm/ADT/STLExtras.h"

#include <tuple>

using namespace mlir::memopt;

bool Form::operator==(const Form &other) const {
  auto getFields = [](const Form &form) {
    return std::tie(form.batch, form.microBatches, form.precision, form.activationDtype,
                    form.activations, form.tilesLayers, form.offloadOptimizer, form.offloadParam);
  };
  return getFields(*this) == getFields(other);
}

Form Form::of(const PipelineOptions &options) {
  return {options.batch,
          options.microBatches,
          options.precision,
          options.activationDtype,
          {options.activations.begin(), options.activations.end()},
          llvm::is_contained(options.tileModules, kAllLayers),
          options.offloadOptimizer,
          options.offloadParam};
}

void Form::apply(PipelineOptions &options) const {
  options.batch = batch;
  options.microBatches = microBatches;
  options.precision = precision;
  options.activationDtype = activationDtype;
  options.activations = activations;
  if (tilesLayers && !llvm::is_contained(options.tileModules, kAllLayers)) {
    options.tileModules = {std::string(kAllLayers)};
    options.tileModuleParts = kMostParts;
  }
  options.offloadOptimizer = offloadOptimizer;
  options.offloadParam = offloadParam;
}
