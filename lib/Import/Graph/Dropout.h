//===- Dropout.h - dropout in graphs that take it apart -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_IMPORT_GRAPH_DROPOUT_H
#define MEMOPT_LIB_IMPORT_GRAPH_DROPOUT_H

#include "memopt/Import/Archive/Schema.h"

namespace memopt::pt2 {

/// At the functional level alpha dropout is a draw and arithmetic around it, and no value of the
/// draw turns that into the identity. Gives the results of such arithmetic with what they are when
/// nothing is dropped.
llvm::StringMap<std::string> findAlphaDropouts(const Graph &graph);

} // namespace memopt::pt2

#endif // MEMOPT_LIB_IMPORT_GRAPH_DROPOUT_H
