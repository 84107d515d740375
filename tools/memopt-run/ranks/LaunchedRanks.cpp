//===- LaunchedRanks.cpp - one process of a launcher's --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/ranks/LaunchedRanks.h"
#include "memopt-run/Signals.h"
#include "memopt-run/options/OptionRules.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/data/Data.h"
#include <cstdlib>
#include <unistd.h>

using namespace memopt;

//===----------------------------------------------------------------------===//
// The meeting on one host
//===----------------------------------------------------------------------===//

using Describe = std::string (*)(const std::string &);

static std::string describeData(const std::vector<std::string> &sources, Describe describe) {
  std::string text;
  for (const std::string &source : sources)
    for (const std::string &file : DataSource::getFiles(source))
      text += describe(file) + " ";
  return text;
}

/// A package by all of its files: each rank runs the code of its own.
static std::string describeModel(const std::string &model, Describe describe) {
  if (needsCompilation(model))
    return describe(model);
  std::string text;
  StatusOr<std::vector<std::string>> names = listFolder(model);
  for (const std::string &name : names.isOk() ? *names : std::vector<std::string>())
    text += name + " " + describe(model + "/" + name) + " ";
  return text;
}

RankTask memopt::describeTask(const RunOptions &options, const std::vector<std::string> &arguments,
                              Describe describe) {
  return {arguments,
          {{"the model", describeModel(options.model, describe)},
           {"--data", describeData(options.data, describe)},
           {"--eval-data", describeData(options.evalData, describe)},
           {"--load", describe(options.load)},
           {"--weights", describe(options.weights)}}};
}

StatusOr<std::unique_ptr<RankMeeting>>
memopt::meetOtherRanks(const RunOptions &options, const std::optional<LaunchedRank> &self,
                       const std::vector<std::string> &arguments) {
  if (!self)
    return std::unique_ptr<RankMeeting>();
  return RankMeeting::join(*self, describeTask(options, arguments, describeFile),
                           {options.rankTimeout, isInterrupted});
}

//===----------------------------------------------------------------------===//
// Which rank this is
//===----------------------------------------------------------------------===//

StatusOr<std::optional<LaunchedRank>> memopt::findRank(RunOptions &options) {
  std::optional<LaunchedRank> self;
  if (options.isLauncherHeard) {
    MEMOPT_ASSIGN_OR_RETURN(self,
                            findLaunchedRank([](const char *name) { return std::getenv(name); },
                                             /*isOneHost=*/options.transport == "shared"));
  }
  if (!self) {
    MEMOPT_RETURN_IF_ERROR(checkAlone(options));
    return self;
  }
  if (options.ranks && *options.ranks != self->ranks)
    return badInput("--ranks is " + std::to_string(*options.ranks) + ", but " + self->launcher +
                    " started " + std::to_string(self->ranks) +
                    " processes: leave --ranks out, each of them is one rank; or give "
                    "--launcher=none, and this run takes no notice of " +
                    self->launcher);
  options.ranks = self->ranks;
  return self;
}

StatusOr<bool> memopt::usesMessages(const RunOptions &options,
                                    const std::optional<LaunchedRank> &self) {
  if (options.transport == "mpi" && !(self && self->startsMpi))
    return badInput("--transport=mpi is for ranks that mpirun or srun started, and " +
                    (self ? self->launcher + " started these" : std::string("there are none")));
  if (options.transport == "ucx" && !(self && !self->startsMpi))
    return badInput("--transport=ucx is for ranks that torchrun started, and " +
                    (self ? self->launcher + " started these: leave it out, they have an MPI"
                          : std::string("there are none")));
  bool isSpread = self && !self->spread.empty();
  if (options.transport == "shared" && isSpread)
    return environmentError(self->spread + ", which share no memory: leave out --transport=shared");
  return options.transport == "mpi" || options.transport == "ucx" || isSpread;
}

Status memopt::checkShared(const RunOptions &options, const LaunchedRank &self) {
  if (self.spread.empty() || !needsCompilation(options.model))
    return Status::ok();
  return badInput(self.spread +
                  ", and a model that one of them compiles the others do not find: "
                  "write memopt-compile " +
                  options.model + " --ranks=" + std::to_string(self.ranks) +
                  " -o FOLDER.memopt, in a place that all hosts see, "
                  "and run FOLDER.memopt");
}

//===----------------------------------------------------------------------===//
// What is prepared
//===----------------------------------------------------------------------===//

/// Ranks may stand in different folders.
static std::string makeAbsolute(const std::string &path) {
  std::string absolute = getRealPath(path);
  return absolute.empty() ? path : absolute;
}

PreparedPackage PreparedPackage::describe(const std::string &path, const Package *loaded) {
  if (!loaded)
    return {};
  return {makeAbsolute(path), loaded->getManifest().digest};
}

StatusOr<std::shared_ptr<const Package>> PreparedPackage::load(int64_t rank) const {
  if (path.empty())
    return std::shared_ptr<const Package>();
  MEMOPT_ASSIGN_OR_RETURN(std::shared_ptr<const Package> loaded, Package::load(path));
  const std::string &found = loaded->getManifest().digest;
  if (found == digest)
    return loaded;
  return environmentError("package " + quote(path) + " of rank " + std::to_string(rank) +
                          " has digest " + quote(found) + ", that of rank 0 has " + quote(digest) +
                          ": all ranks need the same package, and it must stay while they start");
}

static nlohmann::json toJson(const PreparedPackage &package) {
  return {{"path", package.path}, {"digest", package.digest}};
}

static StatusOr<PreparedPackage> readPackage(const JsonView &view, const char *key) {
  PreparedPackage package;
  MEMOPT_ASSIGN_OR_RETURN(JsonView object, view.get(key));
  MEMOPT_ASSIGN_OR_RETURN(package.path, object.getString("path"));
  MEMOPT_ASSIGN_OR_RETURN(package.digest, object.getString("digest"));
  return package;
}

std::string PreparedRun::write() const {
  return nlohmann::json{{"package", toJson(package)},
                        {"evaluation", toJson(evaluation)},
                        {"compile_seconds", compileSeconds},
                        {"arena_bytes", arenaBytes}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

StatusOr<PreparedRun> PreparedRun::read(const std::string &text) {
  MEMOPT_ASSIGN_OR_RETURN(nlohmann::json json, parseJson(text, 4));
  JsonView view(json);
  PreparedRun run;
  MEMOPT_ASSIGN_OR_RETURN(run.package, readPackage(view, "package"));
  MEMOPT_ASSIGN_OR_RETURN(run.evaluation, readPackage(view, "evaluation"));
  MEMOPT_ASSIGN_OR_RETURN(JsonView seconds, view.get("compile_seconds"));
  MEMOPT_ASSIGN_OR_RETURN(run.compileSeconds, seconds.asNumber());
  MEMOPT_ASSIGN_OR_RETURN(run.arenaBytes, view.getInteger("arena_bytes"));
  return run;
}
