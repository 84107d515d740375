//===- UserGroups.h - who shares a value that is fetched -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A parameter that is not where it is read is fetched: gathered from the ranks, or sent from the
// host. One that both passes read can be fetched once and kept, or once for each.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_USERGROUPS_H
#define MEMOPT_TRANSFORMS_UTILS_USERGROUPS_H

#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

/// Bytes of the smallest activation that is swapped: what is smaller takes longer to start than to
/// send.
inline constexpr int64_t kLeastSwapped = 4096;

/// Whether the backward pass reads `value`, reshapes looked through.
bool hasBackwardUser(Value value);

/// The users of `value`, which are in one block, in program order, each once.
SmallVector<Operation *> getOrderedUsers(Value value);

/// `users`, in program order, by who shares one fetch: all of them or, with `again`, those of a
/// phase.
SmallVector<SmallVector<Operation *>> groupUsers(ArrayRef<Operation *> users, bool again);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_USERGROUPS_H
