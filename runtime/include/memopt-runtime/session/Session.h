//===- Session.h - a program at work ----------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A session is a program at work: its arenas, library calls and steps. It initializes variables,
// runs steps and watches them: the loss and indices before a step changes anything, the gradients
// of one step, the memory that was really used.
//
// One thread uses a session at a time; any number of sessions run at once, each with threads of its
// own. Steps allocate nothing.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_SESSION_SESSION_H
#define MEMOPT_RUNTIME_SESSION_SESSION_H

#include "memopt-runtime/descriptors/LibraryCalls.h"
#include "memopt-runtime/execution/Arenas.h"
#include "memopt-runtime/execution/Trace.h"
#include "memopt-runtime/memory/AllocationCounter.h"
#include "memopt-runtime/package/Package.h"
#include "memopt-runtime/package/Safetensors.h"
#include "memopt-runtime/ranks/Communicator.h"
#include "memopt-runtime/session/LearningRate.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace memopt {

class Session;

struct SessionOptions {
  bool isMemoryChecked = false;
  bool isStoppedOnNan = true;
  /// Threads that loops run on, at most as many as were planned; 0: what the process may use.
  /// Results do not depend on it.
  int threads = 0;
  /// To the other ranks of the program, null for a program of one; it must outlive the session.
  Communicator *communicator = nullptr;
  /// How long a device waits for those of other ranks.
  double rankSeconds = 300;
  /// Where the file of a program that uses the disk lies; empty: where the package says.
  std::string diskFolder = {};
  /// Called on each thread that the session starts, before anything else.
  std::function<void()> onThreadStart = {};
  /// Another program's session, whose arenas this one uses; it must outlive this one.
  const Session *partner = nullptr;
  /// What the arenas have at least, for programs that are to use them, too.
  BytesBySpace leastBytes = {};
  /// Whether a device replays steps that were written down once, where it can.
  bool isReplayed = true;
};

/// What a session takes of a device's memory beside its arena, in the order in which it is
/// measured: by the bytes that are free, so what others take meanwhile counts too.
struct DeviceOverhead {
  int64_t context = 0;      ///< taken when the device had been opened
  int64_t modules = 0;      ///< kernels and streams
  int64_t libraryCalls = 0; ///< handles, plans and code of libraries
  int64_t ranks = 0;        ///< what joins several devices
  int64_t graphs = 0;       ///< steps that were written down
  int64_t steps = 0;        ///< all that was taken since

  int64_t getTotal() const { return context + modules + libraryCalls + ranks + graphs + steps; }
};

/// Puts samples into inputs. `part` counts what all ranks fill in a step from 0, and goes on with
/// the next step's; the same one may be asked for again. `targets` holds an address for each input
/// of the manifest, in its order.
using BatchFiller = std::function<Status(int64_t part, const std::vector<char *> &targets)>;

class Session {
public:
  /// Makes the library calls and allocates the arenas. The device must outlive the session.
  static StatusOr<std::unique_ptr<Session>> create(std::shared_ptr<const Package> package,
                                                   Device &device,
                                                   const LibraryCallFactory &createCall,
                                                   const SessionOptions &options);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  const Manifest &getManifest() const { return package->getManifest(); }
  const Package &getPackage() const { return *package; }
  const std::shared_ptr<const Package> &sharePackage() const { return package; }

  /// Where the host reads and writes a tensor between steps; null for one that only the device
  /// reaches, or on disk, which inputs, outputs and hyperparameters never are.
  char *getAddress(const PlacedTensor &tensor) const { return arenas.getAddress(tensor); }
  /// Copies the bytes of a tensor, wherever it lies, between steps.
  Status readTensor(const PlacedTensor &tensor, void *to) const { return arenas.read(tensor, to); }
  Status writeTensor(const PlacedTensor &tensor, const void *from) const {
    return arenas.write(tensor, 0, from, tensor.bytes);
  }

  //===--------------------------------------------------------------------===//
  // Variables (SessionVariables.cpp)
  //===--------------------------------------------------------------------===//

  /// Gives every variable its first value: that of the package's weights, or zeros. Absent ones are
  /// an error that names them, unless `isRestored` says that something else (a checkpoint) will
  /// supply them.
  Status initializeFromWeights(const std::function<bool(const VariableSpec &)> &isRestored);

  /// Like it, but parameters and absent variables get random values that follow from the seed and
  /// their name: normal with standard deviation init_scale, or the constant init_value, or else
  /// 1/sqrt(fan-in) for tensors of two or more dimensions and zero for others.
  Status initializeRandomly(int64_t seed);

