//===- RankFile.cpp - packages and networks, for many ranks ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Ranks/RankFile.h"

#include "memopt/Planning/Utils/Failure.h"
#include "memopt/Planning/Utils/JsonField.h"

#include "memopt/Support/InputFile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/SHA256.h"

#include <map>
#include <tuple>

using namespace memopt::planning;
using llvm::StringRef;
using llvm::Twine;
namespace json = llvm::json;

/// Far more than a step has, with its loops written out.
static constexpr size_t mostOps = size_t(1) << 24;
/// Products of sizes stay below it.
static constexpr int64_t mostBytes = int64_t(1) << 56;

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

static int64_t readElements(const JsonField &shape) {
  int64_t elements = 1;
  shape.forEach([&](const JsonField &size) {
    if (__builtin_mul_overflow(elements, size.integer(1), &elements) || elements > mostBytes) {
      size.fail("makes the tensor too large");
      elements = 1;
    }
  });
  return elements;
}

namespace {
/// Collects what belongs to each parameter.
class StateReader {
public:
  StateReader(const JsonField &root, RankStep &step) : root(root), step(step) {}

  void read() {
    root["variables"].forEach([&](const JsonField &variable) {
      if (variable["role"].text() == "parameter")
        addParameter(variable);
    });
    // The unit of its shards belongs to a parameter before bytes are counted in them.
    forEachState([&](const JsonField &variable, RankTensor &tensor) {
      std::string dtype = variable["dtype"].text();
      if (dtype == "u8" || dtype == "i8")
        tensor.unit = 256; // a block of codes with one scale
    });
    forEachState(
        [&](const JsonField &variable, RankTensor &tensor) { addState(variable, tensor); });
    root["gradients"].forEach([&](const JsonField &gradient) {
      if (RankTensor *tensor = find(gradient["name"]))
        tensor->gradientBytes = static_cast<double>(gradient["bytes"].integer()) /
                                static_cast<double>(readElements(gradient["shape"]));
    });
    // Of who is updated alike the package says what state there is; a rule of the update that
    // differs in nothing else, such as another decay, may make one unit more.
    std::map<std::tuple<double, double, double, int64_t>, int64_t> groups;
    for (RankTensor &tensor : step.tensors)
      if (tensor.wholeBytes == 0)
        tensor.group = groups
                           .try_emplace({tensor.parameterBytes, tensor.gradientBytes,
                                         tensor.stateBytes, tensor.unit},
                                        static_cast<int64_t>(groups.size()))
                           .first->second;
  }

private:
  void addParameter(const JsonField &variable) {
    RankTensor tensor;
    JsonField whole = variable["whole_shape"];
    tensor.elements = readElements(whole.isThere() ? whole : variable["shape"]);
    tensor.parameterBytes = static_cast<double>(variable["bytes"].integer()) /
                            static_cast<double>(readElements(variable["shape"]));
    tensor.gradientBytes = 0; // until there is one
    numbers[variable["name"].text()] = step.tensors.size();
    step.tensors.push_back(tensor);
  }

  /// A single number is the same for all ranks; everything else is in proportion to the elements.
  void addState(const JsonField &variable, RankTensor &tensor) {
    int64_t bytes = variable["bytes"].integer();
    JsonField whole = variable["whole_shape"];
    int64_t own = whole.isThere() ? getShardElements(tensor.elements, step.ranks, tensor.unit)
                                  : tensor.elements;
    if (variable["unit"].isThere() && whole.isThere()) {
      // A part of a unit: as many elements, or as many blocks of them.
      bool isOfBlocks = readElements(whole) < tensor.elements;
      own = readElements(variable["shape"]) * (isOfBlocks ? tensor.unit : 1);
    }
    if (variable["shape"].items().empty())
      tensor.wholeBytes += bytes;
    else
      tensor.stateBytes += static_cast<double>(bytes) / static_cast<double>(own);
  }

  template <typename Each> void forEachState(Each each) {
    root["variables"].forEach([&](const JsonField &variable) {
      if (variable["role"].text() == "optimizer_state" && variable["of"].isThere())
        if (RankTensor *tensor = find(variable["of"]))
          each(variable, *tensor);
    });
  }

  RankTensor *find(const JsonField &name) {
    auto found = numbers.find(name.text());
    return found == numbers.end() ? nullptr : &step.tensors[found->second];
  }

