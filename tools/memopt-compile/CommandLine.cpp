//===- CommandLine.cpp - options and their values -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"

#include "memopt/Transforms/Optimizers/Optimizers.h"
#include "options/OptionTable.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace memopt::tool;
using namespace memopt::options;

static constexpr OptionRow kModelAndPackage[] = {
    {"o", "FOLDER", "", "package to write (default: the input's name with .memopt)"},
    {"programs", "FILE.json", "",
     "several programs over one state: a list {\"programs\": [{\"name\", \"model\", "
     "\"options\", \"optimizer\"}]}; the options of a program are added after these"},
    {"state", "PACKAGE", "",
     "compile one more program over the state of a package with several programs"},
    {"dim", "NAME=N,N,...", "",
     "sizes of a symbolic dimension of the model: one program for each size, or for each "
     "combination of several dimensions"},
    {"mode", "train|eval", "train", "a training step, or the forward pass only"},
    {"loss", "NAME|INDEX", "",
     "which output is the loss (default: the first floating-point scalar)"},
    {"target", "cpu|cuda", "cpu", "what to generate code for"},
    {"target-features", "PROCESSOR|DEVICE|FILE.json", "",
     "processor to compile for (default: this machine's), or, with --target=cuda, a device such as "
     "a100, h100 or rtx4090 (docs/Cuda.md has them all), or a file that describes one"},
    {"emit", "STAGE", "package", "graph, joint, kernels, planned, llvm, ptx or package"},
    {"deepspeed-config", "FILE.json", "",
     "options by DeepSpeed's names: batch sizes, stage, offload, optimizer, clipping, precision",
     "deepspeed"},
};

static constexpr OptionRow kBatches[] = {
    {"batch", "N|max", "0",
     "compile for another batch size than the exported one; max: the largest that fits "
     "--device-memory",
     "batch-size,per-device-train-batch-size,train-micro-batch-size-per-gpu"},
    {"accumulative-counts", "K", "1", "one update for every K batches",
     "gradient-accumulation-steps"},
    {"micro-batches", "K", "1",
     "cut the batch into K parts inside the step: the same update, less memory"},
    {"accumulate-dtype", "fp32|bf16", "fp32", "type of gradient accumulators"},
};

static constexpr OptionRow kMemory[] = {
    {"device-memory", "BYTES", "", "size limit of the device arena: N, NKiB, NMiB, NGiB, NTiB",
     "memory"},
    {"host-memory", "BYTES", "",
     "size limit of the host arena; with --device-memory the compiler chooses what lies there"},
    {"disk", "DIR:BYTES", "",
     "folder and size limit for values on disk; with --device-memory the compiler chooses them"},
    {"auto", "TECHNIQUE,...", "recompute",
     "what the compiler may choose to meet --device-memory: recompute, accumulate (micro-batches), "
     "precision (bf16), batch (fewer samples), offload (to the host; a default with "
     "--host-memory), tile (wide layers in parts of their tokens)"},
    {"activation-checkpointing", "MODULE,...", "",
     "recompute inside these modules, by hand: names or globs, or segments:N", "recompute"},
    {"tile", "MODULE,...:N|off", "",
     "process the tokens of these modules in N parts: names or globs, head for every loss head, "
     "or all for every wide layer beside; off: never in parts. Bits are the same for all N"},
    {"offload-optimizer", "none|cpu|nvme", "none",
     "where optimizer state lies: on the device; on the host, together with the parameters, and "
     "updated there; or on disk, and updated on the host"},
    {"offload-param", "none|cpu|nvme", "none",
     "where parameters lie: on the device, or on the host or disk and sent to the device for "
     "each pass"},
    {"offload-activation", "none|cpu|nvme", "none",
     "where activations wait for the backward pass: on the device, or on the host or disk and "
     "sent back when needed"},
};

static constexpr OptionRow kTraining[] = {
    {"max-grad-norm", "X", "0",
     "clip gradients to this global norm, and report the norm; inf: only report it; 0: neither"},
    {"dropout", "on|off", "on", "off: dropout is the identity"},
    {"c-sources", "on|off", "off",
     "on: operators that the model brings as C source are compiled into the program, which then "
     "runs this code"},
    {"efficient-conv-bn-eval", "MODULE,...|all", "",
     "fuse convolutions and batch norms that use running statistics in these modules: names or "
     "globs"},
};

static constexpr OptionRow kPrecision[] = {
    {"precision", "f32|bf16|fp16", "f32",
     "type of products and of what is kept for the backward pass; parameters and sums stay f32"},
    {"matmul-precision", "highest|high|medium", "highest",
     "with --target=cuda: matrix products of f32 are computed in f32, TF32 or bf16"},
    {"conv-precision", "highest|high", "high",
     "with --target=cuda: convolutions of f32 are computed in f32 or TF32"},
    {"frozen-weights", "f32|bf16|int8|nf4", "f32",
     "form of parameters that no optimizer updates: bf16, or codes with a scale for each block "
     "of 64 elements"},
    {"frozen-scales", "f32|int8", "f32", "type of the scales of --frozen-weights=nf4"},
    {"activation-dtype", "f32|bf16|int8|fp8", "f32",
     "type of activations while they wait for the backward pass; with --device-memory the "
     "compiler decides whether to use it"},
    {"master-weights", "fp32|none", "fp32",
     "none, with --precision=bf16: parameters are bf16, and updates are rounded at random"},
    {"loss-scale", "dynamic|X", "dynamic", "with --precision=fp16: factor on the loss"},
    {"init-scale", "X", "65536", "initial value of a dynamic scale"},
    {"growth-factor", "X", "2",
     "factor on a dynamic scale after growth-interval steps without overflow"},
    {"backoff-factor", "X", "0.5", "factor on a dynamic scale after an overflow"},
    {"growth-interval", "N", "2000", "steps without overflow before a dynamic scale grows"},
};

