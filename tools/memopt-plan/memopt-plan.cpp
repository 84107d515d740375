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
#include "options/OptionTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace memopt::planning;
using llvm::StringRef;
using llvm::Twine;
using memopt::options::OptionReader;

static const memopt::options::OptionTable &getTable() {
  static const char all[] = "All commands", remat[] = "remat", both[] = "remat and frontier",
                    arena[] = "arena", ranks[] = "ranks", effort[] = "All but ranks";
  static const memopt::options::OptionTable table(
      "memopt-plan", "memopt-plan remat|frontier|arena|ranks INPUT [options]",
      "What to recompute, in which order to run, and where everything lies. "
      "remat PROBLEM.json: an order of the ops, in which ops may run again and values may be "
      "fetched, with the least cost among those that keep the bytes alive within the budget. "
      "frontier PROBLEM.json: the cheapest plans for all budgets at once, peak against cost, from "
      "the given order down to the smallest peak found; with stores, for shares of what can be "
      "stored. arena PROBLEM.csv: an offset for each buffer, so that those alive together share no "
      "byte and the arena is low. ranks PACKAGE: bytes, collectives and predicted step time of a "
      "package on N ranks, none of which is started.",
      {{"--budget",
        "BYTES|N%|NAME:BYTES",
        "the budget of the first space, in bytes or as a share of the peak of the given order; "
        "NAME:BYTES: that of another space, instead of the one in the file",
        remat,
        {},
        "",
        /*isRepeatable=*/true},
       {"--keep-order", "", "first runs stay in the given order", remat},
       {"--no-recompute", "", "every op runs once", remat},
       {"--no-transfer", "", "nothing is stored or fetched", remat},
       {"--threads",
        "N",
        "threads for the search; the answer does not depend on it",
        both,
        {},
        "1"},
       {"--capacity", "BYTES", "good enough; without it the search goes for the lower bound",
        arena},
       {"--ranks", "N", "number of ranks, 1 to 4096", ranks, {"--nproc-per-node"}},
       {"--network", "FILE.json", "duration of messages inside a host and between hosts", ranks},
       {"-o", "FILE", "file for the answer; without it only the figures are printed", effort},
       {"--iterations", "N", "effort, in moves of the search (default: by the size of the problem)",
        effort},
       {"--seed",
        "N",
        "seed of the search; the same input, options and seed give the same answer",
        effort,
        {},
        "1"},
       {"--version", "", "the version of memopt", all},
       {"--help", "", "this text", all, {"-h"}}},
      "docs/Planning.md has the file formats. Exit codes: 0 done; 1 bad input or usage; 2 nothing "
      "found within the budget or capacity; 3 the machine lacks something.");
  return table;
}

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
  std::string command, input, output, budget, capacity, network;
  int64_t iterations = -1, seed = 1, threads = 1, ranks = 0;
  bool keepOrder = false, noRecompute = false, noTransfer = false;
  bool isHelp = false, isVersion = false;
  std::vector<std::string> otherBudgets; ///< NAME:BYTES
};

} // namespace

/// What goes with `ranks`; says what is wrong, or nothing.
static std::string checkRanks(const Arguments &arguments) {
  Arguments initial;
  if (!arguments.ranks || arguments.network.empty())
    return "ranks needs --ranks=N and --network=FILE.json";
  if (!arguments.output.empty() || !arguments.budget.empty() || !arguments.capacity.empty() ||
      !arguments.otherBudgets.empty() || arguments.keepOrder || arguments.noRecompute ||
      arguments.noTransfer || arguments.iterations != initial.iterations ||
      arguments.seed != initial.seed || arguments.threads != initial.threads)
    return "ranks takes --ranks and --network alone";
  return "";
}

