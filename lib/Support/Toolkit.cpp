//===- Toolkit.cpp - where NVIDIA's tools and libraries lie -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Support/Toolkit.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

#include <cstdlib>

using namespace llvm;

/// Folders under which Python keeps its packages: the one that this program is installed in as part
/// of a package, and those of the environment beside the build that it belongs to.
static SmallVector<std::string> getPythonFolders() {
  static int here;
  std::string self = sys::fs::getMainExecutable(nullptr, &here);
  StringRef program = sys::path::parent_path(self);
  SmallVector<std::string> folders{sys::path::parent_path(sys::path::parent_path(program)).str()};
  for (StringRef build = program; !build.empty(); build = sys::path::parent_path(build)) {
    if (!sys::fs::exists(build + "/CMakeCache.txt"))
      continue;
    std::error_code error;
    for (sys::fs::directory_iterator python(sys::path::parent_path(build) + "/venv/lib", error),
         end;
         !error && python != end; python.increment(error))
      folders.push_back(python->path() + "/site-packages");
    break;
  }
  return folders;
}

/// Folders that may hold a toolkit, the preferred ones first.
static SmallVector<std::string> getToolkits(StringRef package) {
  SmallVector<std::string> folders;
  // As if there were none.
  if (std::getenv("MEMOPT_WITHOUT_CUDA"))
    return folders;
  if (const char *home = std::getenv("CUDA_HOME"))
    folders.push_back(home);
  for (const std::string &python : getPythonFolders())
    folders.push_back(python + "/nvidia/" + package.str());
  if (ErrorOr<std::string> found = sys::findProgramByName("ptxas"))
    folders.push_back(sys::path::parent_path(sys::path::parent_path(*found)).str());
  folders.push_back("/usr/local/cuda");
  return folders;
}

std::string memopt::findToolkitFile(StringRef name, StringRef package) {
  for (const std::string &folder : getToolkits(package)) {
    SmallString<128> path(folder);
    sys::path::append(path, name);
    if (sys::fs::exists(path))
      return path.str().str();
  }
  return "";
}
