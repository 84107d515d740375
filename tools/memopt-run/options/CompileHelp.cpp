//===- CompileHelp.cpp - options of memopt-compile ------------------------ ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/options/CompileFirst.h"
#include "memopt-runtime/base/Files.h"
#include "options/OptionTable.h"
#include <array>
#include <fcntl.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

using namespace memopt;

/// What a program says on standard output; nothing where it cannot be run.
static std::string readOutput(std::string program, std::string option) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return "";
  Descriptor from(ends[0]), to(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  std::array<char *, 3> words = {program.data(), option.data(), nullptr};
  pid_t child = -1;
  int error = ::posix_spawn(&child, words[0], &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  to = Descriptor();
  if (error)
    return "";
  std::string text;
  std::array<char, 4096> piece;
  for (ssize_t count; (count = ::read(from.get(), piece.data(), piece.size())) > 0;)
    text.append(piece.data(), size_t(count));
  ::waitpid(child, nullptr, 0);
  return text;
}

std::string memopt::describeCompileOptions() {
  std::string self = getRealPath("/proc/self/exe");
  std::istringstream help(readOutput(getFolder(self) + "/memopt-compile", "--help"));
  std::string names;
  for (std::string line; std::getline(help, line);) {
    if (line.compare(0, 3, "  -") != 0)
      continue;
    std::string name = line.substr(2, line.find_first_of(" =[", 2) - 2);
    names += isRunOption(name) ? "" : name + " ";
  }
  if (names.empty())
    return "\nThere is no memopt-compile beside this program, so it runs packages alone.\n";
  return "\nOptions of memopt-compile, for a model; memopt-compile --help says what they mean:\n" +
         options::wrap(names, options::getColumns(), 4);
}
