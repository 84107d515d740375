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

#include "memopt/Conversion/Core/Graph/KernelArguments.h"
#include "memopt/Conversion/Threads/DeviceMachine.h"
#include "memopt/Conversion/Threads/KernelLaunch.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

#include <memory>
#include <optional>
#include <unordered_map>

namespace mlir::memopt {

class DeviceOps;
class ElementGraph;
class LoopScheduleRules;
class ScheduleRules;
class ThreadScheduleRules;
struct KernelSchedule;

struct KernelOptions {
  /// Bytes of one vector register of the target; see getVectorBytes in ObjectEmission.h.
  int64_t vectorBytes = 64;
  /// Plain scalar loops over elements, for comparison.
  bool isReference = false;
  /// Stages that cost less, in scalar instructions, stay on one thread: starting others would take
  /// longer.
  double serialCost = 40000;
  /// The device that the functions are for, and its operations; none: a processor.
  std::optional<DeviceMachine> device;
  const DeviceOps *deviceOps = nullptr;
  /// Where to print each kernel's loops; null for nowhere.
  raw_ostream *scheduleOutput = nullptr;
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
  ~KernelLowering();

  /// The function that runs `kernel`. `resultBuffers[i]` is the number of the operand
  /// whose buffer result i takes, or -1; an empty list means that none does. Fails with a
  /// diagnostic when an op is not one that kernels compute, or when a result would overwrite what
  /// is still read.
  FailureOr<KernelFunction> lower(KernelOp kernel, ArrayRef<int64_t> resultBuffers = {});
  /// Kernels of a device that compute a library call (kOwnKernels): they take its operands, its
  /// results, and its workspace if it has one.
  FailureOr<KernelFunction> lower(LibraryCallOp call);

  unsigned getNumFunctions() const { return numFunctions; }
  /// Those of a device, by the numbers in launches.
  ArrayRef<KernelLaunch> getDeviceKernels() const { return deviceKernels; }

private:
  struct LoweredBody {
    std::string symbol;
    SmallVector<KernelLaunch> launches;
  };
  struct LoweredKernel {
    OwningOpRef<KernelOp> kernel;
    SmallVector<int64_t> resultBuffers;
    int64_t alignment; ///< that all buffers have
    LoweredBody body;
  };
  LoweredKernel *find(KernelOp kernel, ArrayRef<int64_t> resultBuffers, int64_t alignment,
                      size_t hash);
  FailureOr<LoweredBody> lowerBody(KernelOp kernel, ArrayRef<int64_t> aliases, int64_t alignment,
                                   size_t ids);
  void addLaunches(LoweredBody &body, SmallVector<KernelLaunch> launches);
  void print(const ElementGraph &graph, const KernelSchedule &schedule, StringRef name);

  ModuleOp program;
  KernelOptions options;
  /// One of the two, and the one that there is.
  std::unique_ptr<LoopScheduleRules> loopRules;
  std::unique_ptr<ThreadScheduleRules> threadRules;
  const ScheduleRules *rules;
  std::unordered_map<size_t, std::vector<std::unique_ptr<LoweredKernel>>> kernels; ///< by hash
  llvm::StringMap<LoweredBody> calls; ///< by description
  unsigned numFunctions = 0;
  std::vector<KernelLaunch> deviceKernels;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_KERNELS_KERNELLOWERING_H