  const JsonField &root;
  RankStep &step;
  llvm::StringMap<size_t> numbers;
};
} // namespace

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

namespace {
struct Region {
  int64_t begin, end, count;
};

/// Writes loops out, and says of each collective where in the result it belongs.
class StepReader {
public:
  StepReader(const JsonField &root, RankStep &step)
      : root(root), step(step), instructions(root["instructions"].items()) {
    if (root["regions"].isThere())
      root["regions"].forEach([&](const JsonField &region) {
        regions.push_back(
            {region["begin"].integer(), region["end"].integer(), region["count"].integer(1)});
      });
    if (root["collectives"].isThere())
      collectives = root["collectives"].items();
  }

  void read() {
    auto count = static_cast<int64_t>(instructions.size());
    last.assign(instructions.size(), -1);
    emit(0, count, regions.size());
    resolveNeeds();
    step.digest = llvm::toHex(hash.final(), /*LowerCase=*/true).substr(0, 16);
  }

private:
  /// Instructions [begin, end), the body of region `inside` or of none.
  void emit(int64_t begin, int64_t end, size_t inside) {
    for (int64_t at = begin; at < end && step.ops.size() <= mostOps;) {
      // The outermost that begins here.
      size_t best = regions.size();
      for (size_t i = 0; i < regions.size(); ++i)
        if (i != inside && regions[i].begin == at && regions[i].end > at && regions[i].end <= end &&
            (inside == regions.size() || isWithin(regions[i], regions[inside])) &&
            (best == regions.size() || isWithin(regions[best], regions[i])))
          best = i;
      if (best == regions.size()) {
        add(at++);
        continue;
      }
      for (int64_t i = 0; i < regions[best].count && step.ops.size() <= mostOps; ++i)
        emit(regions[best].begin, regions[best].end, best);
      at = regions[best].end;
    }
    if (step.ops.size() > mostOps)
      root["regions"].fail("repeat more than " + Twine(mostOps) + " instructions");
  }
  static bool isWithin(const Region &inner, const Region &outer) {
    return outer.begin <= inner.begin && inner.end <= outer.end &&
           (outer.end - outer.begin > inner.end - inner.begin);
  }

  void add(int64_t number) {
    const JsonField &field = instructions[static_cast<size_t>(number)];
    RankOp op;
    if (JsonField collective = field["collective"]; collective.isThere())
      fillCollective(field, collective, op);
    if (op.kind == RankOpKind::Compute && field["predicted_seconds"].isThere())
      op.seconds = field["predicted_seconds"].number();
    last[static_cast<size_t>(number)] = static_cast<int64_t>(step.ops.size());
    numbers.push_back(number);
    step.ops.push_back(op);
  }

  void fillCollective(const JsonField &instruction, const JsonField &number, RankOp &op) {
    auto index = static_cast<size_t>(number.integer());
    if (index >= collectives.size())
      return number.fail("there are " + Twine(collectives.size()) + " collectives");
    const JsonField &spec = collectives[index];
    std::string kind = spec["kind"].text();
    if (kind == "own_shard")
      return; // a copy
    // The terms of a sum are sent as those of a sum that is cut.
    bool isExchange = kind == "all_to_all";
    if (kind != "all_reduce" && kind != "reduce_scatter" && kind != "all_gather" && !isExchange)
      spec["kind"].fail("expected all_reduce, reduce_scatter, all_gather, own_shard or all_to_all");
    op.kind = kind == "all_reduce"                     ? RankOpKind::AllReduce
              : kind == "reduce_scatter" || isExchange ? RankOpKind::ReduceScatter
                                                       : RankOpKind::AllGather;
    int64_t elements = spec["elements"].integer(1), result = spec["result_elements"].integer(1);
    op.neededBy = instruction["needed_by"].integer();
    const JsonField *maker = &instruction;
    op.isInFlight = spec["in_flight"].isThere();
    if (op.isInFlight) { // then the wait gives the result
      if (op.neededBy < 0 || op.neededBy >= static_cast<int64_t>(instructions.size()))
        return instruction["needed_by"].fail("expected the instruction that waits");
      maker = &instructions[static_cast<size_t>(op.neededBy)];
    }
    std::vector<JsonField> outputs = (*maker)["outputs"].items(1, "expected one output");
    op.bytes = outputs[0]["bytes"].integer(1);
    if (op.kind == RankOpKind::ReduceScatter &&
        __builtin_mul_overflow(op.bytes / std::max<int64_t>(1, result), elements, &op.bytes))
      spec.fail("is too large");
    int64_t ready = instruction["ready_after"].integer(-1);
    op.readyAfter = ready < 0 || ready >= static_cast<int64_t>(last.size())
                        ? -1
                        : last[static_cast<size_t>(ready)];
    hash.update(
        (kind + " " + spec["dtype"].text() + " " + Twine(elements) + " " + Twine(result) + "\n")
            .str());
  }