static constexpr OptionRow kRanks[] = {
    {"ranks", "N", "1", "processes that run the step together, each on batches of its own",
     "nproc-per-node"},
    {"zero-stage", "0|1|2|3", "0",
     "what is sharded over ranks: nothing, optimizer state (1), gradients too (2), parameters too "
     "(3)"},
    {"sync-batch-norm", "", "", "batch norms use the statistics of the samples of all ranks"},
    {"reduce", "ranks|nccl", "ranks",
     "with --target=cuda: who adds over ranks, kernels in the order of the ranks or NCCL in an "
     "order of its own"},
    {"overlap-collectives", "on|off", "on",
     "send between ranks beside computation, or in turn with it"},
    {"network", "FILE.json", "",
     "what connects the ranks, as memopt-plan reads it: collectives are planned and predicted by "
     "its latencies and rates (default: a GPU's link, else as copies in memory)"},
};

static constexpr OptionRow kOutput[] = {
    {"estimate", "", "",
     "print model state and activations by module instead of planning; --report writes them for "
     "programs"},
    {"frontier", "N", "0",
     "print step time against bytes at N budgets instead of writing a package"},
    {"frontier-output", "NAME", "", "write the frontier to NAME.json and NAME.svg too"},
    {"report", "FILE.json", "", "write the plan as JSON"},
    {"html", "FILE.html", "",
     "write the plan as a page for browsers: memory over the step, the arena, time; with "
     "--frontier also the curve"},
    {"explain", "[techniques]", "",
     "print the plan in words; with =techniques also what each technique by itself saves or "
     "would save"},
    {"time-report", "", "", "print the seconds of each stage, by wall and by processor"},
    {"quiet", "", "", "show neither the current stage nor the final line"},
    {"version", "", "", "the version of memopt"},
    {"help", "", "", "print this", "h"},
};

static constexpr OptionRow kMachineAndCompiler[] = {
    {"machine-profile", "FILE.json", "",
     "rates of the machine to plan for (default: $MEMOPT_MACHINE_PROFILE, or the shipped profile)"},
    {"calibrate", "[FILE.json]", "",
     "measure this machine and write its profile, or with --target=cuda measure its GPU and write "
     "its description, instead of compiling a model"},
    {"cache", "DIR", "",
     "reuse plans and code from earlier compilations in this folder, and store new ones there"},
    {"instrument", "on|off", "on",
     "report each instruction while it runs; timelines, saved gradients and the search for the "
     "origin of a NaN need this"},
    {"reference", "", "", "use plain loops instead of libraries, to check the libraries"},
    {"threads", "N", "0",
     "compiler threads (default: this machine's); the result does not depend on it"},
    {"run-threads", "N", "0",
     "threads that library calls are planned for (default: this machine's)"},
};

namespace {
/// Options that stand together in --help.
struct OptionGroup {
  const char *name;
  llvm::ArrayRef<OptionRow> rows;
};
} // namespace

static const OptionGroup kGroups[] = {
    {"Model and package", kModelAndPackage},
    {"Batches", kBatches},
    {"Memory", kMemory},
    {"Training", kTraining},
    {"Precision", kPrecision},
    {"Ranks", kRanks},
    {"Output", kOutput},
    {"Machine and compiler", kMachineAndCompiler},
};

/// Those of optimizers, whose descriptors know them.
static const std::vector<mlir::memopt::OptimizerOptionRow> &getRowsOfOptimizers() {
  static const std::vector<mlir::memopt::OptimizerOptionRow> rows =
      mlir::memopt::OptimizerPlan::getOptionRows();
  return rows;
}

llvm::ArrayRef<OptionRow> memopt::tool::getOptions() {
  static const std::vector<OptionRow> all = [] {
    std::vector<OptionRow> rows;
    for (const OptionGroup &group : kGroups)
      rows.insert(rows.end(), group.rows.begin(), group.rows.end());
    for (const mlir::memopt::OptimizerOptionRow &row : getRowsOfOptimizers())
      rows.push_back({row.name, row.metavariable, row.initial, row.help, "",
                      /*isOfOptimizer=*/true});
    return rows;
  }();
  return all;
}

const OptionRow *memopt::tool::findOption(llvm::StringRef name) {
  const OptionRow *row =
      llvm::find_if(getOptions(), [&](const OptionRow &entry) { return entry.name == name; });
  return row == getOptions().end() ? nullptr : row;
}

