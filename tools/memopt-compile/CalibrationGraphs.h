//===- CalibrationGraphs.h - steps to measure a machine by ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Training steps as the importer would make them, small enough to compile and run in a second or
// two each. Together they have every class of instruction, in sizes from those that end as soon as
// they start to those that no cache holds. They take no inputs: what they work on lies in
// variables.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_CALIBRATIONGRAPHS_H
#define MEMOPT_TOOLS_COMPILE_CALIBRATIONGRAPHS_H

#include <cstdint>
#include <string>
#include <vector>

namespace memopt::tool {

struct CalibrationGraph {
  std::string name; ///< for people
  std::string optimizer;
  int steps;                     ///< to run; the more, the shorter one takes
  std::string text;              ///< MLIR
  std::string precision = "f32"; ///< of its products
};

/// Of a processor.
std::vector<CalibrationGraph> makeCalibrationGraphs();
/// Of a device with so many multiprocessors, which the larger ones fill.
std::vector<CalibrationGraph> makeCalibrationGraphs(int64_t sms);

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_CALIBRATIONGRAPHS_H
