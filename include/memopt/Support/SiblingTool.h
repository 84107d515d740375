//===- SiblingTool.h - runs a program that lies beside this one -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_SUPPORT_SIBLINGTOOL_H
#define MEMOPT_SUPPORT_SIBLINGTOOL_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/Program.h"

#include <string>

namespace memopt {

/// A program of memopt in the folder of the one that runs, with a temporary folder for what it
/// writes. The folder goes with the object.
class SiblingTool {
public:
  struct Outcome {
    int code = 0;
    std::string reason; ///< of a code that is not 0: the last line that says an error, or the last
  };

  /// `program` is argv[0]. Fails where `name` cannot be executed or no folder can be made.
  static llvm::Expected<SiblingTool> find(const char *program, llvm::StringRef name);
  SiblingTool(SiblingTool &&other);
  SiblingTool &operator=(SiblingTool &&) = delete;
  ~SiblingTool();

  const std::string &getPath() const { return path; }
  /// A file of the temporary folder.
  std::string pathOf(llvm::StringRef name) const;
  /// Waits until the program has ended, for `seconds` at most; 0: however long it takes. What it
  /// prints is kept for the reason alone.
  Outcome run(llvm::ArrayRef<std::string> arguments, unsigned seconds = 0) const;

  /// A process that ends, however far it has come, with the object. What it prints is lost.
  class Companion {
  public:
    explicit Companion(llvm::sys::ProcessInfo process) : process(process) {}
    Companion(Companion &&other) : process(other.process) { other.process = {}; }
    Companion &operator=(Companion &&) = delete;
    ~Companion();

  private:
    llvm::sys::ProcessInfo process;
  };
  Companion start(llvm::ArrayRef<std::string> arguments) const;

private:
  SiblingTool(std::string path, std::string folder)
      : path(std::move(path)), folder(std::move(folder)) {}

  std::string path, folder;
};

} // namespace memopt

#endif // MEMOPT_SUPPORT_SIBLINGTOOL_H
