//===- ObjectEmission.h - machine code of a program -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_OBJECTS_OBJECTEMISSION_H
#define MEMOPT_CONVERSION_OBJECTS_OBJECTEMISSION_H

#include "mlir/IR/BuiltinOps.h"
#include <string>

namespace memopt {
class Cache;
} // namespace memopt

namespace mlir::memopt {

struct ObjectOptions {
  /// A processor as clang's -march names it; empty: the machine at hand.
  std::string processor;
  /// The most threads that compile at once. The result does not depend on it.
  unsigned threads = 1;
  /// Where machine code is found again, or null. The result does not depend on it.
  ::memopt::Cache *cache = nullptr;
};

/// The processor that `name` means ("" and "native": this machine's), or failure with a message
/// that lists nothing but names the unknown one.
FailureOr<std::string> resolveProcessor(StringRef name, std::string &message);

/// Bytes of one vector register of a resolved processor, at most 64.
int64_t getVectorBytes(StringRef processor);

/// Turns every function of `program` into the LLVM dialect, but for ops of `legalDialect`.
LogicalResult convertToLLVMDialect(ModuleOp program, StringRef legalDialect = "");

/// How an emission ended: the program has what no code is generated for, or the machine lacks
/// something (the linker, room on the disk).
enum class Emission { Done, BadProgram, Environment };

/// Compiles `program` (functions of KernelLowering and of the LLVM dialect) and links it to the
/// shared object `path`. Uses up the program. Fails with a diagnostic at the program's location.
Emission emitSharedObject(ModuleOp program, const ObjectOptions &options, StringRef path);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_OBJECTS_OBJECTEMISSION_H