  /// Writes the variables that a step reads anew; `step` counts from 1.
  void setHyperparameters(double learningRate, int64_t step, int64_t seed);
  /// Writes the rate of a group of parameters that has one of its own, or another number of the
  /// optimizer.
  void setRate(const VariableSpec &group, double rate);
  /// The rates of all such groups and the other numbers: those of `numbers`, by name, else those
  /// that were compiled.
  void setGroupRates(const LearningRateSchedule &schedule, int64_t step,
                     const std::map<std::string, double> &numbers);

  /// Gives a variable the value of a whole tensor, of which this rank may keep a part.
  Status setWhole(const VariableSpec &variable, const void *whole);
  /// The same from a tensor of a file, of this shape and of this type or a narrower one. What other
  /// ranks need is not read.
  Status readWhole(const VariableSpec &variable, const SafetensorsFile &file,
                   const SafetensorsEntry &entry);
  /// The whole tensor of a variable, which lies in `storage` where ranks have parts of it: then all
  /// of them call this, and only the first gets it.
  StatusOr<const void *> getWhole(const VariableSpec &variable, std::vector<char> &storage) const;
  /// The same, and every rank gets it.
  StatusOr<const void *> getWholeOnAll(const VariableSpec &variable,
                                       std::vector<char> &storage) const;

  /// Another program has run in the same arenas: gives this one's constants their values again,
  /// and, where memory is checked, forgets what the other has used. Hyperparameters are to be set
  /// anew.
  Status comeBack();

  /// Keeps the values of a frozen tensor, which are whole and f32, as codes and scales.
  Status encode(const VariableSpec &variable, const float *whole);
  /// The values that codes and scales stand for.
  Status decode(const VariableSpec &variable, float *whole) const;
  /// Whether codes have values.
  bool hasCodes(const VariableSpec &variable) const { return encoded.count(variable.name); }
  /// Tells the tensors that are kept in codes from others; empty where there are none.
  StatusOr<std::string> getBaseDigest() const;

  /// The first parameter, buffer or optimizer state with a value that is not finite, or null.
  StatusOr<const VariableSpec *> findNonFiniteVariable() const;

  //===--------------------------------------------------------------------===//
  // Steps
  //===--------------------------------------------------------------------===//

  /// Where steps get their samples from. Without it they run on what lies in the inputs.
  /// With `isAhead` a device gets the first samples of the next step during a step; what lies in
  /// the inputs after it are those then.
  void setBatches(BatchFiller filler, bool isAhead = false);

  /// Runs one step. It fails, and leaves the state as it was, when an input holds a value outside
  /// its valid range, an index of the program's is out of range, or the loss is not finite: then
  /// the message names input or instruction and module.
  Status runStep();

  /// Whether the last step was left because its loss is not finite.
  bool isLossRefused() const;

  /// The rank for whose sake all ranks left the last step before it changed anything, for a sample
  /// that it could not read, say: they still go together, and may write a checkpoint. Empty where a
  /// step failed otherwise, or did not.
  std::optional<int64_t> getRefusingRank() const;

  /// Calls `handler` when a step is left for its loss, on all ranks alike, while they still go
  /// together: the search for its origin, which comes next, ends on one rank before the others.
  void setLossHandler(std::function<void()> handler) { onLossRefused = std::move(handler); }

  /// Whether all state is that of the steps that have succeeded: not behind a step that failed
  /// after it had begun to change the state, because another rank was lost, say.
  bool isStateWhole() const;

  /// Seconds that the last step took, without filling its inputs.
  double getStepSeconds() const;
  /// Seconds that it took to fill them, or to wait for who does.
  double getDataSeconds() const;

  /// The value of an output or variable of one element between steps.
  double readScalar(const PlacedTensor &tensor) const { return arenas.readElement(tensor, 0); }

  /// Makes the next step keep the gradients; memory for them is taken now. A program that does not
  /// report its instructions cannot, which is an error.
  Status captureGradients();
  /// The gradients kept; they lie in the session's memory. Where ranks have parts of them, all call
  /// this, and only the first gets them.
  StatusOr<std::vector<TensorToWrite>> getCapturedGradients();

  /// Records all steps from now on; null ends it. As with gradients, not every program can.
  Status setTrace(Trace *newTrace);

