//===- Session.h - a program at work ----------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A session is a loaded package and its arenas. It initializes variables, runs steps and watches
// them: the loss before the optimizer changes anything, the gradients of one step, the memory that
// was really used.
//
// One thread uses a session. Steps allocate nothing.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_SESSION_H
#define MEMOPT_RUNTIME_SESSION_H

#include "memopt-runtime/Device.h"
#include "memopt-runtime/Package.h"
#include "memopt-runtime/Safetensors.h"
#include "memopt-runtime/Trace.h"
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace memopt {

struct SessionOptions {
  bool isMemoryChecked = false;
  bool isStoppedOnNan = true;
};

class Session {
public:
  /// Allocates the arenas and binds the program.
  static StatusOr<std::unique_ptr<Session>> create(std::unique_ptr<Package> package, Device &device,
                                                   const SessionOptions &options);
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  const Manifest &getManifest() const { return package->getManifest(); }
  const Package &getPackage() const { return *package; }

  /// Where a tensor lies.
  char *getAddress(const PlacedTensor &tensor) const {
    return arenas[tensor.space].base() + tensor.offset;
  }

  //===--------------------------------------------------------------------===//
  // Variables
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

  /// The first trained parameter, buffer or optimizer state with a value that is not finite, or
  /// null.
  const VariableSpec *findNonFiniteVariable() const;

  //===--------------------------------------------------------------------===//
  // Steps
  //===--------------------------------------------------------------------===//

  /// A failure when an input in the arena holds a value outside its valid range; names input, index
  /// and value.
  Status checkInputs() const;

  /// Runs one step on what lies in the arena. When the loss is not finite the step ends before the
  /// optimizer and the failure names the first instruction and module whose output is not finite.
  Status runStep();

  /// The value of an output after a step; `output` has one element.
  double readScalar(const OutputSpec &output) const {
    return readElement(output.dtype, getAddress(output), 0);
  }

  /// Makes the next step keep the gradients; memory for them is taken now.
  void captureGradients();
  /// The gradients kept; they lie in the session's memory.
  std::vector<TensorToWrite> getCapturedGradients() const;

  void setTrace(Trace *newTrace) { trace = newTrace; }

  //===--------------------------------------------------------------------===//
  // Memory
  //===--------------------------------------------------------------------===//

  /// What was seen used, per space. Only with isMemoryChecked.
  BytesBySpace getUsedPeakBytes() const;
  int64_t getResidentArenaBytes() const;

  /// For a handler of segmentation faults, which may allocate nothing: whether the address is a
  /// guard page of an arena, and the instruction that was running (-1 between steps).
  bool isGuard(const void *address) const;
  int64_t getRunningInstruction() const { return running.load(std::memory_order_relaxed); }

private:
  enum class Watch { Loss, Nothing, EveryOutput };

  Session() = default;

  // The program's runtime functions.
  static const memopt_runtime_functions functions;
  static int32_t onInstruction(void *session, int64_t index);
  static void onParallelFor(int64_t count, int64_t grain, memopt_loop_body body, void *closure);
  static int32_t onLibraryCall(void *session, int64_t index, void *const *buffers);

  Status allocateArenas(Device &device, bool isChecked);
  void rehearse();
  bool finishInstruction(int64_t index);
  void keepGradients(int64_t index);
  void inspectOutputs(int64_t index);
  bool isLossFinite() const;
  Status execute(Watch newWatch);
  Status explainLoss();
  std::string describeInstruction(int64_t index) const;
  Status fillFromWeights(const SafetensorsFile &weights, const VariableSpec &variable);
  void fillRandomly(const VariableSpec &variable, int64_t seed);
  void noteWorkspace(const PreparedCall &call, void *const *buffers);

  std::unique_ptr<Package> package;
  SessionOptions options;
  std::array<Arena, MEMOPT_SPACE_COUNT> arenas;
  memopt_step frame{};
  Trace *trace = nullptr;
  std::atomic<int64_t> running{-1};
  Watch watch = Watch::Nothing;
  Status failure;                            ///< of a library call or of the program itself
  bool isLossBad = false;                    ///< the step was left for it
  int64_t firstNan = -1, firstInfinite = -1; ///< instructions, when every output is watched
  bool isCapturing = false;
  std::vector<std::vector<char>> capturedGradients; ///< as in the manifest
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_SESSION_H
