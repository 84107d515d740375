//===- memopt-plan.cpp - the planning solvers on plain files -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Exit codes: 0 done; 1 bad input or usage; 2 no plan meets the budget or capacity; 3 the
// environment.
//
//===----------------------------------------------------------------------===//

#include "ArenaFile.h"
#include "Arguments.h"
#include "RankReport.h"

#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Planning/Problem/PlanFile.h"
#include "options/OptionTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace memopt::planning;
using llvm::StringRef;
using llvm::Twine;

static int usageError(const Twine &message) {
  llvm::errs() << "memopt-plan: " << message << "; see memopt-plan --help\n";
  return 1;
}

static int inputError(llvm::Error error) {
  llvm::errs() << "memopt-plan: error: " << llvm::toString(std::move(error)) << '\n';
  return 1;
}

/// Bytes with an optional unit, or a share of `whole` if that is not negative. What is wrong with
/// it, or nothing.
static std::string parseBytes(StringRef text, int64_t whole, int64_t &bytes) {
  if (whole < 0 || !text.consume_back("%"))
    return memopt::options::parseBytes(text.str(), bytes);
  double percent = 0;
  if (text.getAsDouble(percent) || !(percent >= 0) || percent > 1e6)
    return "expected bytes (1048576, 64MiB) or a share (70%), found '" + text.str() + "%'";
  double share = double(whole) * percent / 100;
  bytes = share >= 0x1p62 ? int64_t(1) << 62 : int64_t(share);
  return "";
}

static double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

static double percentAbove(int64_t value, int64_t base) {
  return base ? 100 * (double(value) / double(base) - 1) : 0;
}

/// Budgets of spaces beyond the first, as NAME:BYTES.
static std::string takeOtherBudgets(const Arguments &arguments, PlanProblem &problem) {
  for (StringRef text : arguments.otherBudgets) {
    auto [name, bytes] = text.split(':');
    auto space = llvm::find_if(
        problem.spaces, [&, name = name](const PlanSpace &each) { return each.name == name; });
    if (space == problem.spaces.end() || space == problem.spaces.begin())
      return ("--budget is \"" + text + "\", expected the name of a space beyond the first").str();
    if (std::string wrong = parseBytes(bytes, /*whole=*/-1, space->budget); !wrong.empty())
      return ("--budget=" + text + ": " + wrong).str();
  }
  return "";
}

/// Of space 1, 2, ..., each with its name.
static void printOtherPeaks(const PlanProblem &problem, const std::vector<int64_t> &peaks) {
  for (size_t i = 0; i < peaks.size(); ++i)
    llvm::outs() << "peak of " << problem.spaces[i + 1].name << " " << peaks[i] << " bytes\n";
}

static void printFates(const PlanFile &file, llvm::ArrayRef<int32_t> order) {
  int64_t recomputed = 0, fetched = 0, swapped = 0;
  for (const PlanFate &fate : getPlanFates(file.problem, order)) {
    recomputed += fate.recomputed > 0;
    fetched += fate.fetched > 0;
    swapped += fate.swapped > 0;
  }
  if (file.version > 1)
    llvm::outs() << "values recomputed " << recomputed << ", fetched " << fetched << ", swapped "
                 << swapped << "\n";
}

static void printBinding(const PlanProblem &problem, const PlanSolution &solution) {
  llvm::outs() << "alive at the peak, while op " << solution.bindingOp << " runs:";
  for (PlanValue value : llvm::ArrayRef(solution.binding).take_front(8))
    llvm::outs() << " op " << value.op << " (" << problem.ops[value.op].results[value.result].bytes
                 << ")";
  llvm::outs() << "\n";
}

static int runRemat(const Arguments &arguments) {
  auto start = std::chrono::steady_clock::now();
  llvm::Expected<PlanFile> file = readPlanFile(arguments.input);
  if (!file)
    return inputError(file.takeError());
  PlanProblem &problem = file->problem;
  if (std::string message = takeOtherBudgets(arguments, problem); !message.empty())
    return usageError(message);
  llvm::Expected<PlanMeasure> base = measurePlan(problem, getGivenOrder(problem));
  if (!base)
    return inputError(base.takeError());
  PlanOptions options;
  if (std::string wrong = parseBytes(arguments.budget, base->peak, options.budget); !wrong.empty())
    return usageError("--budget: " + wrong);
  options.iterations = arguments.iterations;
  options.seed = arguments.seed;
  options.threads = arguments.threads;
  options.keepOrder = arguments.keepOrder;
  options.recompute = !arguments.noRecompute;
  options.transfer = !arguments.noTransfer;
  llvm::Expected<PlanSolution> solution = solvePlan(problem, options);
  if (!solution)
    return inputError(solution.takeError());
  if (llvm::Error error = verifyPlan(problem, options, *solution))
    return inputError(std::move(error));
  llvm::outs() << "peak " << solution->peak << " bytes ("
               << llvm::format("%.2f", 100 + percentAbove(solution->peak, base->peak))
               << "% of the given order's), lower bound " << solution->peakLowerBound << "\ncost "
               << solution->cost << " ("
               << llvm::format("%+.3f", percentAbove(solution->cost, base->cost))
               << "%), lower bound " << solution->costLowerBound << "\ninstances "
               << solution->order.size() << " of " << problem.ops.size() << " ops, by "
               << solution->method << "\n";
  printOtherPeaks(problem, solution->otherPeaks);
  printFates(*file, solution->order);
  llvm::outs() << "seconds " << llvm::format("%.2f", secondsSince(start)) << "\n";
  if (!solution->feasible) {
    printBinding(problem, *solution);
    llvm::errs() << "memopt-plan: " << arguments.input << ": no plan found within "
                 << options.budget << " bytes; the smallest peak found is " << solution->peak
                 << " and no plan is below " << solution->peakLowerBound
                 << "; raise --budget or --iterations\n";
    return 2;
  }
  if (!arguments.output.empty())
    if (llvm::Error error = writePlan(arguments.output, *file, options, *solution))
      return inputError(std::move(error));
  return 0;
}