  /// Why steps are not replayed from graphs; empty where they are, or where nothing could be: on
  /// the cpu, or when the options say so.
  const std::string &getReplayRefusal() const { return replayRefusal; }

  //===--------------------------------------------------------------------===//
  // Memory
  //===--------------------------------------------------------------------===//

  /// What this program was seen to use, per space. Only with isMemoryChecked.
  BytesBySpace getUsedPeakBytes() const { return usedBytes; }
  Arenas &getArenas() { return arenas; }
  int64_t getResidentArenaBytes() const { return arenas.getResidentBytes(); }
  /// What is taken of the device beside the arena, all zeros on the cpu; `steps` counts up to now.
  StatusOr<DeviceOverhead> measureDeviceOverhead() const;
  /// Counts what this session was prepared with among its parts, no longer among the steps of a
  /// session that was there before.
  void addPreparationTo(DeviceOverhead &whole) const;
  /// What this machine lacks that would make the session faster, a sentence each.
  std::vector<std::string> getNotices() const { return arenas.getNotices(); }

  /// What was allocated while a CountAllocations of this session's lived.
  AllocationCounter &getAllocations() { return allocations; }
  const AllocationCounter &getAllocations() const { return allocations; }

  //===--------------------------------------------------------------------===//
  // For handlers of faults: these neither allocate nor lock
  //===--------------------------------------------------------------------===//

  /// The session whose step the calling thread runs, or takes part in; null for other threads.
  static const Session *getCurrent();
  /// The session that has a guard page at `address`, or null.
  static const Session *findGuarding(const void *address);

  /// Whether `address` lies in a guard page of an arena.
  bool isGuard(const void *address) const { return arenas.isGuard(address); }
  /// -1 between steps, and always in a program that does not report its instructions.
  int64_t getRunningInstruction() const;

private:
  struct Parts;
  friend struct ProgramCalls; // what the program calls (ProgramCalls.cpp)

  Session();
  Status prepare(Device &device, const LibraryCallFactory &createCall);
  Status prepareProgram(const LibraryCallFactory &createCall);
  Status prepareCalls(const LibraryCallFactory &createCall);
  Status joinDevices();
  Status captureStep();
  Status noteTaken(int64_t &part);
  void joinThread();
  Status readConstants();
  void noteUsed();
  Status lookAt(int64_t before, int64_t next);
  Status checkInstrumented(const std::string &what) const;
  Status runProgram();
  bool isWatched() const;
  int32_t replayStep();
  bool goesTogether() const;
  Status hold(Status failure);
  bool mayCommit();
  bool agree();
  Status finishProgram(int32_t code);
  Status explainLoss();
  Status chooseTeller(bool hasCause);
  /// Among those that run the program together; 0 alone.
  int64_t getRank() const;
  Status fillFromWeights(const SafetensorsFile &weights, const VariableSpec &variable);
  Status encodeFrom(const VariableSpec &variable, const SafetensorsFile &file,
                    const SafetensorsEntry &entry);
  StatusOr<BlockParts<const uint8_t, const float>>
  viewParts(const VariableSpec &variable, std::array<std::vector<char>, 3> &storage) const;
  Status fillWithConstant(const VariableSpec &variable);
  Status fillRandomly(const VariableSpec &variable, int64_t seed);
  /// Zeros all of the units that tensors lie in together, padding included.
  Status clearUnits();
  Status clearBehind(const VariableSpec &variable, int64_t bytes);
  Status fillWithZeros(const VariableSpec &variable);
  Status fillOwn(const VariableSpec &variable, const std::function<void(char *data)> &fill);

  std::shared_ptr<const Package> package;
  SessionOptions options;
  AllocationCounter allocations;
  std::unique_ptr<ThreadPool> pool; ///< counts what its threads allocate above
  Arenas arenas;
  std::unique_ptr<Parts> parts; ///< they refer to the members above
  memopt_step frame{};
  Device *device = nullptr;
  DeviceOverhead overhead;
  int64_t takenBefore = 0; ///< of the device, before this session was prepared
  int64_t takenBytes = 0;  ///< of the device, when that was last measured
  std::string replayRefusal;
  BytesBySpace usedBytes{};
  /// Variables of this program alone, which others write over, with their values.
  std::vector<std::pair<const VariableSpec *, std::vector<char>>> constants;
  std::function<void()> onLossRefused;
  std::set<std::string> encoded;                 ///< variables with codes that have values
  mutable std::optional<std::string> baseDigest; ///< once it is known
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_SESSION_SESSION_H
