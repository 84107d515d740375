//===- Pt2.h - import a model exported by PyTorch -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The room's entry: a .pt2 file in, a module with `func.func @train_step` and the model's variables
// out. See docs/Import.md for what is read, what is refused and why.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_GRAPH_PT2_H
#define MEMOPT_IMPORT_GRAPH_PT2_H

#include "memopt/Import/Archive/Dimensions.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace llvm {
class MemoryBuffer;
} // namespace llvm

namespace memopt::pt2 {

struct ImportOptions {
  /// Which user output is the loss: its name in the graph, or its index among the user outputs.
  /// Empty: the first floating-point scalar.
  std::string loss;
  /// Evaluation runs the forward pass alone: batch norms use their running statistics, dropout is
  /// the identity, nothing is written, and there may be no loss.
  bool evaluate = false;
  /// Off: dropout is the identity, everything else as in training.
  bool dropout = true;
  /// Operators that the archive brings as C source are compiled into the program.
  bool allowsC = false;
  /// The machine that the module is for (memopt.target), or null for a processor: what its libraries
  /// do not compute is written out.
  mlir::Attribute target;
  /// Sizes of the archive's symbolic dimensions, all of which need one.
  DimensionSizes dimensions;
};

/// Reads the file. The module keeps the file mapped for as long as its initial values live in the
/// context. Errors are one message that names the file, the place in it, what was expected and
/// found.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
importPt2(mlir::MLIRContext &context, llvm::StringRef path, const ImportOptions &options = {});

/// The same over bytes in memory; the buffer's identifier names it in errors.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
importPt2(mlir::MLIRContext &context, std::shared_ptr<llvm::MemoryBuffer> buffer,
          const ImportOptions &options = {});

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_GRAPH_PT2_H
