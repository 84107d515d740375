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
#include "RankReport.h"

#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Planning/Problem/PlanFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace memopt::planning;
using llvm::StringRef;
using llvm::Twine;

static const char *const usage =
    R"(memopt-plan - what to recompute, in which order to run, and where everything lies

usage:
  memopt-plan remat PROBLEM.json --budget=BYTES|N% -o PLAN.json [options]
  memopt-plan frontier PROBLEM.json [-o FRONTIER.json] [options]
  memopt-plan arena PROBLEM.csv [--capacity=BYTES] -o LAYOUT.csv [options]
  memopt-plan ranks PACKAGE --ranks=N --network=FILE.json

remat: an order of the ops, in which ops may run again and values may be fetched, with the least cost among
those that keep the bytes alive within the budget (N%: a share of the peak of the given order).
  --budget=BYTES|N%  the budget of the first space; with KiB, MiB or GiB if you like
  --budget=NAME:BYTES  that of another space, instead of the one in the file
  --keep-order       first runs stay in the given order
  --no-recompute     every op runs once
  --no-transfer      nothing is stored or fetched
  --threads=N        threads for the search; the answer does not depend on it (default 1)

frontier: the cheapest plans for all budgets at once, peak against cost, from the given order down to the
smallest peak found; with stores, for shares of what can be stored. Takes --threads too.

arena: an offset for each buffer, so that those alive together share no byte and the arena is low.
  --capacity=BYTES   good enough; without it the search goes for the lower bound

ranks: bytes, collectives and predicted step time of a package on N ranks (1 to 4096), none of which is started.
  --network=FILE.json  what a message takes inside a host, and between hosts

all but ranks:
  -o FILE            where the answer goes; without it only the figures are printed
  --iterations=N     effort, in moves of the search (default: by the size of the problem)
  --seed=N           of the search (default 1); same input, options and seed, same answer
  --help             this text

File formats stand in docs/Planning.md. Exit codes: 0 done, 1 bad input or usage, 2 nothing found within the
budget or capacity.
)";

static int usageError(const Twine &message) {
  llvm::errs() << "memopt-plan: " << message << "; see memopt-plan --help\n";
  return 1;
}

static int inputError(llvm::Error error) {
  llvm::errs() << "memopt-plan: error: " << llvm::toString(std::move(error)) << '\n';
  return 1;
}

namespace {

struct Arguments {
  StringRef command, input, output, budget, capacity, network;
  int64_t iterations = -1, seed = 1, threads = 1, ranks = 0;
  bool keepOrder = false, recompute = true, transfer = true;
  std::vector<StringRef> otherBudgets; ///< NAME:BYTES
};

} // namespace

/// Fills `value` from "--name=value", or from "--name value", stepping over the second word.
static bool takeValue(llvm::ArrayRef<const char *> words, size_t &at, StringRef name,
                      StringRef &value) {
  StringRef word = words[at];
  if (!word.consume_front(name))
    return false;
  if (word.consume_front("=")) {
    value = word;
    return true;
  }
  if (!word.empty() || at + 1 == words.size())
    return false;
  value = words[++at];
  return true;
}

/// What goes with `ranks`; says what is wrong, or nothing.
static std::string checkRanks(const Arguments &arguments) {
  Arguments initial;
  if (!arguments.ranks || arguments.network.empty())
    return "ranks needs --ranks=N and --network=FILE.json";
  if (!arguments.output.empty() || !arguments.budget.empty() || !arguments.capacity.empty() ||
      !arguments.otherBudgets.empty() || arguments.keepOrder || !arguments.recompute ||
      !arguments.transfer || arguments.iterations != initial.iterations ||
      arguments.seed != initial.seed || arguments.threads != initial.threads)
    return "ranks takes --ranks and --network alone";
  return "";
}

