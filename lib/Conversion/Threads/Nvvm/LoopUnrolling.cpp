//===- LoopUnrolling.cpp - how often loops of kernels are unrolled -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoopUnrolling.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Transforms/Scalar/LoopUnrollPass.h"

using namespace mlir::memopt;

/// What one turn of a loop does.
namespace {
struct Turn {
  int64_t words = 0;        ///< of 32 bits that it loads
  int64_t instructions = 0; ///< of single lanes
  bool isSimple = true;     ///< it loads and computes, and meets no other thread
};
} // namespace

static int64_t countLanes(llvm::Type *type) {
  auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return vector ? vector->getNumElements() : 1;
}

static Turn describeTurn(const llvm::Loop &loop, const llvm::DataLayout &layout) {
  Turn turn;
  for (const llvm::BasicBlock *block : loop.blocks())
    for (const llvm::Instruction &instruction : *block) {
      turn.instructions += countLanes(instruction.getType());
      if (llvm::isa<llvm::LoadInst>(instruction))
        turn.words += int64_t(
            llvm::divideCeil(layout.getTypeStoreSize(instruction.getType()).getFixedValue(), 4));
      auto *call = llvm::dyn_cast<llvm::CallBase>(&instruction);
      if (instruction.mayWriteToMemory() || (call && call->isConvergent()))
        turn.isSimple = false;
    }
  return turn;
}

/// Turns that are under way at once. What is loaded waits in registers, of which a quarter of those
/// that a thread can have is spent on it.
static unsigned chooseCount(const llvm::Loop &loop, const llvm::DataLayout &layout) {
  constexpr int64_t kMost = 8, kWords = 64, kInstructions = 256;
  Turn turn = describeTurn(loop, layout);
  if (!loop.isInnermost() || !turn.isSimple || turn.words == 0)
    return 1;
  int64_t fitting = std::min({kMost, kWords / turn.words, kInstructions / turn.instructions});
  return fitting < 2 ? 1 : unsigned(llvm::bit_floor(uint64_t(fitting)));
}

static void askFor(unsigned count, llvm::Loop &loop) {
  llvm::LLVMContext &context = loop.getHeader()->getContext();
  llvm::Metadata *words[] = {llvm::MDString::get(context, "llvm.loop.unroll.count"),
                             llvm::ConstantAsMetadata::get(
                                 llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), count))};
  loop.setLoopID(llvm::makePostTransformationMetadata(
      context, loop.getLoopID(), {"llvm.loop.unroll."}, {llvm::MDNode::get(context, words)}));
}

/// Calls `visit` with each loop of the module.
static void forEachLoop(llvm::Module &module, llvm::function_ref<void(llvm::Loop &)> visit) {
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    llvm::DominatorTree dominators(function);
    llvm::LoopInfo loops(dominators);
    for (llvm::Loop *loop : loops.getLoopsInPreorder())
      visit(*loop);
  }
}

static void runUnroller(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder passes(&machine);
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(components);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager pipeline;
  pipeline.addPass(
      llvm::LoopUnrollPass(llvm::LoopUnrollOptions(/*OptLevel=*/2, /*OnlyWhenForced=*/true)));
  llvm::cantFail(passes.parsePassPipeline(pipeline, "early-cse,instcombine<no-verify-fixpoint>,"
                                                    "simplifycfg,adce"));
  llvm::ModulePassManager all;
  all.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(pipeline)));
  all.run(module, modules);
}

void mlir::memopt::unrollLoops(llvm::Module &module, llvm::TargetMachine &machine) {
  forEachLoop(module, [&](llvm::Loop &loop) {
    if (unsigned count = chooseCount(loop, module.getDataLayout()); count > 1)
      askFor(count, loop);
  });
  runUnroller(module, machine);
}

/// Labels that something behind them branches to.
static llvm::StringSet<> collectLoopLabels(llvm::StringRef ptx) {
  llvm::StringSet<> seen, loops;
  for (llvm::StringRef line : llvm::split(ptx, '\n')) {
    line = line.trim();
    if (line.starts_with("$") && line.ends_with(":"))
      seen.insert(line.drop_back());
    llvm::StringRef target = line.ends_with(";") && line.contains("bra")
                                 ? line.drop_back().rsplit('\t').second.trim()
                                 : "";
    if (seen.contains(target))
      loops.insert(target);
  }
  return loops;
}

std::string mlir::memopt::forbidUnrolling(llvm::StringRef ptx) {
  constexpr llvm::StringLiteral pragma = "\t.pragma \"nounroll\";\n";
  llvm::StringSet<> loops = collectLoopLabels(ptx);
  std::string marked;
  while (!ptx.empty()) {
    auto [line, rest] = ptx.split('\n');
    marked += (line + "\n").str();
    llvm::StringRef label = line.trim();
    if (label.consume_back(":") && loops.contains(label) &&
        !rest.ltrim(' ').starts_with(pragma.rtrim()))
      marked += pragma;
    ptx = rest;
  }
  return marked;
}
