//===- ThreadGroup.h - the threads that share an iteration -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_THREADGROUP_H
#define MEMOPT_LIB_CONVERSION_THREADS_THREADGROUP_H

#include "memopt/Conversion/Core/Emission/NodeEmitter.h"
#include "memopt/Conversion/Threads/DeviceOps.h"
#include "memopt/Conversion/Threads/ThreadSchedule.h"

namespace mlir::memopt {

/// As one of them sees them.
class ThreadGroup : EmitterPart {
public:
  ThreadGroup(NodeEmitter &nodes, const DeviceOps &ops, const DeviceMachine &machine,
              const ThreadShape &shape)
      : EmitterPart(nodes), ops(ops), machine(machine), shape(shape) {}

  /// Reads the number of this thread; at the beginning of the function.
  void open();
  /// Until all threads of the group are here, with what they have read and written.
  void synchronize();
  /// The first lane of this thread in block `block` of lanes; null: in the first.
  Value getFirstLane(int64_t lanes, Value block);
  /// Whether threads of the group are at different elements here.
  bool areApart();
  /// Of this thread in its block.
  Value getWarp();
  Value getLaneOfWarp();
  /// Shared memory of `count` elements, the same for the same name.
  Value getSharedBuffer(const std::string &name, Type element, int64_t count);

  const DeviceOps &ops;
  const DeviceMachine &machine;
  const ThreadShape shape;
  /// This thread's number in its block, the block's group that it belongs to, its number there, and
  /// the threads of its warp that do.
  Value inBlock, group, rank, mask;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_THREADGROUP_H
