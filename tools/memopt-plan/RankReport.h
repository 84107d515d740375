//===- RankReport.h - what a package takes on many ranks --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_PLAN_RANKREPORT_H
#define MEMOPT_TOOLS_PLAN_RANKREPORT_H

#include "memopt/Planning/Ranks/RankFile.h"

/// Bytes, collectives, digest and predicted step time of a package on `ranks` ranks of a network,
/// in words.
void printRankReport(const memopt::planning::RankStep &step,
                     const memopt::planning::RankNetwork &network, int64_t ranks);

#endif // MEMOPT_TOOLS_PLAN_RANKREPORT_H
