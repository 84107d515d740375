//===- Arguments.h - the command line of memopt-plan ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_PLAN_ARGUMENTS_H
#define MEMOPT_TOOLS_PLAN_ARGUMENTS_H

#include "RankSweep.h"

#include "options/OptionTable.h"

#include <cstdint>
#include <string>
#include <vector>

struct Arguments {
  std::string command, input, output, budget, capacity, network;
  int64_t iterations = -1, seed = 1, threads = 1;
  bool keepOrder = false, noRecompute = false, noTransfer = false;
  bool isHelp = false, isVersion = false;
  std::vector<std::string> otherBudgets; ///< NAME:BYTES
  RankSweepOptions sweep;                ///< of sweep; of ranks, one number of ranks
};

const memopt::options::OptionTable &getTable();

/// Parses the words after the program's name; says what is wrong, or nothing.
std::string parse(std::vector<std::string> words, Arguments &arguments);

#endif // MEMOPT_TOOLS_PLAN_ARGUMENTS_H