  /// From numbers of instructions to where they run next.
  void resolveNeeds() {
    auto end = static_cast<int64_t>(step.ops.size());
    std::vector<int64_t> next(instructions.size() + 1, end);
    for (int64_t at = end - 1; at >= 0; --at) {
      RankOp &op = step.ops[static_cast<size_t>(at)];
      if (op.kind != RankOpKind::Compute)
        op.neededBy = next[static_cast<size_t>(
            std::min(op.neededBy, static_cast<int64_t>(instructions.size())))];
      next[static_cast<size_t>(numbers[static_cast<size_t>(at)])] = at;
    }
  }

  const JsonField &root;
  RankStep &step;
  std::vector<JsonField> instructions, collectives;
  std::vector<Region> regions;
  std::vector<int64_t> last;    ///< position of each instruction's last run so far
  std::vector<int64_t> numbers; ///< of the instruction at each position
  llvm::SHA256 hash;
};
} // namespace

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// Reads a JSON file's text by `read`, which is given the root.
template <typename Result, typename Read>
static llvm::Expected<Result> parseRoot(StringRef text, StringRef path, Read read) {
  llvm::Expected<json::Value> root = ::memopt::parseInputJson(text);
  if (!root)
    return failure(path + ": " + llvm::toString(root.takeError()));
  std::string error;
  Result result;
  read(JsonField(&*root, (path + ": ").str(), &error), result);
  if (!error.empty())
    return failure(error);
  return result;
}

template <typename Result>
static llvm::Expected<Result> readFile(const Twine &path,
                                       llvm::Expected<Result> (*parse)(StringRef, StringRef)) {
  std::string name = path.str();
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> text =
      ::memopt::readInputFile(name, /*isText=*/true);
  if (!text)
    return failure(name + ": " + llvm::toString(text.takeError()));
  return parse((*text)->getBuffer(), name);
}

/// Of the first input with a dimension of samples: those of one turn of the loop, for each turn.
static int64_t readSamples(const JsonField &root) {
  int64_t turns = root["micro_batches"].isThere() ? root["micro_batches"].integer(1) : 1;
  int64_t samples = 0;
  if (!root["inputs"].isThere())
    return 0;
  root["inputs"].forEach([&](const JsonField &input) {
    if (samples || !input["batch_dim"].isThere())
      return;
    std::vector<JsonField> shape = input["shape"].items();
    auto dim = static_cast<size_t>(input["batch_dim"].integer());
    if (dim >= shape.size())
      return input["batch_dim"].fail("expected a dimension of the shape");
    if (__builtin_mul_overflow(shape[dim].integer(1), turns, &samples) || samples > mostBytes)
      input["shape"].fail("makes the batch too large");
  });
  return samples;
}

llvm::Expected<RankStep> memopt::planning::parseRankStep(StringRef text, StringRef path) {
  return parseRoot<RankStep>(text, path, [](const JsonField &root, RankStep &step) {
    if (root["format"].text() != "memopt-package" || root["mode"].text() != "train")
      return root["mode"].fail("expected the manifest of a package that trains");
    step.ranks = root["ranks"].isThere() ? root["ranks"].integer(1) : 1;
    if (step.ranks > mostModeledRanks)
      return root["ranks"].fail("expected at most " + Twine(mostModeledRanks));
    step.samples = readSamples(root);
    root["predicted_peak_bytes"].forEachKey([&](StringRef space, const JsonField &bytes) {
      step.peaks.emplace_back(space.str(), bytes.integer());
    });
    StateReader(root, step).read();
    StepReader(root, step).read();
  });
}

llvm::Expected<RankStep> memopt::planning::readRankStep(StringRef package) {
  return readFile(package + "/manifest.json", parseRankStep);
}

