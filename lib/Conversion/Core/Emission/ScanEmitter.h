//===- ScanEmitter.h - scans and sorts of kernels ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_CORE_EMISSION_SCANEMITTER_H
#define MEMOPT_LIB_CONVERSION_CORE_EMISSION_SCANEMITTER_H

#include "memopt/Conversion/Core/Emission/NodeEmitter.h"
#include "memopt/Conversion/Core/Schedule/KernelSchedule.h"

namespace mlir::memopt {

class ScanEmitter : EmitterPart {
public:
  explicit ScanEmitter(NodeEmitter &nodes) : EmitterPart(nodes) {}
  /// `lanes` of the columns that are being emitted; 0: elements are alone.
  void emit(const KernelScan &scan, int64_t lanes);
  void emit(const KernelOrder &order);
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_CORE_EMISSION_SCANEMITTER_H