/// Parses the words after the program's name; says what is wrong, or nothing.
static std::string parse(llvm::ArrayRef<const char *> words, Arguments &arguments) {
  std::vector<StringRef> places;
  for (size_t at = 0; at < words.size(); ++at) {
    StringRef word = words[at], number, budget;
    if (!word.starts_with("-")) {
      places.push_back(word);
      continue;
    }
    if (word == "--keep-order") {
      arguments.keepOrder = true;
    } else if (word == "--no-recompute") {
      arguments.recompute = false;
    } else if (word == "--no-transfer") {
      arguments.transfer = false;
    } else if (takeValue(words, at, "--budget", budget)) {
      if (budget.contains(':'))
        arguments.otherBudgets.push_back(budget);
      else
        arguments.budget = budget;
    } else if (takeValue(words, at, "-o", arguments.output) ||
               takeValue(words, at, "--capacity", arguments.capacity) ||
               takeValue(words, at, "--network", arguments.network)) {
      continue;
    } else if (takeValue(words, at, "--ranks", number)) {
      if (number.getAsInteger(10, arguments.ranks) || arguments.ranks < 1 ||
          arguments.ranks > mostModeledRanks)
        return ("--ranks is \"" + number + "\", expected 1 to " + Twine(mostModeledRanks)).str();
    } else if (takeValue(words, at, "--iterations", number)) {
      if (number.getAsInteger(10, arguments.iterations) || arguments.iterations < 0)
        return ("--iterations is \"" + number + "\", expected an integer of at least 0").str();
    } else if (takeValue(words, at, "--seed", number)) {
      if (number.getAsInteger(10, arguments.seed))
        return ("--seed is \"" + number + "\", expected an integer").str();
    } else if (takeValue(words, at, "--threads", number)) {
      if (number.getAsInteger(10, arguments.threads) || arguments.threads < 1 ||
          arguments.threads > 1024)
        return ("--threads is \"" + number + "\", expected 1 to 1024").str();
    } else {
      return ("unknown option or missing value: " + word).str();
    }
  }
  if (places.empty())
    return "expected remat, frontier, arena or ranks";
  if (places.size() != 2)
    return places[0] == "ranks" ? "expected one package" : "expected one problem file";
  arguments.command = places[0];
  arguments.input = places[1];
  if (arguments.command == "ranks")
    return checkRanks(arguments);
  bool remat = arguments.command == "remat", arena = arguments.command == "arena";
  if (!remat && !arena && arguments.command != "frontier")
    return ("unknown command \"" + arguments.command +
            "\", expected remat, frontier, arena or ranks")
        .str();
  if (arguments.ranks || !arguments.network.empty())
    return "--ranks and --network belong to ranks";
  if (!arena && !arguments.capacity.empty())
    return "--capacity belongs to arena; remat has --budget";
  if (!remat && (!arguments.budget.empty() || !arguments.otherBudgets.empty() ||
                 arguments.keepOrder || !arguments.recompute || !arguments.transfer))
    return "--budget, --keep-order, --no-recompute and --no-transfer belong to remat";
  if (remat && arguments.budget.empty())
    return "remat needs --budget=BYTES or --budget=N%";
  return "";
}

/// Bytes with an optional unit, or a share of `whole` if that is not negative. Says false if
/// malformed.
static bool parseBytes(StringRef text, int64_t whole, int64_t &bytes) {
  if (whole >= 0 && text.consume_back("%")) {
    double percent = 0;
    if (text.getAsDouble(percent) || !(percent >= 0) || percent > 1e6)
      return false;
    double share = double(whole) * percent / 100;
    bytes = share >= 0x1p62 ? int64_t(1) << 62 : int64_t(share);
    return true;
  }
  int shift = 0;
  if (text.consume_back("KiB"))
    shift = 10;
  else if (text.consume_back("MiB"))
    shift = 20;
  else if (text.consume_back("GiB"))
    shift = 30;
  if (text.rtrim().getAsInteger(10, bytes) || bytes < 0 || bytes > (int64_t(1) << 62) >> shift)
    return false;
  bytes <<= shift;
  return true;
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
    if (!parseBytes(bytes, /*whole=*/-1, space->budget))
      return ("--budget is \"" + text + "\", expected bytes behind the name").str();
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
  if (!parseBytes(arguments.budget, base->peak, options.budget))
    return usageError("--budget is \"" + arguments.budget +
                      "\", expected bytes (1048576, 64MiB) or a share (70%)");
  options.iterations = arguments.iterations;
  options.seed = arguments.seed;
  options.threads = arguments.threads;
  options.keepOrder = arguments.keepOrder;
  options.recompute = arguments.recompute;
  options.transfer = arguments.transfer;
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
  if (!arguments.capacity.empty() &&
      !parseBytes(arguments.capacity, /*whole=*/-1, options.capacity))
    return usageError("--capacity is \"" + arguments.capacity + "\", expected bytes");
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

static int runRanks(const Arguments &arguments) {
  llvm::Expected<RankNetwork> network = readRankNetwork(arguments.network);
  if (!network)
    return inputError(network.takeError());
  if (arguments.ranks > network->ranksPerHost && arguments.ranks % network->ranksPerHost)
    return usageError("--ranks is " + Twine(arguments.ranks) + ", expected whole hosts of " +
                      Twine(network->ranksPerHost) + " ranks, as " + arguments.network + " says");
  llvm::Expected<RankStep> step = readRankStep(arguments.input);
  if (!step)
    return inputError(step.takeError());
  printRankReport(*step, *network, arguments.ranks);
  return 0;
}

int main(int argc, char **argv) {
  llvm::ArrayRef<const char *> words(const_cast<const char **>(argv) + 1, argc - 1);
  if (llvm::any_of(words, [](StringRef word) { return word == "--help" || word == "-h"; })) {
    llvm::outs() << usage;
    return 0;
  }
  Arguments arguments;
  if (std::string message = parse(words, arguments); !message.empty())
    return usageError(message);
  if (arguments.command == "ranks")
    return runRanks(arguments);
  if (arguments.command == "arena")
    return runArena(arguments);
  return arguments.command == "remat" ? runRemat(arguments) : runFrontier(arguments);
}
