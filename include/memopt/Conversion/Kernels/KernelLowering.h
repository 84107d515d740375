//===- KernelLowering.h - code of kernels -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For a processor a kernel becomes one function on bare pointers: the step, operands, then results;
// behind them what tells its random numbers from those of other layers.
// Its loops run through the parallel_for of the step's runtime; what an iteration computes does not
// depend on how the loop is cut, so bits do not depend on the number of threads. Every sum is taken
// in an order that follows from shapes.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_KERNELS_KERNELLOWERING_H
#define MEMOPT_CONVERSION_KERNELS_KERNELLOWERING_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::memopt {

struct KernelOptions {
  /// Bytes of one vector register of the target; see getVectorBytes in ObjectEmission.h.
  int64_t vectorBytes = 64;
  /// Plain scalar loops over elements, for comparison.
  bool isReference = false;
  /// Stages that cost less, in scalar instructions, stay on one thread: starting others would take
  /// longer.
  double serialCost = 40000;
  /// Multiprocessors of a device that the functions are for; 0: a processor.
  int64_t sms = 0;
  /// Where to print each kernel's loops; null for nowhere.
  raw_ostream *scheduleOutput = nullptr;
};

/// Whether `kernel` checks indices or divisors: its function then takes, behind its buffers, the
/// address of the word in which it reports them.
bool hasChecks(KernelOp kernel);

/// One start of a function of a device.
struct KernelLaunch {
  std::string symbol;
  int64_t number; ///< of the symbol among all device kernels
  int64_t blocks, threads;
  int64_t sharedBytes = 0; ///< beside what the kernel declares
};

/// The function that runs a kernel, or what runs it on a device.
struct KernelFunction {
  std::string symbol; ///< of a processor
  /// Of a device: each takes all operands and results, one runs after the other.
  SmallVector<KernelLaunch> launches;
  /// For each operand the element whose address it takes: 0, or where the part that it reads
  /// begins.
  SmallVector<int64_t> operandOffsets;
  /// Passed behind all addresses, as i64: what tells its random numbers from those of others.
  SmallVector<int64_t> randomIds;
};

/// Adds kernels to a module under construction. Kernels with equal bodies and equal sharing of
/// buffers become one function.
class KernelLowering {
public:
  /// `program` must outlive this. The functions are of the dialects llvm, arith, math, vector and
  /// scf; emitSharedObject takes them from there.
  KernelLowering(ModuleOp program, const KernelOptions &options);

  /// The function that runs `kernel`. `resultBuffers[i]` is the number of the operand
  /// whose buffer result i takes, or -1; an empty list means that none does. Fails with a
  /// diagnostic when an op is not one that kernels compute, or when a result would overwrite what
  /// is still read.
  FailureOr<KernelFunction> lower(KernelOp kernel, ArrayRef<int64_t> resultBuffers = {});
  /// Kernels of a device that compute a library call (kOwnKernels): they take its operands, its
  /// results, and its workspace if it has one.
  FailureOr<KernelFunction> lower(LibraryCallOp call);

  unsigned getNumFunctions() const { return bodies.size(); }
  /// Those of a device, by the numbers in launches.
  ArrayRef<std::string> getDeviceKernels() const { return deviceKernels; }

private:
  struct LoweredBody {
    std::string symbol;
    SmallVector<KernelLaunch> launches;
  };
  FailureOr<LoweredBody> lowerBody(KernelOp kernel, ArrayRef<int64_t> aliases, size_t ids);
  void buildCall(LibraryCallOp call, AttentionAttr attention, unsigned number, LoweredBody &body);

  ModuleOp program;
  KernelOptions options;
  llvm::StringMap<LoweredBody> bodies;
  std::vector<std::string> deviceKernels;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_KERNELS_KERNELLOWERING_H
