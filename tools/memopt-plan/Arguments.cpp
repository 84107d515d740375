//===- Arguments.cpp - the command line of memopt-plan --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

using namespace memopt::planning;
using llvm::StringRef;
using memopt::options::OptionReader;

const memopt::options::OptionTable &getTable() {
  static const char all[] = "All commands", remat[] = "remat", both[] = "remat and frontier",
                    arena[] = "arena", ranks[] = "ranks and sweep", sweep[] = "sweep",
                    effort[] = "remat, frontier and arena";
  static const memopt::options::OptionTable table(
      "memopt-plan", "memopt-plan remat|frontier|arena|ranks|sweep INPUT [options]",
      "What to recompute, in which order to run, and where everything lies. "
      "remat PROBLEM.json: an order of the ops, in which ops may run again and values may be "
      "fetched, with the least cost among those that keep the bytes alive within the budget. "
      "frontier PROBLEM.json: the cheapest plans for all budgets at once, peak against cost, from "
      "the given order down to the smallest peak found; with stores, for shares of what can be "
      "stored. arena PROBLEM.csv: an offset for each buffer, so that those alive together share no "
      "byte and the arena is low. ranks PACKAGE: bytes, collectives and predicted step time of a "
      "package on N ranks, none of which is started. sweep MODEL: the same for each number of "
      "ranks, stage of ZeRO and number of micro-batches, each compiled; recommends the one with "
      "the most samples a second of those that fit.",
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
       {"--ranks",
        "N",
        "number of ranks, 1 to 4096; sweep takes several: 8,16,64",
        ranks,
        {"--nproc-per-node"}},
       {"--network", "FILE.json", "duration of messages inside a host, between hosts and so on",
        ranks},
       {"--device-memory", "BYTES", "bytes of each rank's device, as memopt-compile takes them",
        sweep},
       {"--samples", "N",
        "samples of a step, over all ranks (default: each rank takes the model's batch)", sweep},
       {"--stages", "N,...", "stages of ZeRO", sweep, {}, "0,1,2,3"},
       {"--micro-batches", "N,...", "micro-batches of each rank", sweep, {}, "1,2,4"},
       {"--option",
        "OPTION",
        "an option for memopt-compile, such as --option=--optimizer=adamw",
        sweep,
        {},
        "",
        /*isRepeatable=*/true},
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

/// Takes an integer from `least` to `most`; says what is wrong, or nothing.
static std::string takeNumber(const OptionReader::Item &item, StringRef text, int64_t least,
                              int64_t most, int64_t &number) {
  if (!text.getAsInteger(10, number) && number >= least && number <= most)
    return "";
  std::string range = most == INT64_MAX ? "an integer of at least " + std::to_string(least)
                                        : std::to_string(least) + " to " + std::to_string(most);
  return item.option->name + " is \"" + item.value + "\", expected " +
         (least == INT64_MIN ? "an integer" : range);
}

/// Takes integers with commas between them.
static std::string takeNumbers(const OptionReader::Item &item, int64_t least, int64_t most,
                               std::vector<int64_t> &numbers) {
  llvm::SmallVector<StringRef> texts;
  StringRef(item.value).split(texts, ',');
  numbers.assign(texts.size(), 0);
  for (auto [text, number] : llvm::zip_equal(texts, numbers))
    if (std::string wrong = takeNumber(item, text, least, most, number); !wrong.empty())
      return wrong;
  return "";
}

/// Takes an option; says what is wrong, or nothing.
static std::string take(const OptionReader::Item &item, Arguments &arguments) {
  const std::string &name = item.option->name;
  RankSweepOptions &sweep = arguments.sweep;
  if (name == "--ranks")
    return takeNumbers(item, 1, mostModeledRanks, sweep.ranks);
  if (name == "--stages")
    return takeNumbers(item, 0, 3, sweep.stages);
  if (name == "--micro-batches")
    return takeNumbers(item, 1, INT64_MAX, sweep.microBatches);
  if (name == "--samples")
    return takeNumber(item, item.value, 1, INT64_MAX, sweep.samples);
  if (name == "--iterations")
    return takeNumber(item, item.value, 0, INT64_MAX, arguments.iterations);
  if (name == "--seed")
    return takeNumber(item, item.value, INT64_MIN, INT64_MAX, arguments.seed);
  if (name == "--threads")
    return takeNumber(item, item.value, 1, 1024, arguments.threads);
  if (name == "--option") {
    sweep.compileOptions.push_back(item.value);
    return "";
  }
  if (name == "--budget" && StringRef(item.value).contains(':')) {
    arguments.otherBudgets.push_back(item.value);
    return "";
  }
  if (name == "--budget" && !arguments.budget.empty())
    return "--budget is given twice, as " + arguments.budget + " and as " + item.value;
  if (!item.option->takesValue())
    (name == "--keep-order"    ? arguments.keepOrder
     : name == "--help"        ? arguments.isHelp
     : name == "--version"     ? arguments.isVersion
     : name == "--no-transfer" ? arguments.noTransfer
                               : arguments.noRecompute) = true;
  else
    (name == "--budget"          ? arguments.budget
     : name == "--capacity"      ? arguments.capacity
     : name == "--network"       ? arguments.network
     : name == "--device-memory" ? sweep.deviceMemory
                                 : arguments.output) = item.value;
  return "";
}

/// What is missing or does not go together; or nothing.
static std::string check(const Arguments &arguments) {
  const RankSweepOptions &sweep = arguments.sweep;
  if (arguments.command == "remat")
    return arguments.budget.empty() ? "remat needs --budget=BYTES or --budget=N%" : "";
  if (arguments.command == "arena" || arguments.command == "frontier")
    return "";
  if (sweep.ranks.empty() || arguments.network.empty())
    return arguments.command + " needs --ranks=N and --network=FILE.json";
  if (arguments.command == "ranks")
    return sweep.ranks.size() == 1 ? "" : "ranks takes one number of --ranks; sweep takes several";
  for (int64_t ranks : sweep.ranks)
    if (sweep.samples % ranks)
      return "--samples is " + std::to_string(sweep.samples) + ", expected a multiple of " +
             std::to_string(ranks) + " ranks";
  return "";
}

std::string parse(std::vector<std::string> words, Arguments &arguments) {
  static constexpr StringRef commands[] = {"remat", "frontier", "arena", "ranks", "sweep"};
  static const char expected[] = "expected remat, frontier, arena, ranks or sweep";
  std::vector<std::string> places;
  std::vector<const memopt::options::Option *> given;
  for (OptionReader reader(getTable(), std::move(words)); !reader.isAtEnd();) {
    OptionReader::Item item = reader.next();
    std::string wrong = item.message;
    if (item.kind == OptionReader::Kind::Place) {
      places.push_back(item.text);
    } else if (item.kind == OptionReader::Kind::Unknown) {
      wrong = "option '" + memopt::options::getName(item.text) + "' is unknown" +
              getTable().suggest(memopt::options::getName(item.text));
    } else if (item.kind == OptionReader::Kind::Given) {
      given.push_back(item.option);
      wrong = take(item, arguments);
    }
    if (!wrong.empty())
      return wrong;
  }
  if (arguments.isHelp || arguments.isVersion)
    return "";
  if (places.empty())
    return expected;
  arguments.command = places[0];
  if (!llvm::is_contained(commands, arguments.command))
    return "unknown command \"" + arguments.command + "\", " + expected;
  if (places.size() != 2)
    return arguments.command == "ranks"   ? "expected one package"
           : arguments.command == "sweep" ? "expected one model"
                                          : "expected one problem file";
  arguments.input = arguments.sweep.model = places[1];
  for (const memopt::options::Option *option : given)
    if (!StringRef(option->group).contains(arguments.command))
      return option->name + " belongs to " + option->group;
  return check(arguments);
}
