//===- Options.cpp - the command line of memopt-compile -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Path.h"

#include <cmath>
#include <thread>

using namespace memopt::tool;
namespace cl = llvm::cl;

static cl::OptionCategory category("memopt-compile options");

#define MEMOPT_STRING_OPTION(VARIABLE, NAME, INIT, DESCRIPTION)                                                        \
  static cl::opt<std::string> VARIABLE(NAME, cl::init(INIT), cl::desc(DESCRIPTION), cl::cat(category))
#define MEMOPT_NUMBER_OPTION(VARIABLE, NAME, INIT, DESCRIPTION)                                                        \
  static cl::opt<double> VARIABLE(NAME, cl::init(INIT), cl::desc(DESCRIPTION), cl::cat(category))

static cl::opt<std::string> input(cl::Positional, cl::desc("MODEL.pt2 | GRAPH.mlir"), cl::cat(category));
MEMOPT_STRING_OPTION(output, "o", "", "package folder to write (default: the input's name with .memopt)");
MEMOPT_STRING_OPTION(target, "target", "cpu", "cpu or cuda");
MEMOPT_STRING_OPTION(targetFeatures, "target-features", "", "processor to compile for (default: this machine's)");
MEMOPT_STRING_OPTION(mode, "mode", "train", "train, or eval for the forward pass alone");
MEMOPT_STRING_OPTION(loss, "loss", "", "name or index of the output that is the loss (default: the first scalar)");
MEMOPT_STRING_OPTION(optimizer, "optimizer", "sgd", "sgd, adam or adamw, with PyTorch's meaning and defaults");
MEMOPT_NUMBER_OPTION(lr, "lr", -1.0, "learning rate to start from; may be changed when running");
MEMOPT_NUMBER_OPTION(momentum, "momentum", 0.0, "SGD: momentum");
MEMOPT_NUMBER_OPTION(dampening, "dampening", 0.0, "SGD: dampening of the momentum");
static cl::opt<bool> nesterov("nesterov", cl::desc("SGD: Nesterov momentum"), cl::cat(category));
MEMOPT_NUMBER_OPTION(weightDecay, "weight-decay", -1.0, "weight decay (default: PyTorch's)");
MEMOPT_STRING_OPTION(betas, "betas", "0.9,0.999", "Adam: decay of the moments");
MEMOPT_NUMBER_OPTION(eps, "eps", 1e-8, "Adam: epsilon");
MEMOPT_NUMBER_OPTION(maxGradNorm, "max-grad-norm", 0.0, "clip gradients to this global norm (0: do not)");
MEMOPT_STRING_OPTION(deviceMemory, "device-memory", "", "bytes that the device arena may have: N, NKiB, NMiB, NGiB");
MEMOPT_STRING_OPTION(dropout, "dropout", "on", "on, or off to make dropout the identity");
MEMOPT_STRING_OPTION(precision, "precision", "f32", "f32");
MEMOPT_STRING_OPTION(emit, "emit", "package", "graph, joint, kernels, planned, llvm or package");
MEMOPT_STRING_OPTION(report, "report", "", "write the plan as JSON");
static cl::opt<bool> explain("explain", cl::desc("print the plan in words"), cl::cat(category));
static cl::opt<bool> reference("reference", cl::desc("plain loops instead of libraries, to check them"), cl::cat(category));
static cl::opt<int> threads("threads", cl::init(0), cl::desc("compiler threads; the result does not depend on it"),
                            cl::cat(category));
static cl::opt<int> runThreads("run-threads", cl::init(0),
                               cl::desc("threads that library calls are planned for (default: this machine's)"),
                               cl::cat(category));

