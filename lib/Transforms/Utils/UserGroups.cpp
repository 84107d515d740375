//===- UserGroups.cpp - who shares a value that is fetched -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Utils/UserGroups.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::memopt;

SmallVector<Operation *> mlir::memopt::getOrderedUsers(Value value) {
  llvm::SetVector<Operation *> users(value.user_begin(), value.user_end());
  SmallVector<Operation *> ordered = users.takeVector();
  llvm::sort(ordered, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return ordered;
}

SmallVector<SmallVector<Operation *>> mlir::memopt::groupUsers(ArrayRef<Operation *> users,
                                                               bool again) {
  llvm::MapVector<int, SmallVector<Operation *>> groups;
  for (Operation *user : users)
    groups[again ? static_cast<int>(getPhase(user)) : 0].push_back(user);
  return llvm::to_vector(llvm::make_second_range(groups.takeVector()));
}

bool mlir::memopt::hasBackwardUser(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isReshape(user) ? hasBackwardUser(user->getResult(0))
                           : isInstruction(user) && getPhase(user) == Phase::Backward;
  });
}
