//===- RankSweep.cpp - ways to train on a cluster, side by side -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankSweep.h"

#include "memopt/Planning/Ranks/RankFile.h"
#include "memopt/Support/SiblingTool.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>

using namespace memopt::planning;
using llvm::StringRef;

namespace {
struct Way {
  int64_t ranks, stage, microBatches;
};

struct Result {
  Way way;
  int64_t bytes = 0;
  double samplesPerSecond = 0;
};

class RankSweep {
public:
  RankSweep(const memopt::SiblingTool &compiler, const RankSweepOptions &options,
            const RankNetwork &network)
      : compiler(compiler), options(options), network(network) {}

  int run() {
    llvm::outs() << llvm::format("%6s %6s %14s %18s %12s %12s %14s\n", "ranks", "stage",
                                 "micro-batches", "bytes on each rank", "step s", "exposed s",
                                 "samples a s");
    for (int64_t ranks : options.ranks)
      for (int64_t stage : options.stages)
        if (ranks > 1 || stage == 0) // one rank has nothing to share out
          for (int64_t microBatches : options.microBatches)
            tryWay({ranks, stage, microBatches});
    return recommend();
  }

private:
  void tryWay(const Way &way) {
    llvm::outs() << llvm::format("%6lld %6lld %14lld ", (long long)way.ranks, (long long)way.stage,
                                 (long long)way.microBatches);
    llvm::outs().flush();
    memopt::SiblingTool::Outcome outcome = compiler.run(getCommand(way));
    if (outcome.code != 0)
      return printReason(outcome.reason);
    llvm::Expected<RankStep> step = readRankStep(compiler.pathOf("step.memopt"));
    if (!step)
      return printReason(llvm::toString(step.takeError()));
    measure(way, *step);
  }

  std::vector<std::string> getCommand(const Way &way) const {
    std::vector<std::string> command = {options.model,
                                        "--ranks=" + std::to_string(way.ranks),
                                        "--zero-stage=" + std::to_string(way.stage),
                                        "--micro-batches=" + std::to_string(way.microBatches),
                                        "--quiet",
                                        "-o",
                                        compiler.pathOf("step.memopt")};
    if (options.samples)
      command.push_back("--batch=" + std::to_string(options.samples / way.ranks));
    if (!options.deviceMemory.empty())
      command.push_back("--device-memory=" + options.deviceMemory);
    llvm::append_range(command, options.compileOptions);
    return command;
  }

  /// Why there is no step, without the names that stand in front of it.
  static void printReason(StringRef reason) {
    for (StringRef mark : {"smallest budget that would do is ", "error: "})
      if (size_t at = reason.find(mark); at != StringRef::npos) {
        bool isBudget = mark.starts_with("smallest");
        StringRef rest = reason.drop_front(at + mark.size());
        llvm::outs()
            << (isBudget ? "does not fit: needs " +
                               rest.take_until([](char c) { return c < '0' || c > '9'; }).str() +
                               " bytes"
                         : rest.str())
            << "\n";
        return;
      }
    llvm::outs() << reason << "\n";
  }

  void measure(const Way &way, const RankStep &step) {
    RankStepTime time = simulateRanks(step.ops, network, way.ranks, asCompiled);
    Result result{way};
    for (const auto &[space, bytes] : step.peaks)
      if (space == "device")
        result.bytes = bytes;
    result.samplesPerSecond = double(std::max<int64_t>(step.samples, 1)) * double(way.ranks) /
                              std::max(time.total, 1e-12);
    llvm::outs() << llvm::format("%18lld %12.6f %12.6f %14.1f\n", (long long)result.bytes,
                                 time.total, time.getExposed(), result.samplesPerSecond);
    results.push_back(result);
  }

  int recommend() const {
    if (results.empty()) {
      llvm::errs() << "memopt-plan: no way of these fits; more ranks, a higher stage or more "
                      "micro-batches need fewer bytes\n";
      return 2;
    }
    constexpr double alike = 0.99; // predictions are no better
    double most = 0;
    for (const Result &result : results)
      most = std::max(most, result.samplesPerSecond);
    const Result *best = nullptr;
    for (const Result &result : results)
      if (result.samplesPerSecond >= alike * most && (!best || result.bytes < best->bytes))
        best = &result;
    llvm::outs() << "recommended: --ranks=" << best->way.ranks
                 << " --zero-stage=" << best->way.stage
                 << " --micro-batches=" << best->way.microBatches << ", "
                 << llvm::format("%.1f", best->samplesPerSecond) << " samples a second with "
                 << best->bytes << " bytes on each rank\n";
    return 0;
  }

  const memopt::SiblingTool &compiler;
  const RankSweepOptions &options;
  const RankNetwork &network;
  std::vector<Result> results;
};
} // namespace

int runRankSweep(const char *program, const RankSweepOptions &options, const RankNetwork &network) {
  llvm::Expected<memopt::SiblingTool> compiler =
      memopt::SiblingTool::find(program, "memopt-compile");
  if (!compiler) {
    llvm::errs() << "memopt-plan: error: " << llvm::toString(compiler.takeError()) << "\n";
    return 3;
  }
  return RankSweep(*compiler, options, network).run();
}