static RankLink readLink(const JsonField &field) {
  RankLink link{field["latency_seconds"].number(), field["bytes_per_second"].number()};
  if (link.latency > 3600)
    field["latency_seconds"].fail("expected at most 3600");
  if (!(link.bytesPerSecond > 0))
    field["bytes_per_second"].fail("expected a number above 0");
  return link;
}

/// Version 1: hosts of so many ranks.
static void readHosts(const JsonField &root, RankNetwork &network) {
  root.expectOnly({"format", "version", "ranks_per_host", "inside", "between"});
  for (const char *link : {"inside", "between"})
    root[link].expectOnly({"latency_seconds", "bytes_per_second"});
  network.levels = {{root["ranks_per_host"].integer(1), readLink(root["inside"])},
                    {1, readLink(root["between"])}};
}

static double readSpeed(const JsonField &field) {
  double speed = field.number();
  if (!(speed > 0 && speed <= 1))
    field.fail("expected a number above 0, of at most 1");
  return speed;
}

static MeasuredCollective readMeasuredCollective(const JsonField &field) {
  field.expectOnly({"bytes", "seconds", "computing_speed", "sending_speed"});
  MeasuredCollective collective;
  collective.computingSpeed = readSpeed(field["computing_speed"]);
  collective.sendingSpeed = readSpeed(field["sending_speed"]);
  std::vector<JsonField> bytes = field["bytes"].items();
  if (bytes.size() < 2)
    field["bytes"].fail("expected at least two numbers");
  std::vector<JsonField> seconds =
      field["seconds"].items(bytes.size(), "expected as many numbers as there are of bytes");
  for (auto [count, taken] : llvm::zip_equal(bytes, seconds)) {
    std::vector<MeasuredCollective::Point> &points = collective.points;
    points.push_back({static_cast<double>(count.integer(1)), taken.number()});
    if (points.size() > 1 && points.back().bytes <= points[points.size() - 2].bytes)
      count.fail("expected more than the number before it");
    if (points.size() > 1 && points.back().seconds < points[points.size() - 2].seconds)
      taken.fail("expected at least the number before it");
  }
  return collective;
}

/// What ranks were seen to take, which memopt-run --describe-network writes.
static MeasuredRanks readMeasured(const JsonField &field) {
  field.expectOnly({"ranks", "all_reduce", "reduce_scatter", "all_gather"});
  return {field["ranks"].integer(1), readMeasuredCollective(field["all_reduce"]),
          readMeasuredCollective(field["reduce_scatter"]),
          readMeasuredCollective(field["all_gather"])};
}

/// Version 2: levels from the inside out. All but the last say how many members they connect.
static void readLevels(const JsonField &root, RankNetwork &network) {
  root.expectOnly({"format", "version", "levels", "measured"});
  if (root["measured"].isThere())
    network.measured = readMeasured(root["measured"]);
  std::vector<JsonField> levels = root["levels"].items();
  if (levels.empty())
    return root["levels"].fail("expected at least one level");
  for (const JsonField &level : levels) {
    bool isLast = &level == &levels.back();
    level.expectOnly({"name", "members", "latency_seconds", "bytes_per_second", "sums"});
    if (isLast && level["members"].isThere())
      level["members"].fail("the last level has none: it connects what there is");
    network.levels.push_back({isLast ? 1 : level["members"].integer(1), readLink(level)});
    if (JsonField sums = level["sums"]; sums.isThere()) {
      sums.expectOnly({"latency_seconds", "bytes_per_second"});
      network.levels.back().sums = readLink(sums);
    }
    if (network.levels.back().members > mostModeledRanks)
      level["members"].fail("expected at most " + Twine(mostModeledRanks));
  }
}

llvm::Expected<RankNetwork> memopt::planning::parseRankNetwork(StringRef text, StringRef path) {
  return parseRoot<RankNetwork>(text, path, [](const JsonField &root, RankNetwork &network) {
    int64_t version = root["version"].integer();
    if (root["format"].text() != "memopt-network" || (version != 1 && version != 2))
      return root["format"].fail("expected \"memopt-network\" of version 1 or 2");
    version == 1 ? readHosts(root, network) : readLevels(root, network);
  });
}

llvm::Expected<RankNetwork> memopt::planning::readRankNetwork(StringRef path) {
  return readFile(path, parseRankNetwork);
}
