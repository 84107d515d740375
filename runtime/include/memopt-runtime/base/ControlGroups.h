//===- ControlGroups.h - limits of a container ---------------- -*- C++ -*- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_BASE_CONTROLGROUPS_H
#define MEMOPT_RUNTIME_BASE_CONTROLGROUPS_H

#include <string>
#include <vector>

namespace memopt {

/// A control group that this process is in, or one above it.
struct ControlGroup {
  std::string folder; ///< with the files that say its limits
  bool isVersion2;    ///< which names them otherwise than version 1
};

/// The groups of a controller (memory, cpu), each before the one above it, as far as they are
/// visible. `root` stands for the root folder, in tests.
std::vector<ControlGroup> findControlGroups(const std::string &controller,
                                            const std::string &root = "");

/// Processors whose time the process's control groups let it have, rounded down, and at least 1; a
/// very large number where there is no limit.
int getProcessorQuota(const std::string &root = "");

} // namespace memopt

#endif // MEMOPT_RUNTIME_BASE_CONTROLGROUPS_H
