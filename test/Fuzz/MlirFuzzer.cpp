//===- MlirFuzzer.cpp - any text may be a graph for any pass ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first byte says which pipeline runs on the text behind it. A module that parses must come out
// of each pass, or be refused with a diagnostic. Mutations are those of a text editor, in words and
// lines, for damaged bytes rarely parse.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"

#include "memopt/Dialect/Memopt.h"
#include "memopt/Pipelines/Pipelines.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/TilePasses.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace ::memopt::testing;

/// Each pass by itself, passes with options that change their way, and the pipelines of the tools.
static constexpr llvm::StringLiteral pipelines[] = {
    "memopt-train",
    "memopt-train{budget=1}",
    "memopt-train{optimizer=adamw max-grad-norm=1 budget=2000}",
    "memopt-train{checkpoint-segments=2}",
    "memopt-train{optimizer=adamw micro-batches=2 precision=bf16}",
    "memopt-train{optimizer=adamw ranks=2 zero-stage=3}",
    "memopt-train{optimizer=adamw activation-dtype=bf16 offload-optimizer=cpu}",
    "memopt-joint",
    "memopt-kernels",
    "memopt-plan",
    "memopt-plan{budget=10}",
    "memopt-fuse-conv-bn-eval{modules=all}",
    "func.func(memopt-sink-relu)",
    "func.func(memopt-write-out-attention)",
    "func.func(memopt-write-out-rank-sums)",
    "memopt-mixed-precision{type=bf16}",
    "memopt-autodiff",
    "memopt-insert-optimizer{settings=\"sgd momentum=0.9 nesterov=true\"}",
    "memopt-set-batch{size=3}",
    "memopt-guard-state",
    "memopt-split-batch{parts=2}",
    "memopt-shard-parameters{ranks=2}",
    "memopt-skip-overflow",
    "func.func(memopt-annotate-input-ranges)",
    "memopt-check-indices",
    "func.func(memopt-choose-layout)",
    "func.func(memopt-lower-to-linalg)",
    "func.func(memopt-recompute-elementwise)",
    "func.func(memopt-narrow-activations{type=bf16 only=0 choice=bf16})",
    "func.func(memopt-form-kernels)",
    "func.func(memopt-pack-masks)",
    "memopt-reserve-exchange",
    "memopt-verify-kernel-graph",
    "memopt-schedule",
    "memopt-activation-checkpointing{segments=2}",
    "memopt-offload{optimizer=cpu parameters=cpu activations=cpu}",
    "memopt-hoist-invariants",
    "memopt-rematerialize{budget=10}",
    "memopt-plan-memory",
    "memopt-verify-planned",
};

static void registerOnce() {
  static const bool isDone = [] {
    mlir::memopt::registerMemoptPasses();
    mlir::memopt::registerMemoptTilePasses();
    mlir::memopt::registerMemoptPipelines();
    return true;
  }();
  (void)isDone;
}

/// MLIR's parser (22.1) ends the process at an array of indices, as mlir-opt's does.
static bool hasArrayOfIndices(llvm::StringRef text) {
  for (size_t at = text.find("array"); at != llvm::StringRef::npos;
       at = text.find("array", at + 1)) {
    llvm::StringRef rest = text.substr(at + 5).ltrim();
    if (rest.consume_front("<") && rest.ltrim().starts_with("index"))
      return true;
  }
  return false;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1)
    return 0;
  std::string text(toText(data + 1, size - 1)); // with a zero behind it, which the parser reads
  if (hasArrayOfIndices(text))
    return 0;
  registerOnce();
  DialectRegistry registry;
  mlir::memopt::registerMemoptDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  unsigned messages = 0;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &) { ++messages; });
  auto module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return 0;
  PassManager manager(&context);
  std::string errors;
  llvm::raw_string_ostream stream(errors);
  require(succeeded(parsePassPipeline(pipelines[data[0] % std::size(pipelines)], manager, stream)));
  messages = 0;
  if (failed(manager.run(*module)))
    require(messages > 0);
  return 0;
}

//===----------------------------------------------------------------------===//
// Mutations
//===----------------------------------------------------------------------===//

/// Words of which one may stand for another.
static constexpr llvm::StringLiteral replacements[][6] = {
    {"f32", "f64", "i64", "i1", "index", "complex<f32>"},
    {"bf16", "f32", "i8", "i32", "f16", "none"},
    {"addf", "mulf", "divf", "subf", "maximumf", "minimumf"},
    {"parameter", "buffer", "optimizer_state", "gradient", "hyperparameter", "buffer"},
    {"public", "private", "nested", "public", "private", "private"},
};

/// Begin and length of each word of letters and digits.
static std::vector<std::pair<size_t, size_t>> findWords(llvm::StringRef text) {
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && (llvm::isAlnum(text[end]) || text[end] == '_'))
      ++end;
    if (end > i)
      words.emplace_back(i, end - i);
    i = end + 1;
  }
  return words;
}

/// Another number in the place of one, another word of its kind, or a word of the same text.
static void changeWord(std::string &text, std::mt19937 &random) {
  constexpr llvm::StringLiteral numbers[] = {
      "0", "1", "2", "3", "4", "5", "8", "?", "-1", "4294967296", "9223372036854775807"};
  auto words = findWords(text);
  if (words.empty())
    return;
  auto [begin, length] = words[random() % words.size()];
  auto [otherBegin, otherLength] = words[random() % words.size()];
  llvm::StringRef word = llvm::StringRef(text).substr(begin, length);
  std::string next = text.substr(otherBegin, otherLength);
  if (llvm::isDigit(word[0]) && random() % 4) // "4x8xf32" is one word here
    next = (numbers[random() % std::size(numbers)] + word.drop_while(llvm::isDigit)).str();
  else if (random() % 8)
    for (const auto &group : replacements)
      if (llvm::is_contained(group, word))
        next = group[random() % std::size(group)].str();
  text.replace(begin, length, next);
}

/// A line goes, comes twice, or changes places with another.
static void changeLines(std::string &text, std::mt19937 &random) {
  std::string old = text;
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(old).split(lines, '\n');
  size_t one = random() % lines.size(), two = random() % lines.size();
  switch (random() % 3) {
  case 0:
    lines.erase(lines.begin() + one);
    break;
  case 1:
    lines.insert(lines.begin() + one, lines[two]);
    break;
  default:
    std::swap(lines[one], lines[two]);
  }
  text = llvm::join(lines, "\n");
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  std::mt19937 random(seed);
  if (size < 2 || random() % 8 == 0)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string text(toText(data + 1, size - 1));
  char pipeline = char(random() % 8 ? data[0] : random());
  for (unsigned count = 1 + random() % 3; count != 0; --count)
    random() % 3 ? changeWord(text, random) : changeLines(text, random);
  return giveBack(pipeline + text, data, maxSize);
}
