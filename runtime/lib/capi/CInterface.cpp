//===- CInterface.cpp - the runtime for other languages -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checks what comes over the border, and hands it to a Session. A session of this interface is also
// at a place in its training, which checkpoints keep.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/CInterface.h"
#include "RankMember.h"
#include "memopt-runtime/checkpoint/Checkpoint.h"
#include "memopt-runtime/data/DataSources.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include "memopt-runtime/numbers/TensorView.h"
#include "memopt-runtime/ranks/KeepAlive.h"
#include "memopt-runtime/ranks/Placement.h"
#include "memopt-runtime/session/ProgramSet.h"
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <set>
#include <tuple>

using namespace memopt;

namespace {
/// What the caller has said of one program.
struct ProgramInputs {
  std::vector<InputSpec> inputs; ///< those of a whole batch
  double rate = 0;
  std::map<const VariableSpec *, double> rates; ///< of groups, and other numbers
};
} // namespace

struct memopt_session {
  std::unique_ptr<RankMember> member; ///< null of a process alone
  std::unique_ptr<Device> device;
  std::unique_ptr<ProgramSet> programs;
  std::vector<ProgramInputs> said; ///< by program
  size_t chosen = 0;
  std::map<size_t, std::unique_ptr<Trace>> traces; ///< by program: of timelines that are recorded
  TrainingState state;
  /// Variables without a value as yet; every one before there are first values.
  std::set<std::string> missing;
  /// Of the step that runs: the inputs of one batch after those of another.
  std::vector<TensorView> batches;
  Status unreadable; ///< why there are none

  /// The program that was chosen.
  Session &getProgram() const { return (*programs)[chosen]; }
  ProgramInputs &getSaid() { return said[chosen]; }
  const ProgramInputs &getSaid() const { return said[chosen]; }
  const Manifest &getManifest() const { return getProgram().getManifest(); }
  /// The one whose manifest has all of the state.
  Session &getFirst() const { return programs->first(); }
  const Manifest &getState() const { return getFirst().getManifest(); }
};

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

