//===- Manifest.h - what a package says of its program ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// manifest.json of a package (docs/Package.md), read and checked: every place lies inside its
// arena, sizes agree with shapes, variables do not overlap, indices point at something. What passed
// here needs no further check.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_PACKAGE_MANIFEST_H
#define MEMOPT_RUNTIME_PACKAGE_MANIFEST_H

#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/interface/PackageFormat.h"
#include "memopt-runtime/numbers/BlockCodes.h"
#include "memopt-runtime/numbers/DType.h"
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace memopt {

using BytesBySpace = std::array<int64_t, countedSpaces>;

inline const char *getSpaceName(int space) { return spaceNames[space]; }

/// A tensor at its place in an arena.
struct PlacedTensor {
  std::string name;
  DType dtype;
  Shape shape;
  int space;
  int64_t offset; ///< bytes from the arena's begin, a multiple of the element size
  int64_t bytes;
};

/// The integers that an input may hold.
struct ValidRange {
  int64_t min, max;
  std::optional<int64_t> ignore; ///< allowed besides
  std::string reason;
};

/// What a program was compiled for. Where its kernels are a device's, a file of the package holds
/// them and runs on one kind of chip; a program for the cpu has a name alone.
struct TargetSpec {
  std::string name;  ///< "cpu" or "cuda"
  std::string chip;  ///< "sm_90"
  int64_t sms = 0;   ///< multiprocessors that launches and library calls were planned for
  std::string image; ///< the file's name; empty when there is none
  /// Of the device's memory beside the arena, for which the plan left room; 0: nothing was said.
  int64_t overheadBytes = 0;
};

struct InputSpec : PlacedTensor {
  std::optional<int64_t> batchDim;
  std::optional<ValidRange> validRange;
};

struct OutputSpec : PlacedTensor {
  std::string role; ///< "loss", "metric", "prediction" or another word
};

enum class VariableInit { Weights, Zeros, Constant, Absent };
/// Whether a checkpoint that is loaded gives the variable's value: it must; it does when it has it
/// (PyTorch's state dicts leave some buffers out); or it does not, for the value was compiled in.
enum class VariableRestore { Required, IfPresent, Never };

/// A frozen tensor, f32 to those outside, of which a variable holds the codes (BlockCodes.h).
struct EncodingSpec {
  BlockCode code;
  Shape shape;
  std::string scales;      ///< the variable that holds them; empty with bf16
  std::string scaleScales; ///< where these are bytes; else empty
};

/// A tensor, or this rank's part of one: then its own shape is a vector, and the parts of all ranks
/// are the whole in row-major order, with zeros behind it. Small tensors are cut together: the
/// parts are then those of a unit, a vector that has this tensor from element `unitFirst` on.
struct ShardedTensor : PlacedTensor {
  std::optional<Shape> wholeShape;
  int64_t unitFirst = 0;
  std::string unit; ///< the name of the unit; empty where the tensor is cut by itself
  std::optional<EncodingSpec> encoding; ///< of codes

  /// What those outside see.
  const Shape &getWholeShape() const {
    if (encoding)
      return encoding->shape;
    return wholeShape ? *wholeShape : shape;
  }
  DType getWholeDType() const { return encoding ? DType::F32 : dtype; }
  int64_t getWholeBytes() const {
    return getElementCount(getWholeShape()) * getByteSize(getWholeDType());
  }

  struct Range {
    int64_t begin, count;
    int64_t at; ///< where they begin in the rank's own part
  };
  /// The elements of the whole that a rank has values of: what follows them is padding or another
  /// tensor of the unit, and codes are the same on all ranks.
  Range getOwnElements(int64_t rank) const {
    int64_t whole = getElementCount(getWholeShape());
    if (encoding)
      return {0, whole, 0};
    int64_t own = getElementCount(shape);
    if (!wholeShape)
      return {0, std::min(own, whole), 0};
    int64_t begin = std::clamp<int64_t>(rank * own - unitFirst, 0, whole),
            end = std::clamp<int64_t>((rank + 1) * own - unitFirst, 0, whole);
    return {begin, end - begin, end > begin ? begin + unitFirst - rank * own : 0};
  }
};

struct VariableSpec : ShardedTensor {
  std::vector<std::string> names; ///< in a checkpoint; empty when it is not part of it
  /// parameter, buffer, optimizer_state, gradient, hyperparameter, loss_scale, index_fault,
  /// frozen_scale
  std::string role;
  bool isTrainable;
  VariableInit init;
  VariableRestore restore;
  std::optional<double> initScale; ///< standard deviation for random initialization
  bool isOwn = false;              ///< a constant of this program, of several that share all else
  /// What all elements start from, with VariableInit::Constant or random initialization; of a
  /// group's learning rate, the rate before the schedule; of another number of the optimizer, the
  /// one that was compiled.
  std::optional<double> initValue;

  /// Whether it has scales of codes, which are written with these.
  bool isFrozenScale() const { return role == "frozen_scale"; }
  /// Whether it is the learning rate of a group of parameters that has its own.
  bool isGroupRate() const {
    return role == "hyperparameter" && name.compare(0, 3, "lr.") == 0 && initValue.has_value();
  }
  /// Whether it is another number of the optimizer, a momentum say, that a run may change.
  bool isOptimizerSetting() const {
    return role == "hyperparameter" && name.compare(0, 15, "hyperparameter.") == 0 &&
           initValue.has_value();
  }
  /// Whether it is memory in which a device and its host exchange what a step takes and gives.
  bool isExchange() const { return name == exchangeName || name == nextSamplesName; }
  /// Whether it is the norm of all gradients, which a step leaves for its host.
  bool isGradientNorm() const { return role == "gradient" && name == "gradient_norm"; }
  /// Whether a step leaves it for its host to read.
  bool isLeftForHost() const {
    return role == "index_fault" || role == "loss_scale" || isGradientNorm();
  }
  /// Whether its value lasts from step to step; other variables are written anew in each.
  bool isState() const {
    return !isOwn && role != "hyperparameter" && role != "gradient" && role != "index_fault";
  }
};

struct GradientSpec : ShardedTensor {
  int64_t readyAfter; ///< index of an instruction; -1: it is there from the start
};

struct InstructionSpec {
  std::string name, kind, module, ops;
  std::string resource;        ///< that it occupies: "compute" or another word
  std::optional<int64_t> call; ///< of a library instruction: index into libraryCalls
  std::vector<PlacedTensor> outputs;
  BytesBySpace liveBytes;
};

/// Instructions [begin, end) that run `count` times, one after another, each time from the begin.
struct RegionSpec {
  int64_t begin, end, count;
  std::vector<size_t> inputs; ///< those that get new samples at each iteration
};

/// Bytes that move while instructions run, between two places that do not overlap.
struct TransferSpec {
  int fromSpace, toSpace;
  int64_t fromOffset, toOffset, bytes;
  std::string resource; ///< transfers of one resource run in the order of their starts
};

enum class CollectiveKind { AllReduce, ReduceScatter, AllGather, OwnShard, AllToAll };
/// As packages write it.
std::string getName(CollectiveKind kind);

/// What a program does with the other ranks, on device memory; elements are those of this rank's
/// operand and result.
struct CollectiveSpec {
  CollectiveKind kind;
  DType dtype;
  int64_t fromOffset, toOffset, elements, resultElements;
  bool isInFlight; ///< it starts and is waited for
};

/// Where a program checks an index.
struct IndexSite {
  std::string module, op;
  int64_t min, max; ///< allowed, both included
  std::string what; ///< that is indexed, for people; may be empty
};

/// What the compiler did with the batch norms that were to join their convolutions, by module.
struct ConvBnEvalSpec {
  std::vector<std::string> fused;
  std::vector<std::pair<std::string, std::string>> refused; ///< with the reason
};

/// One of several programs of a package.
struct ProgramEntry {
  std::string name, kind; ///< kind: "train" or "eval"
};

struct Manifest {
  int64_t version = 0;        ///< of the format
  std::string digest;         ///< of the whole package; empty in packages of before there was one
  std::string compiler, mode; ///< mode: "train" or "eval"
  bool isAveraged = false;    ///< an evaluation that reads averages of the weights
  TargetSpec target;
  std::vector<std::string> kernels; ///< of the target's image, as the program numbers them
  int64_t threads;                  ///< for which library calls were planned
  bool isInstrumented;              ///< whether the program reports each instruction that it begins
  BytesBySpace arenaBytes;
  BytesBySpace predictedPeakBytes;
  std::string diskFolder; ///< where the disk's arena lies, unless a session says otherwise
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<VariableSpec> variables;
  std::vector<GradientSpec> gradients;
  std::vector<InstructionSpec> instructions;
  std::vector<RegionSpec> regions; ///< outer ones first; two are nested or disjoint
  std::vector<TransferSpec> transfers;
  std::vector<CollectiveSpec> collectives;
  std::vector<IndexSite> indexSites;
  std::vector<nlohmann::json> libraryCalls;
  std::string optimizer;              ///< its name; empty when the package gives none
  std::optional<double> learningRate; ///< the optimizer's default
  int64_t microBatches = 1; ///< that a batch of data is cut into: the inputs hold one of them
  int64_t ranks = 1;        ///< processes that run the program together
  std::optional<ConvBnEvalSpec> convBnEval;
  /// In the first program's manifest all of a package that has several; empty in others.
  std::vector<ProgramEntry> programs;

  /// Where the state ends that several programs share, by space.
  BytesBySpace getStateEnds() const;
  /// Index of the output of role "loss", or -1.
  int getLossIndex() const;
  const VariableSpec *findVariable(const std::string &name) const;
  /// One that the runtime writes: a variable of the model may have any name.
  const VariableSpec *findHyperparameter(const std::string &name) const;
  const InputSpec *findInput(const std::string &name) const;
  /// What the loss is multiplied by in the backward pass, and the number of steps that were skipped
  /// because their gradients overflowed; null in programs that do not scale it.
  const VariableSpec *findLossScale() const;
  const VariableSpec *findSkippedSteps() const;
  /// The norm of all gradients, before clipping; null in programs that compute none.
  const VariableSpec *findGradientNorm() const;
  /// The variable of role "index_fault", or null.
  const VariableSpec *findIndexFault() const;
  /// The region whose iterations read inputs, or null: then a step takes one batch of samples.
  const RegionSpec *findBatchRegion() const;
  /// How often a step fills the inputs of a rank anew.
  int64_t getFillsPerStep() const;
  /// What all ranks fill in a step.
  int64_t getPartsPerStep() const { return getFillsPerStep() * ranks; }
  /// Batches of data that a step takes, each of `microBatches` times the inputs' samples.
  int64_t getBatchesPerStep() const { return getPartsPerStep() / microBatches; }
  /// Which of the step's parts a rank gets at an iteration, in the order of samples: ranks take
  /// whole batches in turn.
  int64_t getPart(int64_t rank, int64_t iteration) const {
    return (iteration / microBatches * ranks + rank) * microBatches + iteration % microBatches;
  }
  /// An instruction for a message; "the step" for an index beyond the list.
  std::string describeInstruction(int64_t index) const;
};

/// A larger file is no manifest: far above what a program of many thousand instructions needs.
constexpr size_t maxManifestBytes = size_t(256) << 20;

/// Reads and checks the text of a manifest.
StatusOr<Manifest> parseManifest(std::string_view text);

} // namespace memopt

#endif // MEMOPT_RUNTIME_PACKAGE_MANIFEST_H