//===----------------------------------------------------------------------===//
// The table that all tools have
//===----------------------------------------------------------------------===//

static Option toOption(const OptionRow &row, llvm::StringRef group) {
  Option option{(row.name == "o" ? "-" : "--") + row.name.str(), row.metavariable.str(),
                row.help.str(), group.str()};
  llvm::SmallVector<llvm::StringRef> aliases;
  row.aliases.split(aliases, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (llvm::StringRef alias : aliases)
    option.aliases.push_back((alias == "h" ? "-" : "--") + alias.str());
  if (row.initial != "-1" && row.initial != "0")
    option.initial = row.initial.str();
  option.isRepeatable = row.name == "param-group" || row.name == "dim";
  return option;
}

static const OptionTable &getTable() {
  static const OptionTable table = [] {
    std::vector<Option> options;
    for (const OptionGroup &group : kGroups)
      for (const OptionRow &row : group.rows)
        options.push_back(toOption(row, group.name));
    for (const OptionRow &row : getOptions())
      if (row.isOfOptimizer)
        options.push_back(toOption(row, "Optimizer"));
    return OptionTable(
        "memopt-compile", "memopt-compile MODEL.pt2 | GRAPH.mlir [MODEL.pt2 ...] [options]",
        "Compiles a training step into a program whose memory is an arena of known size.",
        std::move(options),
        "Exit codes: 0 done; 1 bad input or usage; 2 does not fit the budget; 3 the machine lacks "
        "something.",
        {{"--bf16", "--precision=bf16"},
         {"--fp16", "--precision=fp16"},
         {"--tf32", "--matmul-precision=high"},
         {"--optim", "--optimizer=NAME"},
         {"--gradient-checkpointing", "--activation-checkpointing=MODULE,... or segments:N"},
         {"--zero", "--zero-stage=0|1|2|3"}});
  }();
  return table;
}

void memopt::tool::printHelp() { llvm::outs() << getTable().getHelp(); }

llvm::Error memopt::tool::invalid(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

llvm::Expected<CommandLine> CommandLine::parse(llvm::ArrayRef<char *> arguments) {
  CommandLine line;
  OptionReader reader(getTable(), {arguments.begin(), arguments.end()});
  while (!reader.isAtEnd()) {
    OptionReader::Item item = reader.next();
    switch (item.kind) {
    case OptionReader::Kind::Place:
      line.inputs.push_back(item.text);
      continue;
    case OptionReader::Kind::Unknown:
      return invalid(describeUnknown(getTable(), item.text));
    case OptionReader::Kind::Wrong:
      return invalid(item.message);
    case OptionReader::Kind::Given:
      break;
    }
    const OptionRow &row = *findOption(llvm::StringRef(item.option->name).ltrim('-'));
    line.given.insert(row.name);
    bool hasValue = !item.value.empty() || item.option->needsValue();
    line.words.push_back(item.option->name + (hasValue ? "=" : "") + item.value);
    if (llvm::Error error = line.set(row, item.value))
      return std::move(error);
  }
  return line;
}

/// NAME=N,N,...
static llvm::Error
addDimension(llvm::StringRef text,
             std::vector<std::pair<std::string, std::vector<int64_t>>> &dimensions) {
  auto [name, list] = text.split('=');
  std::vector<int64_t> sizes;
  for (llvm::StringRef word : llvm::split(list, ',')) {
    int64_t size;
    if (name.empty() || word.getAsInteger(10, size) || size < 1)
      return invalid("--dim expects NAME=N,N,..., found '" + text + "'");
    sizes.push_back(size);
  }
  for (const auto &[other, known] : dimensions)
    if (other == name)
      return invalid("--dim=" + name + " is given twice; give all sizes at once");
  dimensions.emplace_back(name.str(), std::move(sizes));
  return llvm::Error::success();
}

llvm::Error CommandLine::set(const OptionRow &row, llvm::StringRef value) {
  if (row.name == "dim")
    if (llvm::Error error = addDimension(value, dimensions))
      return error;
  values[row.name] = row.takesValue() ? value.str() : "yes";
  if (!row.isOfOptimizer)
    return llvm::Error::success();
  if (value.contains(' '))
    return invalid("--" + row.name + " expects no blanks, found '" + value + "'");
  optimizerWords.push_back((row.name + (value.empty() ? "" : "=") + value).str());
  return llvm::Error::success();
}

std::string CommandLine::get(llvm::StringRef name) const {
  if (auto it = values.find(name); it != values.end())
    return it->second;
  return findOption(name)->initial.str();
}

llvm::Expected<double> CommandLine::getNumber(llvm::StringRef name) const {
  double number;
  if (llvm::StringRef(get(name)).getAsDouble(number) || !std::isfinite(number))
    return invalid("--" + name + " expects a number, found '" + get(name) + "'");
  return number;
}

llvm::Expected<int> CommandLine::getCount(llvm::StringRef name) const {
  int number;
  if (llvm::StringRef(get(name)).getAsInteger(10, number) || number < 0 || number > 1024)
    return invalid("--" + name + " expects a count from 0 to 1024, found '" + get(name) + "'");
  return number;
}