static llvm::Error invalid(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<int64_t> memopt::tool::parseBytes(llvm::StringRef option, llvm::StringRef text) {
  llvm::StringRef number = text.trim();
  int64_t unit = 1;
  for (auto [suffix, bytes] : {std::pair<const char *, int64_t>{"KiB", 1ll << 10}, {"MiB", 1ll << 20}, {"GiB", 1ll << 30},
                               {"TiB", 1ll << 40}})
    if (number.consume_back(suffix))
      unit = bytes;
  double value;
  if (number.rtrim().getAsDouble(value) || !(value >= 0) || value * unit > 9e18)
    return invalid("--" + option + " expects bytes such as 4096, 512MiB or 16GiB, found '" + text + "'");
  return static_cast<int64_t>(std::floor(value * static_cast<double>(unit)));
}

static llvm::Error parseBetas(mlir::memopt::PipelineOptions &options) {
  auto [first, second] = llvm::StringRef(betas).split(',');
  double one, two;
  if (first.getAsDouble(one) || second.getAsDouble(two) || !(one >= 0 && one < 1) || !(two >= 0 && two < 1))
    return invalid("--betas expects two numbers in [0, 1) such as 0.9,0.999, found '" + betas + "'");
  options.beta1 = one;
  options.beta2 = two;
  return llvm::Error::success();
}

static llvm::Error fillOptimizer(CompileOptions &options) {
  if (optimizer != "sgd" && optimizer != "adam" && optimizer != "adamw")
    return invalid("--optimizer expects sgd, adam or adamw, found '" + optimizer + "'");
  options.learningRate = lr >= 0 ? lr.getValue() : 1e-3; // the default of all three in PyTorch
  mlir::memopt::PipelineOptions &pipeline = options.pipeline;
  pipeline.optimizer = optimizer;
  pipeline.lr = options.learningRate;
  pipeline.momentum = momentum;
  pipeline.dampening = dampening;
  pipeline.nesterov = nesterov;
  pipeline.weightDecay = weightDecay;
  pipeline.eps = eps;
  pipeline.maxGradNorm = maxGradNorm;
  if (nesterov && (momentum <= 0 || dampening != 0))
    return invalid("--nesterov needs a momentum and no dampening");
  return parseBetas(pipeline);
}

static llvm::Error fillStage(CompileOptions &options) {
  auto stage = llvm::StringSwitch<int>(emit)
                   .Case("graph", static_cast<int>(Emit::Graph))
                   .Case("joint", static_cast<int>(Emit::Joint))
                   .Case("kernels", static_cast<int>(Emit::Kernels))
                   .Case("planned", static_cast<int>(Emit::Planned))
                   .Case("llvm", static_cast<int>(Emit::Llvm))
                   .Case("package", static_cast<int>(Emit::Package))
                   .Default(-1);
  if (emit == "ptx")
    return invalid("--emit=ptx needs --target=cuda, which this version does not generate code for");
  if (stage < 0)
    return invalid("--emit expects graph, joint, kernels, planned, llvm or package, found '" + emit + "'");
  options.emit = static_cast<Emit>(stage);
  return llvm::Error::success();
}

/// Choices of one of two words.
static llvm::Expected<bool> parseChoice(llvm::StringRef name, llvm::StringRef text, llvm::StringRef yes, llvm::StringRef no) {
  if (text == yes || text == no)
    return text == yes;
  return invalid("--" + name + " expects " + yes + " or " + no + ", found '" + text + "'");
}

llvm::Expected<std::unique_ptr<CompileOptions>> memopt::tool::parseCompileOptions(int argc, char **argv) {
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (!cl::ParseCommandLineOptions(argc, argv, "Compiles a training graph into a program with a fixed memory arena.\n",
                                   &stream)) {
    llvm::StringRef first = llvm::StringRef(message).trim().split('\n').first;
    return invalid(first.substr(first.find(": ") == llvm::StringRef::npos ? 0 : first.find(": ") + 2));
  }
  auto options = std::make_unique<CompileOptions>();
  if (input.empty())
    return invalid("expects a MODEL.pt2 or GRAPH.mlir; --help lists the options");
  if (target != "cpu")
    return target == "cuda" ? invalid("--target=cuda: this version generates code for cpu only")
                            : invalid("--target expects cpu or cuda, found '" + target + "'");
  if (precision != "f32")
    return invalid("--precision=" + precision + ": this version computes in f32 only");
  options->input = input;
  options->output = output;
  if (options->output.empty()) {
    llvm::SmallString<128> path(input);
    llvm::sys::path::replace_extension(path, "memopt");
    options->output = path.str().str();
  }
  options->explain = explain;
  options->reportPath = report;
  options->loss = loss;
  options->targetFeatures = targetFeatures;
  options->compilerThreads = threads;
  options->pipeline.reference = reference;
  int hardware = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  options->pipeline.threads = runThreads > 0 ? runThreads.getValue() : hardware;
  llvm::Expected<bool> train = parseChoice("mode", mode, "train", "eval");
  if (!train)
    return train.takeError();
  options->evaluate = !*train;
  llvm::Expected<bool> drop = parseChoice("dropout", dropout, "on", "off");
  if (!drop)
    return drop.takeError();
  options->dropout = *drop;
  if (!deviceMemory.empty()) {
    llvm::Expected<int64_t> bytes = parseBytes("device-memory", deviceMemory);
    if (!bytes)
      return bytes.takeError();
    options->deviceBudget = *bytes;
    options->pipeline.budget = *bytes;
  }
  if (llvm::Error error = fillOptimizer(*options))
    return std::move(error);
  if (llvm::Error error = fillStage(*options))
    return std::move(error);
  return std::move(options);
}
