//===- CommandLine.h - options and their values -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_COMMANDLINE_H
#define MEMOPT_TOOLS_COMPILE_COMMANDLINE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace memopt::tool {

/// One option: `--name=VALUE`, or a flag when it has no metavariable; a metavariable in brackets
/// may be left out. LLVM's own option library is of no use here, for libLLVM has registered names
/// such as --threads before main.
struct OptionRow {
  llvm::StringRef name, metavariable, initial, help;
  llvm::StringRef aliases = {}; ///< other names, that users of other programs know, with commas
  bool isOfOptimizer = false;   ///< read by OptimizerPlan

  bool takesValue() const { return !metavariable.empty(); }
  bool needsValue() const { return takesValue() && !metavariable.starts_with("["); }
};

/// All options, in the order of the help (options/OptionTable.h); those of optimizers' descriptors
/// stand at the end.
llvm::ArrayRef<OptionRow> getOptions();
/// The option of that name, or null.
const OptionRow *findOption(llvm::StringRef name);
void printHelp();

/// An error of one sentence.
llvm::Error invalid(const llvm::Twine &message);

/// The values given, by option name; positional arguments apart.
class CommandLine {
public:
  /// Fails where an option is unknown, lacks its value or takes none.
  static llvm::Expected<CommandLine> parse(llvm::ArrayRef<char *> arguments);

  llvm::Error set(const OptionRow &row, llvm::StringRef value);

  bool isSet(llvm::StringRef name) const { return values.count(name); }
  /// Whether it is set by the command line itself.
  bool isGiven(llvm::StringRef name) const { return given.contains(name); }
  /// As given, or the option's first value.
  std::string get(llvm::StringRef name) const;
  llvm::Expected<double> getNumber(llvm::StringRef name) const;
  llvm::Expected<int> getCount(llvm::StringRef name) const;

  std::vector<std::string> inputs;
  /// All others, each as one word.
  std::vector<std::string> words;
  /// Of --dim, which may be given for several dimensions: names and sizes.
  std::vector<std::pair<std::string, std::vector<int64_t>>> dimensions;
  /// What OptimizerPlan reads, in order.
  std::vector<std::string> optimizerWords;

private:
  llvm::StringMap<std::string> values;
  llvm::StringSet<> given;
};

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_COMMANDLINE_H
