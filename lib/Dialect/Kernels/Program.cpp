//===- Program.cpp - what a program and who runs it agree on --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Program.h"

using namespace mlir;
using namespace mlir::memopt;

VariableOp mlir::memopt::findHyperparameter(ModuleOp module, StringRef name) {
  auto variable = module.lookupSymbol<VariableOp>(name);
  return variable && variable.getRole() == Role::Hyperparameter ? variable : VariableOp();
}

bool mlir::memopt::isProgramName(StringRef name) {
  static constexpr StringLiteral alone[] = {
      "lr",          "step",     "seed",         "sample_offset", "gradient_norm",
      "index_fault", "exchange", "next_samples", "train_step"};
  static constexpr StringLiteral roots[] = {"lr",        "loss_scale", "hyperparameter",
                                            "optimizer", "loop",       "sum"};
  auto [root, rest] = name.split('.');
  return llvm::is_contained(alone, name) || llvm::is_contained(roots, root);
}
