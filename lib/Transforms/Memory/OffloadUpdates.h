//===- OffloadUpdates.h - updates of what lies on disk ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_MEMORY_OFFLOADUPDATES_H
#define MEMOPT_LIB_TRANSFORMS_MEMORY_OFFLOADUPDATES_H

#include "OffloadPlacement.h"

namespace mlir::memopt {

/// Moves each update that reads windows of the disk, with the transfers around it, to where its
/// gradient has been sent. At the end of the step, where autodiff leaves it, gradients of all would
/// lie on the host at once; and what has been put there in a good order needs few windows.
void moveUpdatesToGradients(const StepModel &step, const OffloadPlacement &placement);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_MEMORY_OFFLOADUPDATES_H
