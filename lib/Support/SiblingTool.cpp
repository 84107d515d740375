//===- SiblingTool.cpp - runs a program that lies beside this one ----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Support/SiblingTool.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <csignal>

using namespace memopt;
using llvm::StringRef;

static llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<SiblingTool> SiblingTool::find(const char *program, StringRef name) {
  llvm::SmallString<128> path(
      llvm::sys::fs::getMainExecutable(program, reinterpret_cast<void *>(&SiblingTool::find)));
  std::string own = llvm::sys::path::filename(path).str();
  llvm::sys::path::remove_filename(path);
  llvm::sys::path::append(path, name);
  if (!llvm::sys::fs::can_execute(path))
    return makeError(own + " runs the " + name + " beside it, and " + path + " cannot be executed");
  llvm::SmallString<128> folder;
  if (std::error_code code = llvm::sys::fs::createUniqueDirectory(own, folder))
    return makeError("cannot make a temporary folder: " + code.message());
  return SiblingTool(path.str().str(), folder.str().str());
}

SiblingTool::SiblingTool(SiblingTool &&other)
    : path(std::move(other.path)), folder(std::move(other.folder)) {
  other.folder.clear();
}

SiblingTool::~SiblingTool() {
  if (!folder.empty())
    llvm::sys::fs::remove_directories(folder);
}

std::string SiblingTool::pathOf(StringRef name) const {
  llvm::SmallString<128> file(folder);
  llvm::sys::path::append(file, name);
  return file.str().str();
}

/// What a program writes to its two outputs comes in either order, so an error may stand anywhere.
static std::string findReason(StringRef said) {
  llvm::SmallVector<StringRef> lines;
  said.trim().split(lines, '\n');
  for (StringRef line : llvm::reverse(lines))
    if (line.contains("error:"))
      return line.str();
  return lines.empty() ? "" : lines.back().str();
}

SiblingTool::Outcome SiblingTool::run(llvm::ArrayRef<std::string> arguments,
                                      unsigned seconds) const {
  llvm::SmallVector<StringRef> words{path};
  words.append(arguments.begin(), arguments.end());
  std::string output = pathOf("output.txt");
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(output), StringRef(output)};
  Outcome outcome;
  outcome.code = llvm::sys::ExecuteAndWait(path, words, std::nullopt, redirects, seconds,
                                           /*MemoryLimit=*/0, &outcome.reason);
  if (outcome.code != 0 && outcome.reason.empty())
    if (auto text = llvm::MemoryBuffer::getFile(output))
      outcome.reason = findReason((*text)->getBuffer());
  return outcome;
}

SiblingTool::Companion SiblingTool::start(llvm::ArrayRef<std::string> arguments) const {
  llvm::SmallVector<StringRef> words{path};
  words.append(arguments.begin(), arguments.end());
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(""), StringRef("")};
  return Companion(llvm::sys::ExecuteNoWait(path, words, std::nullopt, redirects));
}

SiblingTool::Companion::~Companion() {
  if (process.Pid <= 0) // it did not start, or is another object's
    return;
  kill(process.Pid, SIGKILL);
  llvm::sys::Wait(process, std::nullopt);
}
