//===- CSource.cpp - C source to an object file -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CSource.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

using namespace llvm;

static std::string findCompiler() {
  if (const char *own = std::getenv("CC"); own && *own) {
    ErrorOr<std::string> path = sys::findProgramByName(own);
    return path ? *path : std::string(own);
  }
  for (StringRef name : {"cc", "clang", "gcc"})
    if (ErrorOr<std::string> path = sys::findProgramByName(name))
      return *path;
  return "";
}

std::string mlir::memopt::compileC(StringRef source, StringRef name, StringRef object) {
  std::string compiler = findCompiler();
  if (compiler.empty())
    return "the operator '" + name.str() +
           "' is given in C, and there is no C compiler (cc, clang or gcc); install one, or name "
           "it in "
           "the variable CC";
  std::string file = (object + ".c").str(), said = (object + ".txt").str();
  scope_exit cleanUp([&] {
    sys::fs::remove(file);
    sys::fs::remove(said);
  });
  std::error_code error;
  {
    raw_fd_ostream out(file, error);
    if (error)
      return file + ": " + error.message();
    out << "#include <math.h>\n#include <stdint.h>\n#line 1 \"" << name << ".c\"\n"
        << source << "\n";
  }
  // Sums keep their order, and products are rounded before they are added: bits do not depend on
  // the compiler's choice.
  SmallVector<StringRef> words{
      compiler, "-x", "c",  "-std=gnu11", "-O3", "-fPIC", "-fno-math-errno", "-ffp-contract=off",
      "-w",     "-c", file, "-o",         object};
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(said), StringRef(said)};
  std::string message;
  int code = sys::ExecuteAndWait(compiler, words, std::nullopt, redirects, /*SecondsToWait=*/120, 0,
                                 &message);
  if (code == 0)
    return "";
  if (ErrorOr<std::unique_ptr<MemoryBuffer>> text = MemoryBuffer::getFile(said))
    message += (*text)->getBuffer().take_front(2000).rtrim();
  return "the operator '" + name.str() + "' does not compile (" + compiler + "): " + message;
}
