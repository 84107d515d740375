//===- CInterface.cpp - the runtime for other languages -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checks what comes over the border, and hands it to a Session: errors, sessions, programs. The rest
// stands in Variables.cpp, Steps.cpp and Checkpoints.cpp.
//
//===----------------------------------------------------------------------===//

#include "CSession.h"
#include "memopt-runtime/data/DataSources.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include "memopt-runtime/ranks/Placement.h"
#include <cstddef>
#include <cstdlib>
#include <cstring>

using namespace memopt;
using namespace memopt::capi;

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

static char *copyText(const std::string &text) {
  auto *copy = static_cast<char *>(std::malloc(text.size() + 1));
  if (copy)
    std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

int32_t capi::report(const Status &status, memopt_error *error) {
  auto code = int32_t(status.getCode());
  if (error)
    *error = {code, 0, 0, status.isOk() ? nullptr : copyText(status.getMessage())};
  return code;
}

int32_t memopt_c_version() { return MEMOPT_C_VERSION; }

void memopt_error_clear(memopt_error *error) {
  std::free(error->message);
  *error = {};
}

//===----------------------------------------------------------------------===//
// Sessions
//===----------------------------------------------------------------------===//

/// The numbers that were compiled, until others are set.
static ProgramInputs describeInputs(const Manifest &manifest) {
  ProgramInputs said{getWholeInputs(manifest.inputs, manifest.microBatches),
                     manifest.learningRate.value_or(0),
                     {}};
  for (const VariableSpec &variable : manifest.variables)
    if (variable.isGroupRate() || variable.isOptimizerSetting())
      said.rates[&variable] = *variable.initValue;
  return said;
}

void capi::forgetValues(memopt_session &session) {
  for (const VariableSpec &variable : session.getState().variables)
    if (variable.isState() && !variable.isFrozenScale() && !session.getProgram().hasCodes(variable))
      session.missing.insert(variable.name);
}

/// Of programs that are open since.
static void prepareProgram(memopt_session &session, size_t number) {
  Session &program = (*session.programs)[number];
  if (number == session.said.size())
    session.said.push_back(describeInputs(program.getManifest()));
  program.setBatches([&session](int64_t part, const std::vector<char *> &targets) {
    return fillBatch(session, part, targets);
  });
}

/// The device of a process alone, or of a rank.
static Status openOwnDevice(const memopt_session_options &options, const Package &package,
                            memopt_session &session, SessionOptions &own) {
  std::string name = options.device ? options.device : "cpu";
  std::optional<LaunchedRank> self;
  if (options.joins_ranks) {
    MEMOPT_ASSIGN_OR_RETURN(self, findOwnRank());
  }
  if (!self) {
    MEMOPT_ASSIGN_OR_RETURN(session.device, openDevice(name));
    return Status::ok();
  }
  if (package.getManifest().ranks != self->ranks)
    return badInput("package " + quote(package.getFolder()) + " was compiled for " +
                    std::to_string(package.getManifest().ranks) + " ranks, and " + self->launcher +
                    " has started " + std::to_string(self->ranks));
  constexpr double seconds = 300;
  own.rankSeconds = options.rank_seconds > 0 ? options.rank_seconds : seconds;
  MEMOPT_ASSIGN_OR_RETURN(
      session.member, RankMember::join(*self, package, name, own.isMemoryChecked, own.rankSeconds));
  own.communicator = &session.member->getCommunicator();
  MEMOPT_ASSIGN_OR_RETURN(Sharers sharers, countSharers(*own.communicator));
  if (own.threads == 0)
    own.threads = getAllowedThreads(sharers);
  MEMOPT_ASSIGN_OR_RETURN(session.device, session.member->openOwnDevice());
  return Status::ok();
}

static Status openSession(const char *package, const memopt_session_options &options,
                          memopt_session &session) {
  MEMOPT_ASSIGN_OR_RETURN(std::shared_ptr<const Package> loaded, Package::load(package));
  SessionOptions own;
  own.isStoppedOnNan = !options.continue_on_nan;
  own.threads = options.threads;
  own.isMemoryChecked = options.check_memory;
  if (options.disk_folder)
    own.diskFolder = options.disk_folder;
  MEMOPT_RETURN_IF_ERROR(openOwnDevice(options, *loaded, session, own));
  MEMOPT_ASSIGN_OR_RETURN(session.programs, ProgramSet::create(std::move(loaded), *session.device,
                                                               &LibraryCall::create, own));
  for (size_t number = 0; number < session.programs->count(); ++number)
    prepareProgram(session, number);
  session.state.optimizer = session.getState().optimizer;
  for (const InputSpec &input : session.getSaid().inputs)
    if (input.batchDim)
      session.state.batchSize = input.shape[size_t(*input.batchDim)];
  forgetValues(session);
  return Status::ok();
}

/// The caller's options, of which an older caller has fewer. A newer caller's that are not known
/// here have to be 0, or they would be ignored.
static StatusOr<memopt_session_options> readOptions(const memopt_session_options *given) {
  memopt_session_options options{};
  if (!given)
    return options;
  constexpr size_t firstVersion =
      offsetof(memopt_session_options, continue_on_nan) + sizeof options.continue_on_nan;
  if (given->size < firstVersion || given->size > 4096)
    return badInput("options have the size " + std::to_string(given->size) +
                    ", expected sizeof(memopt_session_options), " + std::to_string(sizeof options));
  const char *bytes = reinterpret_cast<const char *>(given);
  for (size_t i = sizeof options; i < given->size; ++i)
    if (bytes[i])
      return badInput("options have fields that this library does not know, at byte " +
                      std::to_string(i) + "; take a library of the caller's release");
  std::memcpy(&options, given, std::min(given->size, sizeof options));
  return options;
}

int32_t memopt_session_open(const char *package, const memopt_session_options *options,
                            memopt_session **session, memopt_error *error) {
  *session = nullptr;
  return guard(error, [&]() -> Status {
    MEMOPT_ASSIGN_OR_RETURN(memopt_session_options own, readOptions(options));
    auto opened = std::make_unique<memopt_session>();
    MEMOPT_RETURN_IF_ERROR(openSession(package, own, *opened));
    *session = opened.release();
    return Status::ok();
  });
}

void memopt_session_close(memopt_session *session) { delete session; }

const char *memopt_session_get_manifest(const memopt_session *session) {
  return session->getProgram().getPackage().getManifestText().c_str();
}

int64_t memopt_session_get_used_bytes(const memopt_session *session, const char *space) {
  BytesBySpace used = session->getProgram().getUsedPeakBytes();
  for (int i = 0; i < countedSpaces; ++i)
    if (space && std::strcmp(space, getSpaceName(i)) == 0)
      return used[size_t(i)];
  return -1;
}

int32_t memopt_session_begin_trace(memopt_session *session, int64_t steps, memopt_error *error) {
  return guard(error, [&]() -> Status {
    if (steps < 1)
      return badInput("a timeline has a step or more, found " + std::to_string(steps));
    auto trace = std::make_unique<Trace>(session->getManifest(), steps);
    MEMOPT_RETURN_IF_ERROR(session->getProgram().setTrace(trace.get()));
    session->traces[session->chosen] = std::move(trace);
    return Status::ok();
  });
}

int32_t memopt_session_write_trace(memopt_session *session, const char *path, memopt_error *error) {
  return guard(error, [&]() -> Status {
    auto trace = std::exchange(session->traces[session->chosen], nullptr);
    if (!trace)
      return badInput("no timeline of the program is recorded");
    MEMOPT_RETURN_IF_ERROR(session->getProgram().setTrace(nullptr));
    return path ? trace->write(path) : Status::ok();
  });
}

int32_t memopt_find_rank(int64_t *rank, int64_t *ranks, memopt_error *error) {
  *rank = 0;
  *ranks = 1;
  return guard(error, [&]() -> Status {
    MEMOPT_ASSIGN_OR_RETURN(std::optional<LaunchedRank> self, findOwnRank());
    if (self) {
      *rank = self->rank;
      *ranks = self->ranks;
    }
    return Status::ok();
  });
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

int64_t memopt_session_count_programs(const memopt_session *session) {
  return int64_t(session->programs->count());
}

int32_t memopt_session_choose_program(memopt_session *session, int64_t number,
                                      memopt_error *error) {
  return guard(error, [&]() -> Status {
    if (number < 0 || number >= int64_t(session->programs->count()))
      return badInput("there is no program " + std::to_string(number) + " of " +
                      std::to_string(session->programs->count()));
    session->chosen = size_t(number);
    return Status::ok();
  });
}

int32_t memopt_session_add_program(memopt_session *session, const char *package,
                                   memopt_error *error) {
  return guard(error, [&]() -> Status {
    MEMOPT_ASSIGN_OR_RETURN(std::shared_ptr<const Package> loaded, Package::load(package));
    if (!loaded->getOthers().empty())
      return badInput("package " + quote(package) + " has several programs, expected one");
    Status status = session->programs->add(std::move(loaded));
    for (size_t number = 0; number < session->programs->count(); ++number)
      prepareProgram(*session, number);
    return status;
  });
}
