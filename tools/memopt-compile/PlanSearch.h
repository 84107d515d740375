//===- PlanSearch.h - what meets a budget -------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_PLANSEARCH_H
#define MEMOPT_TOOLS_COMPILE_PLANSEARCH_H

#include "Compilation.h"

namespace memopt::tool {

/// --batch=max: sets the largest batch that fits the budget, and says what bound it.
StatusCode findLargestBatch(Compilation &compilation);

/// --auto: sets the form with the shortest predicted step of those that the command line allows and
/// the budget has room for. Says in words what it chose, what fewer bytes would cost, and what it
/// was not allowed to use.
StatusCode chooseForm(Compilation &compilation);

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_PLANSEARCH_H
