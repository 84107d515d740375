//===- MemoptOps.td - all ops of the dialect -------------*- tablegen -*---===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_MEMOPTOPS_TD
#define MEMOPT_DIALECT_MEMOPTOPS_TD

include "memopt/Dialect/MemoptBase.td"
include "memopt/Dialect/StateOps.td"
include "memopt/Dialect/ShapeOps.td"
include "memopt/Dialect/GradientOps.td"
include "memopt/Dialect/CheckOps.td"
include "memopt/Dialect/IndexingOps.td"
include "memopt/Dialect/NeuralNetworkOps.td"
include "memopt/Dialect/TrainingOps.td"
include "memopt/Dialect/KernelOps.td"
include "memopt/Dialect/FlowOps.td"
include "memopt/Dialect/TargetAttributes.td"

#endif // MEMOPT_DIALECT_MEMOPTOPS_TD