static int runFrontier(const Arguments &arguments) {
  auto start = std::chrono::steady_clock::now();
  llvm::Expected<PlanFile> file = readPlanFile(arguments.input);
  if (!file)
    return inputError(file.takeError());
  PlanFrontierOptions options;
  options.iterations = arguments.iterations;
  options.seed = arguments.seed;
  options.threads = arguments.threads;
  llvm::Expected<PlanFrontier> frontier = solvePlanFrontier(file->problem, options);
  if (!frontier)
    return inputError(frontier.takeError());
  if (llvm::Error error = verifyPlanFrontier(file->problem, *frontier))
    return inputError(std::move(error));
  const PlanFrontier::Point &last = frontier->points.back();
  llvm::outs() << "          peak        %          cost       +%  instances";
  for (const PlanSpace &space : llvm::drop_begin(file->problem.spaces))
    llvm::outs() << llvm::format(" %14s", space.name.c_str());
  llvm::outs() << "\n";
  for (const PlanFrontier::Point &point : frontier->points) {
    llvm::outs() << llvm::format("%14lld %8.2f %13lld %8.3f %10zu", (long long)point.peak,
                                 100 + percentAbove(point.peak, last.peak), (long long)point.cost,
                                 percentAbove(point.cost, last.cost), point.order.size());
    for (int64_t peak : point.otherPeaks)
      llvm::outs() << llvm::format(" %14lld", (long long)peak);
    llvm::outs() << "\n";
  }
  llvm::outs() << "no plan has less than " << frontier->peakLowerBound << " bytes\nseconds "
               << llvm::format("%.2f", secondsSince(start)) << "\n";
  if (!arguments.output.empty())
    if (llvm::Error error = writePlanFrontier(arguments.output, *file, *frontier))
      return inputError(std::move(error));
  return 0;
}

static int runArena(const Arguments &arguments) {
  auto start = std::chrono::steady_clock::now();
  ArenaOptions options;
  if (!arguments.capacity.empty())
    if (std::string wrong = parseBytes(arguments.capacity, /*whole=*/-1, options.capacity);
        !wrong.empty())
      return usageError("--capacity: " + wrong);
  // A tool that is asked for nothing else may take some seconds.
  options.iterations = arguments.iterations >= 0 ? arguments.iterations : 120000000;
  options.seed = arguments.seed;
  llvm::Expected<ArenaFile> file = readArenaFile(arguments.input);
  if (!file)
    return inputError(file.takeError());
  llvm::Expected<ArenaSolution> solution = solveArena(file->problem, options);
  if (!solution)
    return inputError(solution.takeError());
  if (llvm::Error error = verifyArena(file->problem, *solution))
    return inputError(std::move(error));
  llvm::outs() << "height " << solution->height << " bytes, lower bound " << solution->lowerBound
               << " (+"
               << llvm::format("%.3f", percentAbove(solution->height, solution->lowerBound))
               << "%), by " << solution->method << "\nbuffers " << file->problem.buffers.size()
               << "\nseconds " << llvm::format("%.2f", secondsSince(start)) << "\n";
  if (options.capacity >= 0 && solution->height > options.capacity) {
    llvm::errs() << "memopt-plan: " << arguments.input << ": no layout found within "
                 << options.capacity << " bytes; the smallest found has " << solution->height
                 << " and none has less than " << solution->lowerBound
                 << "; raise --capacity or --iterations\n";
    return 2;
  }
  if (!arguments.output.empty())
    if (llvm::Error error = writeArenaLayout(arguments.output, *file, *solution))
      return inputError(std::move(error));
  return 0;
}

/// Of `ranks` and `sweep`.
static int runRanks(const char *program, const Arguments &arguments) {
  llvm::Expected<RankNetwork> network = readRankNetwork(arguments.network);
  if (!network)
    return inputError(network.takeError());
  for (int64_t ranks : arguments.sweep.ranks)
    if (std::optional<int64_t> group = network->findPartialGroup(ranks))
      return usageError("--ranks is " + Twine(ranks) + ", expected whole groups of " +
                        Twine(*group) + " ranks, as " + arguments.network + " says");
  if (arguments.command == "sweep") {
    RankSweepOptions sweep = arguments.sweep;
    sweep.compileOptions.push_back("--network=" + arguments.network); // it plans for the same
    return runRankSweep(program, sweep, *network);
  }
  llvm::Expected<RankStep> step = readRankStep(arguments.input);
  if (!step)
    return inputError(step.takeError());
  printRankReport(*step, *network, arguments.sweep.ranks.front());
  return 0;
}

int main(int argc, char **argv) {
  Arguments arguments;
  if (std::string message = parse({argv + 1, argv + argc}, arguments); !message.empty())
    return usageError(message);
  if (arguments.isHelp || arguments.isVersion) {
    llvm::outs() << (arguments.isHelp ? getTable().getHelp()
                                      : memopt::options::describeVersion("memopt-plan"));
    return 0;
  }
  if (arguments.command == "ranks" || arguments.command == "sweep")
    return runRanks(argv[0], arguments);
  if (arguments.command == "arena")
    return runArena(arguments);
  return arguments.command == "remat" ? runRemat(arguments) : runFrontier(arguments);
}
