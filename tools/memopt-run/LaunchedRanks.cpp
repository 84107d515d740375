//===- LaunchedRanks.cpp - one process of a launcher's --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchedRanks.h"
#include "Signals.h"
#include "memopt-runtime/Json.h"
#include "memopt-runtime/Text.h"
#include <cstdlib>
#include <unistd.h>

using namespace memopt;

//===----------------------------------------------------------------------===//
// The meeting
//===----------------------------------------------------------------------===//

/// Files that `--data=` names: FILE, bytes:FILE, or idx:FILE,FILE.
static std::string describeData(const std::vector<std::string> &sources) {
  std::string text;
  for (const std::string &source : sources) {
    size_t kind = 0;
    for (const char *prefix : {"idx:", "bytes:", "tokens:"})
      if (startsWith(source, prefix))
        kind = source.find(':') + 1;
    for (size_t begin = kind; begin <= source.size();) {
      size_t end = std::min(source.find(',', begin), source.size());
      text += describeFile(source.substr(begin, end - begin)) + " ";
      begin = end + 1;
    }
  }
  return text;
}

static RankTask describeTask(const RunOptions &options, const std::vector<std::string> &arguments) {
  bool isPackage = !needsCompilation(options.model);
  return {arguments,
          {{"the model", describeFile(options.model + (isPackage ? "/manifest.json" : ""))},
           {"--data", describeData(options.data)},
           {"--load", describeFile(options.load)},
           {"--weights", describeFile(options.weights)}}};
}

StatusOr<std::unique_ptr<RankMeeting>>
memopt::meetOtherRanks(RunOptions &options, const std::vector<std::string> &arguments) {
  MEMOPT_ASSIGN_OR_RETURN(std::optional<LaunchedRank> self,
                          findLaunchedRank([](const char *name) { return std::getenv(name); }));
  if (!self)
    return std::unique_ptr<RankMeeting>();
  if (options.ranks && *options.ranks != self->ranks)
    return badInput("--ranks is " + std::to_string(*options.ranks) + ", but " + self->launcher +
                    " started " + std::to_string(self->ranks) +
                    " processes: leave --ranks out, each of them is one rank");
  options.ranks = self->ranks;
  MEMOPT_RETURN_IF_ERROR(checkForRanks(options));
  return RankMeeting::join(*self, describeTask(options, arguments),
                           {options.rankTimeout, isInterrupted});
}

//===----------------------------------------------------------------------===//
// What is prepared
//===----------------------------------------------------------------------===//

/// Ranks may stand in different folders.
static std::string makeAbsolute(const std::string &path) {
  char *absolute = ::realpath(path.c_str(), nullptr);
  std::string text = absolute ? absolute : path;
  std::free(absolute);
  return text;
}

std::string PreparedRun::write() const {
  return nlohmann::json{{"package", makeAbsolute(package)},
                        {"compile_seconds", compileSeconds},
                        {"arena_bytes", arenaBytes}}
      .dump();
}

StatusOr<PreparedRun> PreparedRun::read(const std::string &text) {
  MEMOPT_ASSIGN_OR_RETURN(nlohmann::json json, parseJson(text, 4));
  JsonView view(json);
  PreparedRun run;
  MEMOPT_ASSIGN_OR_RETURN(run.package, view.getString("package"));
  MEMOPT_ASSIGN_OR_RETURN(JsonView seconds, view.get("compile_seconds"));
  MEMOPT_ASSIGN_OR_RETURN(run.compileSeconds, seconds.asNumber());
  MEMOPT_ASSIGN_OR_RETURN(run.arenaBytes, view.getInteger("arena_bytes"));
  return run;
}