static char *copyText(const std::string &text) {
  auto *copy = static_cast<char *>(std::malloc(text.size() + 1));
  if (copy)
    std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

static int32_t report(const Status &status, memopt_error *error) {
  auto code = int32_t(status.getCode());
  if (error)
    *error = {code, 0, 0, status.isOk() ? nullptr : copyText(status.getMessage())};
  return code;
}

/// Runs what may fail; a failure of the machine's that throws is one like others.
template <typename Body> static int32_t guard(memopt_error *error, Body body) {
  try {
    return report(body(), error);
  } catch (const std::bad_alloc &) {
    return report(environmentError("this machine is out of memory"), error);
  } catch (const std::exception &exception) {
    return report(environmentError(exception.what()), error);
  }
}

int32_t memopt_c_version() { return MEMOPT_C_VERSION; }

void memopt_error_clear(memopt_error *error) {
  std::free(error->message);
  *error = {};
}

//===----------------------------------------------------------------------===//
// Sessions
//===----------------------------------------------------------------------===//

static Status fillBatch(const memopt_session &session, int64_t part,
                        const std::vector<char *> &targets) {
  if (!session.unreadable.isOk())
    return Status(session.unreadable.getCode(), session.unreadable.getMessage());
  int64_t parts = session.getManifest().microBatches;
  for (size_t i = 0; i < targets.size(); ++i) {
    const InputSpec &input = session.getSaid().inputs[i];
    int64_t batch = part / parts / session.getManifest().ranks; // of those that this rank was given
    TensorView view = session.batches[size_t(batch) * targets.size() + i];
    if (input.batchDim && parts > 1) {
      auto dim = size_t(*input.batchDim);
      int64_t samples = input.shape[dim] / parts;
      view = view.slice(dim, part % parts * samples, samples);
    }
    if (Status status = view.copyTo(input.dtype, targets[i]); !status.isOk())
      return status.withContext("input " + quote(input.name));
  }
  return Status::ok();
}

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

/// What has no values cannot run. Checkpoints leave out what is frozen in codes, so that stays.
static void forgetValues(memopt_session &session) {
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

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

template <typename Spec>
static StatusOr<const Spec *> findTensor(const std::vector<Spec> &tensors, const char *kind,
                                         const char *name) {
  for (const Spec &tensor : tensors)
    if (tensor.name == name)
      return &tensor;
  return badInput("the package has no " + std::string(kind) + " " + quote(name));
}

static StatusOr<const PlacedTensor *> findTensor(const Manifest &manifest, int32_t kind,
                                                 const char *name) {
  auto widen = [](auto found) -> StatusOr<const PlacedTensor *> {
    if (!found.isOk())
      return found.takeStatus();
    return *found;
  };
  switch (kind) {
  case MEMOPT_INPUT:
    return widen(findTensor(manifest.inputs, "input", name));
  case MEMOPT_OUTPUT:
    return widen(findTensor(manifest.outputs, "output", name));
  case MEMOPT_VARIABLE:
    return widen(findTensor(manifest.variables, "variable", name));
  default:
    return badInput("there is no kind " + std::to_string(kind) + " of tensors");
  }
}

/// Writes the rates and other numbers that were said into the program that steps run.
static void writeNumbers(memopt_session &session) {
  for (const auto &[variable, rate] : session.getSaid().rates)
    session.getProgram().setRate(*variable, rate);
  session.state.schedule.rate = session.getSaid().rate;
  session.getProgram().setHyperparameters(session.getSaid().rate, session.state.step + 1,
                                          session.state.seed);
}

int32_t memopt_session_initialize(memopt_session *session, int32_t init, int64_t seed,
                                  memopt_error *error) {
  return guard(error, [&]() -> Status {
    if (init != MEMOPT_INIT_WEIGHTS && init != MEMOPT_INIT_RANDOM)
      return badInput("there is no way " + std::to_string(init) + " to initialize variables");
    std::set<std::string> missing;
    auto isMissing = [&](const VariableSpec &variable) {
      return variable.init == VariableInit::Absent && missing.insert(variable.name).second;
    };
    MEMOPT_RETURN_IF_ERROR(init == MEMOPT_INIT_RANDOM
                               ? session->getFirst().initializeRandomly(seed)
                               : session->getFirst().initializeFromWeights(isMissing));
    session->missing = std::move(missing);
    session->state.step = session->state.dataPosition = 0;
    session->state.seed = seed;
    writeNumbers(*session);
    return Status::ok();
  });
}

static StatusOr<TensorView> readView(const memopt_view &view, DType expected, const Shape &shape) {
  std::optional<DType> dtype = parseDType(view.dtype ? view.dtype : "");
  if (!dtype)
    return badInput("has elements of unknown type " + quote(view.dtype ? view.dtype : ""));
  TensorView read{static_cast<const char *>(view.data), *dtype, {}, {}};
  if (view.rank > 0)
    read.shape.assign(view.shape, view.shape + view.rank);
  // Whether numbers lose digits should not depend on the batch.
  bool isNarrowed = isFloat(*dtype) && getByteSize(*dtype) > getByteSize(expected);
  if (read.shape != shape || isNarrowed)
    return badInput("is " + toString(*dtype, read.shape) + ", expected " +
                    toString(expected, shape));
  if (view.strides)
    read.strides.assign(view.strides, view.strides + view.rank);
  else
    read.strides = getRowMajorStrides(read.shape);
  if (!read.data && getElementCount(shape) > 0)
    return badInput("has no data");
  return read;
}

int32_t memopt_session_write(memopt_session *session, const char *variable, const memopt_view *view,
                             memopt_error *error) {
  return guard(error, [&]() -> Status {
    MEMOPT_ASSIGN_OR_RETURN(const VariableSpec *target,
                            findTensor(session->getManifest().variables, "variable", variable));
    if (!target->isState())
      return badInput("variable " + quote(variable) + " is written anew in each step");
    if (target->isFrozenScale())
      return badInput("variable " + quote(variable) + " is written with its codes");
    auto copy = [&]() -> Status {
      MEMOPT_ASSIGN_OR_RETURN(TensorView source,
                              readView(*view, target->getWholeDType(), target->getWholeShape()));
      if (target->encoding) {
        std::vector<float> values(size_t(getElementCount(source.shape)));
        MEMOPT_RETURN_IF_ERROR(source.copyTo(DType::F32, reinterpret_cast<char *>(values.data())));
        return session->getProgram().encode(*target, values.data());
      }
      if (target->wholeShape) {
        std::vector<char> whole(size_t(target->getWholeBytes()));
        MEMOPT_RETURN_IF_ERROR(source.copyTo(target->dtype, whole.data()));
        return session->getProgram().setWhole(*target, whole.data());
      }
      if (char *address = session->getProgram().getAddress(*target))
        return source.copyTo(target->dtype, address);
      std::vector<char> storage(size_t(target->bytes));
      MEMOPT_RETURN_IF_ERROR(source.copyTo(target->dtype, storage.data()));
      return session->getProgram().writeTensor(*target, storage.data());
    };
    session->missing.insert(variable); // of a copy that fails, a part is there
    MEMOPT_RETURN_IF_ERROR(copy().withContext("variable " + quote(variable)));
    session->missing.erase(variable);
    return Status::ok();
  });
}

/// What ranks have parts of, whole. Null where the variable is none of these.
static StatusOr<const VariableSpec *> readShared(memopt_session &session, const char *name,
                                                 void *target, int64_t bytes) {
  const VariableSpec *variable = session.getManifest().findVariable(name);
  if (!variable || !variable->wholeShape || !session.member)
    return static_cast<const VariableSpec *>(nullptr);
  if (bytes != variable->getWholeBytes())
    return badInput(quote(name) + " has " + std::to_string(variable->getWholeBytes()) +
                    " bytes, not " + std::to_string(bytes));
  std::vector<char> storage;
  MEMOPT_ASSIGN_OR_RETURN(const void *whole,
                          session.getProgram().getWholeOnAll(*variable, storage));
  std::memcpy(target, whole, size_t(bytes));
  return variable;
}

int32_t memopt_session_read(memopt_session *session, int32_t kind, const char *name, void *target,
                            int64_t bytes, memopt_error *error) {
  return guard(error, [&]() -> Status {
    if (kind == MEMOPT_VARIABLE) {
      MEMOPT_ASSIGN_OR_RETURN(const VariableSpec *shared,
                              readShared(*session, name, target, bytes));
      if (shared)
        return Status::ok();
    }
    MEMOPT_ASSIGN_OR_RETURN(const PlacedTensor *tensor,
                            findTensor(session->getManifest(), kind, name));
    const VariableSpec *variable =
        kind == MEMOPT_VARIABLE ? session->getManifest().findVariable(name) : nullptr;
    bool isEncoded = variable && variable->encoding;
    int64_t expected = isEncoded ? variable->getWholeBytes() : tensor->bytes;
    if (bytes != expected)
      return badInput(quote(name) + " has " + std::to_string(expected) + " bytes, not " +
                      std::to_string(bytes));
    if (isEncoded)
      return session->getProgram().decode(*variable, static_cast<float *>(target));
    return session->getProgram().readTensor(*tensor, target);
  });
}

int32_t memopt_session_set_rate(memopt_session *session, const char *variable, double rate,
                                memopt_error *error) {
  return guard(error, [&]() -> Status {
    MEMOPT_ASSIGN_OR_RETURN(const VariableSpec *target,
                            findTensor(session->getManifest().variables, "variable", variable));
    if (target->isGroupRate() || target->isOptimizerSetting()) {
      session->getSaid().rates[target] = rate;
      if (std::isfinite(rate))
        session->state.numbers[target->name] = rate;
    } else if (target == session->getManifest().findHyperparameter("lr")) {
      session->getSaid().rate = rate;
    } else {
      return badInput("variable " + quote(variable) +
                      " is neither a learning rate nor another number of the optimizer");
    }
    writeNumbers(*session);
    return Status::ok();
  });
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

static Status readBatches(memopt_session &session, const memopt_view *views, int64_t batches) {
  int64_t expected = session.getManifest().getBatchesPerStep() / session.getManifest().ranks;
  if (batches != expected)
    return badInput("a step of this package takes " + std::to_string(expected) + " batches, not " +
                    std::to_string(batches));
  session.batches.clear();
  for (int64_t batch = 0; batch < batches; ++batch)
    for (const InputSpec &input : session.getSaid().inputs) {
      StatusOr<TensorView> view = readView(*views++, input.dtype, input.shape);
      if (!view.isOk())
        return view.takeStatus().withContext("input " + quote(input.name));
      session.batches.push_back(*std::move(view));
    }
  return Status::ok();
}

static Status runStep(memopt_session &session, const memopt_view *views, int64_t batches) {
  TrainingState &state = session.state;
  if (!session.missing.empty())
    return badInput("variable " + quote(*session.missing.begin()) + " has no value as yet" +
                    (session.missing.size() > 1
                         ? ", nor have " + std::to_string(session.missing.size() - 1) + " others"
                         : ""));
  session.unreadable = readBatches(session, views, batches);
  // Other ranks hear of it in the step, and leave that with this one.
  if (!session.unreadable.isOk() && (!session.member || session.getManifest().inputs.empty()))
    return std::move(session.unreadable);
  MEMOPT_RETURN_IF_ERROR(session.programs->enter(session.chosen).takeStatus());
  Session &program = session.getProgram();
  writeNumbers(session);
  MEMOPT_RETURN_IF_ERROR(program.runStep());
  if (program.getManifest().mode != "train")
    return Status::ok(); // an evaluation is no step of the training
  ++state.step;
  state.dataPosition += batches * program.getManifest().ranks;
  return Status::ok();
}

int32_t memopt_session_run_step(memopt_session *session, const memopt_view *views, int64_t batches,
                                memopt_error *error) {
  int32_t code = guard(error, [&] {
    Status status = runStep(*session, views, batches);
    const Session &program = session->getProgram();
    bool isOfAll = program.isLossRefused() || program.getRefusingRank();
    if (!status.isOk() && !isOfAll && session->member)
      session->member->fail(status);
    return status;
  });
  if (code && error) {
    error->step = session->state.step + 1;
    error->is_loss_refused = session->getProgram().isLossRefused();
  }
  return code;
}

int64_t memopt_session_get_step(const memopt_session *session) { return session->state.step; }
void memopt_session_set_step(memopt_session *session, int64_t step) { session->state.step = step; }

double memopt_session_get_step_seconds(const memopt_session *session) {
  return session->getProgram().getStepSeconds();
}

//===----------------------------------------------------------------------===//
// Checkpoints
//===----------------------------------------------------------------------===//

int32_t memopt_session_save(memopt_session *session, const char *folder, memopt_error *error) {
  return guard(error, [&]() -> Status {
    MEMOPT_RETURN_IF_ERROR(checkFinite(session->getFirst(), session->state));
    Communicator *ranks = session->member ? &session->member->getCommunicator() : nullptr;
    if (ranks && ranks->getRank() != 0) {
      MEMOPT_RETURN_IF_ERROR(contributeToCheckpoint(session->getFirst()));
      return ranks->barrier();
    }
    {
      KeepAlive keepAlive(ranks); // a server of files may be slow
      KeepAlive::Work work(keepAlive);
      MEMOPT_ASSIGN_OR_RETURN(CheckpointFolder target, CheckpointFolder::open(folder));
      MEMOPT_RETURN_IF_ERROR(target.save(session->getFirst(), session->state));
    }
    return ranks ? ranks->barrier() : Status::ok();
  });
}

int32_t memopt_session_load(memopt_session *session, const char *folder, memopt_error *error) {
  return guard(error, [&]() -> Status {
    forgetValues(*session);
    MEMOPT_ASSIGN_OR_RETURN(TrainingState state, loadCheckpoint(folder, session->getFirst()));
    // Where its data stands the caller knows; what is kept for memopt-run is the nearest batch.
    (void)state.countBatchesOf(session->state.batchSize);
    session->state = std::move(state);
    session->said.front().rate = session->state.schedule.rate;
    for (ProgramInputs &said : session->said)
      for (auto &[variable, rate] : said.rates)
        if (auto found = session->state.numbers.find(variable->name);
            found != session->state.numbers.end())
          rate = found->second;
    session->missing.clear();
    return Status::ok();
  });
}

namespace {
/// Tensors as files have them: row-major.
struct NamedTensors {
  std::vector<TensorToWrite> tensors;
  std::list<std::vector<char>> copies; ///< of those that were not

  Status add(const memopt_named_view &named) {
    const memopt_view &view = named.view;
    std::optional<DType> dtype = parseDType(view.dtype ? view.dtype : "");
    if (!named.name || !dtype || view.rank < 0)
      return badInput("has no name, or elements of unknown type " +
                      quote(view.dtype ? view.dtype : ""));
    TensorView tensor{static_cast<const char *>(view.data), *dtype, {}, {}};
    if (view.rank)
      tensor.shape.assign(view.shape, view.shape + view.rank);
    MEMOPT_ASSIGN_OR_RETURN(int64_t bytes, getTensorBytes(*dtype, tensor.shape));
    if (!tensor.data && bytes)
      return badInput("has no data");
    tensor.strides = getRowMajorStrides(tensor.shape);
    if (view.strides && !std::equal(tensor.strides.begin(), tensor.strides.end(), view.strides)) {
      tensor.strides.assign(view.strides, view.strides + view.rank);
      copies.emplace_back(size_t(bytes));
      MEMOPT_RETURN_IF_ERROR(tensor.copyTo(*dtype, copies.back().data()));
      tensor.data = copies.back().data();
    }
    tensors.push_back({named.name, *dtype, tensor.shape, tensor.data});
    return Status::ok();
  }
};
} // namespace

int32_t memopt_checkpoint_write(const char *folder, const memopt_named_view *model, int64_t models,
                                const memopt_named_view *optimizer, int64_t optimizers,
                                const char *state, memopt_error *error) {
  return guard(error, [&]() -> Status {
    StatusOr<TrainingState> parsed = parseTrainingState(state);
    if (!parsed.isOk())
      return parsed.takeStatus().withContext("the state");
    NamedTensors files[2];
    for (auto [file, views, count] :
         {std::tuple(&files[0], model, models), std::tuple(&files[1], optimizer, optimizers)})
      for (int64_t i = 0; i < count; ++i)
        MEMOPT_RETURN_IF_ERROR(
            file->add(views[i]).withContext("tensor " + quote(views[i].name ? views[i].name : "")));
    MEMOPT_ASSIGN_OR_RETURN(CheckpointFolder target, CheckpointFolder::open(folder));
    return target.save({std::move(files[0].tensors), std::move(files[1].tensors)}, *parsed);
  });
}