/// Takes an integer from `least` to `most`; says what is wrong, or nothing.
static std::string takeNumber(const OptionReader::Item &item, int64_t least, int64_t most,
                              int64_t &number) {
  if (!StringRef(item.value).getAsInteger(10, number) && number >= least && number <= most)
    return "";
  std::string range = most == INT64_MAX ? "an integer of at least " + std::to_string(least)
                                        : std::to_string(least) + " to " + std::to_string(most);
  return item.option->name + " is \"" + item.value + "\", expected " +
         (least == INT64_MIN ? "an integer" : range);
}

/// Takes an option; says what is wrong, or nothing.
static std::string take(const OptionReader::Item &item, Arguments &arguments) {
  const std::string &name = item.option->name;
  if (name == "--ranks")
    return takeNumber(item, 1, mostModeledRanks, arguments.ranks);
  if (name == "--iterations")
    return takeNumber(item, 0, INT64_MAX, arguments.iterations);
  if (name == "--seed")
    return takeNumber(item, INT64_MIN, INT64_MAX, arguments.seed);
  if (name == "--threads")
    return takeNumber(item, 1, 1024, arguments.threads);
  if (name == "--budget" && StringRef(item.value).contains(':')) {
    arguments.otherBudgets.push_back(item.value);
    return "";
  }
  if (name == "--budget" && !arguments.budget.empty())
    return "--budget is given twice, as " + arguments.budget + " and as " + item.value;
  bool isFlag = !item.option->takesValue();
  if (isFlag)
    (name == "--keep-order"    ? arguments.keepOrder
     : name == "--help"        ? arguments.isHelp
     : name == "--version"     ? arguments.isVersion
     : name == "--no-transfer" ? arguments.noTransfer
                               : arguments.noRecompute) = true;
  else
    (name == "--budget"     ? arguments.budget
     : name == "--capacity" ? arguments.capacity
     : name == "--network"  ? arguments.network
                            : arguments.output) = item.value;
  return "";
}

/// Parses the words after the program's name; says what is wrong, or nothing.
static std::string parse(std::vector<std::string> words, Arguments &arguments) {
  std::vector<std::string> places;
  for (OptionReader reader(getTable(), std::move(words)); !reader.isAtEnd();) {
    OptionReader::Item item = reader.next();
    std::string wrong = item.message;
    if (item.kind == OptionReader::Kind::Place)
      places.push_back(item.text);
    else if (item.kind == OptionReader::Kind::Unknown)
      wrong = "option '" + memopt::options::getName(item.text) + "' is unknown" +
              getTable().suggest(memopt::options::getName(item.text));
    else if (item.kind == OptionReader::Kind::Given)
      wrong = take(item, arguments);
    if (!wrong.empty())
      return wrong;
  }
  if (arguments.isHelp || arguments.isVersion)
    return "";
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
    return "unknown command \"" + arguments.command +
           "\", expected remat, frontier, arena or ranks";
  if (arguments.ranks || !arguments.network.empty())
    return "--ranks and --network belong to ranks";
  if (!arena && !arguments.capacity.empty())
    return "--capacity belongs to arena; remat has --budget";
  if (!remat && (!arguments.budget.empty() || !arguments.otherBudgets.empty() ||
                 arguments.keepOrder || arguments.noRecompute || arguments.noTransfer))
    return "--budget, --keep-order, --no-recompute and --no-transfer belong to remat";
  if (remat && arguments.budget.empty())
    return "remat needs --budget=BYTES or --budget=N%";
  return "";
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
  Arguments arguments;
  if (std::string message = parse({argv + 1, argv + argc}, arguments); !message.empty())
    return usageError(message);
  if (arguments.isHelp || arguments.isVersion) {
    llvm::outs() << (arguments.isHelp ? getTable().getHelp()
                                      : memopt::options::describeVersion("memopt-plan"));
    return 0;
  }
  if (arguments.command == "ranks")
    return runRanks(arguments);
  if (arguments.command == "arena")
    return runArena(arguments);
  return arguments.command == "remat" ? runRemat(arguments) : runFrontier(arguments);
}
