//===- Refusals.h - everything that a model has and memopt has not -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whoever changes a model wants to know all that stands in the way, not the first of it. A node
// that cannot be imported is noted here, and import goes on with a stand-in for its results; what
// fails because of a stand-in is not noted. At the end there is one message: each operator with
// what is wrong, its modules, and what to write instead.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_GRAPH_REFUSALS_H
#define MEMOPT_IMPORT_GRAPH_REFUSALS_H

#include "memopt/Import/Archive/Limits.h"
#include "memopt/Import/Archive/Schema.h"

#include "llvm/ADT/MapVector.h"

#include <map>

namespace memopt::pt2 {

class Refusals {
public:
  /// An operator that the table lacks.
  void addUnknown(const Node &node);
  /// One that it has, but not for these arguments.
  void add(const Node &node, llvm::Error cause);
  bool empty() const { return groups.empty(); }
  /// The one message; there must be something to say.
  llvm::Error take(llvm::StringRef file) const;

private:
  /// Nodes of one operator that are refused for one reason; no reason: the operator is unknown.
  struct Group {
    std::string target, reason;
    unsigned count = 0;
    std::string firstNode, firstLine;
    llvm::SmallVector<std::string, 4> modules;
  };
  void add(const Node &node, std::string reason);
  static std::string describe(const Group &group);
  /// Its first node, and the line of the model's source if that is known.
  static std::string describeNode(const Group &group);

  std::map<std::pair<std::string, std::string>, size_t> numbers;
  std::vector<Group> groups;
};

/// What to write instead of an operator that is refused; empty when there is nothing to say.
llvm::StringRef getAlternative(llvm::StringRef target);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_GRAPH_REFUSALS_H
