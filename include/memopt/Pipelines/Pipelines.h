//===- Pipelines.h - pass order, and the reasons for it -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PIPELINES_PIPELINES_H
#define MEMOPT_PIPELINES_PIPELINES_H

#include "memopt/Transforms/OffloadTier.h"
#include "memopt/Transforms/Utils/TokenTiles.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

namespace mlir::memopt {

/// What a whole compilation chooses. Each stage reads its part; the options are those of
/// `memopt-opt
/// --memopt-train="..."` too.
struct PipelineOptions : public PassPipelineOptions<PipelineOptions> {
  Option<std::string> optimizer{*this, "optimizer", llvm::cl::init(""),
                                llvm::cl::desc("settings of memopt-insert-optimizer, in quotes")};
  Option<double> maxGradNorm{*this, "max-grad-norm", llvm::cl::init(0.0)};
  Option<int64_t> batch{*this, "batch", llvm::cl::init(0),
                        llvm::cl::desc("samples in a batch; 0: as exported")};
  Option<int64_t> accumulativeCounts{*this, "accumulative-counts", llvm::cl::init(1),
                                     llvm::cl::desc("batches for one update")};
  Option<int64_t> microBatches{*this, "micro-batches", llvm::cl::init(1),
                               llvm::cl::desc("parts that a batch is cut into")};
  Option<std::string> accumulateDtype{*this, "accumulate-dtype", llvm::cl::init("fp32"),
                                      llvm::cl::desc("of gradient accumulators: fp32 or bf16")};
  Option<std::string> precision{*this, "precision", llvm::cl::init("f32"),
                                llvm::cl::desc("of products: f32, bf16 or fp16")};
  Option<bool> masterWeights{*this, "master-weights", llvm::cl::init(true),
                             llvm::cl::desc("keep parameters in f32")};
  Option<double> lossScale{*this, "loss-scale", llvm::cl::init(0.0),
                           llvm::cl::desc("that a run starts from; 0: none")};
  Option<bool> dynamicLossScale{*this, "dynamic-loss-scale", llvm::cl::init(true),
                                llvm::cl::desc("move the scale")};
  Option<double> growthFactor{*this, "growth-factor", llvm::cl::init(2.0)};
  Option<double> backoffFactor{*this, "backoff-factor", llvm::cl::init(0.5)};
  Option<int64_t> growthInterval{*this, "growth-interval", llvm::cl::init(2000)};
  Option<int64_t> ranks{*this, "ranks", llvm::cl::init(1),
                        llvm::cl::desc("processes that run the step together")};
  Option<int64_t> zeroStage{
      *this, "zero-stage", llvm::cl::init(0),
      llvm::cl::desc("what ranks share out: optimizer state (1), gradients (2), parameters (3)")};
  Option<bool> formsUnits{*this, "units", llvm::cl::init(true),
                          llvm::cl::desc("small tensors are cut over ranks together")};
  Option<bool> syncBatchNorm{*this, "sync-batch-norm", llvm::cl::init(false),
                             llvm::cl::desc("batch norms take statistics over all ranks")};
  Option<bool> overlapCollectives{*this, "overlap-collectives", llvm::cl::init(true),
                                  llvm::cl::desc("collectives run beside computation")};
  Option<std::string> reduce{*this, "reduce", llvm::cl::init("ranks"),
                             llvm::cl::desc("how devices add up over ranks: ranks or nccl")};
  /// Whether an update's samples run in several parts.
  bool isBatchCut() const { return accumulativeCounts * microBatches * ranks > 1; }
  Option<std::string> frozenWeights{
      *this, "frozen-weights", llvm::cl::init("f32"),
      llvm::cl::desc("form of parameters that nobody trains: f32, bf16, int8 or nf4")};
  Option<std::string> frozenScales{*this, "frozen-scales", llvm::cl::init("f32"),
                                   llvm::cl::desc("of the scales of nf4: f32 or int8")};
  Option<std::string> activationDtype{
      *this, "activation-dtype", llvm::cl::init("f32"),
      llvm::cl::desc("of kept activations: f32, bf16, int8 or fp8")};
  ListOption<int64_t> activations{
      *this, "activations",
      llvm::cl::desc("numbers of the activations that have that type; none for all")};
  Option<std::string> activationChoice{
      *this, "activation-choice", llvm::cl::init("f32"),
      llvm::cl::desc("type for which the plan of a budget says which activations should have it")};
  Option<bool> recompute{*this, "recompute-elementwise", llvm::cl::init(true),
                         llvm::cl::desc("recompute pointwise work")};
  ListOption<std::string> efficientConvBnEval{
      *this, "efficient-conv-bn-eval",
      llvm::cl::desc("modules whose batch norms join their convolutions: names, globs or all")};
  Option<int64_t> tileParts{*this, "tile-parts", llvm::cl::init(0),
                            llvm::cl::desc("parts of the tokens of a wide segment; 0: its tiles")};
  ListOption<std::string> tileModules{*this, "tile-modules",
                                      llvm::cl::desc("modules whose tokens run in parts: names, "
                                                     "globs or all")};
  Option<int64_t> tileModuleParts{*this, "tile-module-parts", llvm::cl::init(0),
                                  llvm::cl::desc("their parts; 0: their tiles")};
  ListOption<std::string> checkpointModules{
      *this, "activation-checkpointing",
      llvm::cl::desc("modules to recompute, by hand: names or globs")};
  Option<int64_t> checkpointSegments{
      *this, "checkpoint-segments", llvm::cl::init(0),
      llvm::cl::desc("equal segments of the forward pass to recompute")};
  Option<OffloadTier> offloadOptimizer{
      *this, "offload-optimizer", llvm::cl::init(OffloadTier::None), getOffloadTierValues(),
      llvm::cl::desc("where optimizer state and the parameters that it updates lie")};
  Option<OffloadTier> offloadParam{*this, "offload-param", llvm::cl::init(OffloadTier::None),
                                   getOffloadTierValues(), llvm::cl::desc("where parameters lie")};
  Option<OffloadTier> offloadActivation{
      *this, "offload-activation", llvm::cl::init(OffloadTier::None), getOffloadTierValues(),
      llvm::cl::desc("where what is kept for the backward pass lies")};
  Option<bool> rematerialize{*this, "rematerialize", llvm::cl::init(true),
                             llvm::cl::desc("recompute to meet the budget")};
  Option<int64_t> budget{*this, "budget", llvm::cl::init(-1),
                         llvm::cl::desc("bytes of the device arena")};
  Option<int64_t> hostBudget{*this, "host-budget", llvm::cl::init(-1),
                             llvm::cl::desc("bytes of the host arena")};
  Option<int64_t> diskBudget{*this, "disk-budget", llvm::cl::init(-1),
                             llvm::cl::desc("bytes on disk")};
  Option<bool> swaps{*this, "swaps", llvm::cl::init(false),
                     llvm::cl::desc("values may go to the host and back to meet the budget")};
  Option<int> threads{*this, "threads", llvm::cl::init(1),
                      llvm::cl::desc("threads of searches, for speed only")};
  Option<std::string> cache{*this, "cache", llvm::cl::init(""),
                            llvm::cl::desc("folder in which plans are found again")};
};

/// What changes the imported graph itself, for training and evaluation alike: its batch size, and
/// what autodiff finds.
void buildGraphPipeline(OpPassManager &manager, const PipelineOptions &options);
/// Imported graph to joint graph: gradients and the optimizer's update become ops of the same
/// function.
void buildJointPipeline(OpPassManager &manager, const PipelineOptions &options);
/// Imported graph of an evaluation to one whose variables have the form that a training's state has
/// them in (StateForm.h); codes are widened in the kernel pipeline.
void buildStatePipeline(OpPassManager &manager, const PipelineOptions &options);
/// Joint (or, for evaluation, imported) graph to kernel graph.
void buildKernelPipeline(OpPassManager &manager, const PipelineOptions &options);
/// Orders the kernel graph: what stands before budgets are met.
void buildSchedulePipeline(OpPassManager &manager, const PipelineOptions &options);
/// Ordered kernel graph to planned program.
void buildPlanPipeline(OpPassManager &manager, const PipelineOptions &options);

void registerMemoptDialects(DialectRegistry &registry);
/// `memopt-graph`, `memopt-joint`, `memopt-kernels`, `memopt-plan`, and `memopt-train` for all
/// four.
void registerMemoptPipelines();

} // namespace mlir::memopt

#endif // MEMOPT_PIPELINES_PIPELINES_H
