//===- DeviceCode.h - code of a device's kernels ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels of an NVIDIA GPU: PTX by LLVM in this process, which needs neither a device nor NVIDIA's
// tools, and machine code by NVIDIA's assembler, ptxas. Where a kernel calls a function of libm,
// NVIDIA's libdevice has its code. Support/Toolkit.h says where both are looked for.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_NVVM_DEVICECODE_H
#define MEMOPT_CONVERSION_THREADS_NVVM_DEVICECODE_H

#include "memopt/Conversion/Objects/ObjectEmission.h"
#include "memopt/Conversion/Threads/KernelLaunch.h"

#include "mlir/IR/BuiltinOps.h"

namespace mlir::memopt {

/// Turns every kernel of `kernels` into the LLVM dialect and NVVM's.
LogicalResult convertToDeviceDialects(ModuleOp kernels);

struct DeviceCodeOptions {
  std::string chip; ///< "sm_90"
  /// LLVM's bitcode in place of PTX, for an emulated device: address spaces and intrinsics are
  /// those of NVPTX, functions of libm stay calls.
  bool isBitcode = false;
};

/// Compiles `kernels`, functions of KernelLowering, to `code`. Uses up the module. Fails with a
/// diagnostic: at a call of a function that libdevice lacks, or at the module's location.
Emission emitDeviceCode(ModuleOp kernels, const DeviceCodeOptions &options, std::string &code);

/// What a kernel takes of the device, as ptxas says.
struct KernelResources {
  std::string name;
  int64_t registers = 0;   ///< of a thread
  int64_t stackBytes = 0;  ///< of a thread; the device keeps that for all threads it can hold
  int64_t spillBytes = 0;  ///< stored and loaded where registers are too few
  int64_t sharedBytes = 0; ///< of a block
};

/// What a multiprocessor has for the blocks that it runs at once.
struct MultiprocessorLimits {
  int64_t threads, blocks, registers;
  int64_t sharedBytes, reservedSharedBytes; ///< the second is taken by each block

  /// How many blocks of a kernel it runs at once, at least one. Registers are given to warps, in units
  /// of 256 from each of four parts (NVIDIA's occupancy calculator).
  int64_t countResidentBlocks(const KernelResources &kernel, const KernelLaunch &launch) const;
};

/// Assembles `ptx` for `chip` to the file `path`. Kernels that ask for several blocks on a
/// multiprocessor, and for which registers are then too few, ask for one instead, in `ptx` too.
/// Where they are too few still, all are assembled with less reordering.
/// Fails, naming what is missing or what ptxas said, in `message`.
FailureOr<SmallVector<KernelResources>> assemblePtx(std::string &ptx, StringRef chip,
                                                    StringRef path, std::string &message);

/// Lets those of `kernels` that move registers to memory have as many as a thread can; whether any
/// of them had less.
bool giveAllRegisters(std::string &ptx, ArrayRef<KernelResources> kernels);

/// Reads what `ptxas -v` prints.
SmallVector<KernelResources> parseResources(StringRef text);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_NVVM_DEVICECODE_H
