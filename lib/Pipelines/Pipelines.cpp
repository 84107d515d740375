//===- Pipelines.cpp - pass order, and the reasons for it -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Pipelines/Pipelines.h"

#include "memopt/Conversion/Host/HostProgram.h"
#include "memopt/Conversion/Targets/TargetCode.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Target/Cpu/CpuTarget.h"
#include "memopt/Target/Cuda/CudaTarget.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/TilePasses.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::memopt;

/// Folding and CSE take away multiplications by one, repeated broadcasts, and forward values that
/// several rules asked for.
static void addCleaning(OpPassManager &manager) {
  manager.addNestedPass<func::FuncOp>(createCanonicalizerPass());
  manager.addNestedPass<func::FuncOp>(createCSEPass());
}

void mlir::memopt::buildGraphPipeline(OpPassManager &manager, const PipelineOptions &options) {
  SetBatchPassOptions batch;
  batch.size = options.batch;
  batch.onlyOfOne = options.isBatchCut(); // else memopt-split-batch sets it
  manager.addPass(createSetBatchPass(batch));
  // While turns are still alike: casts that several share would stand in the first one.
  manager.addPass(createRollLoopsPass());
  // What stands here decides what autodiff finds that it needs: neither a convolution's own result,
  // nor all that a max pool reads.
  if (!options.efficientConvBnEval.empty()) {
    FuseConvBnEvalPassOptions fuse;
    fuse.modules = llvm::to_vector_of<std::string>(options.efficientConvBnEval);
    manager.addPass(createFuseConvBnEvalPass(fuse));
  }
  manager.addNestedPass<func::FuncOp>(createSinkReluPass());
  manager.addNestedPass<func::FuncOp>(createHoistSlicesPass());
  // Before types change: what is cut off needs none.
  manager.addPass(createPruneElementsPass());
  // Autodiff differentiates casts: what the backward pass keeps and multiplies is narrow, too.
  MixedPrecisionPassOptions precision;
  precision.type = options.precision;
  precision.hasMasterWeights = options.masterWeights;
  manager.addPass(createMixedPrecisionPass(precision));
  // So that autodiff finds what there is to differentiate and to keep.
  manager.addNestedPass<func::FuncOp>(createWriteOutAttentionPass());
  manager.addNestedPass<func::FuncOp>(createWriteOutPatchesPass());
  manager.addNestedPass<func::FuncOp>(createPadChannelsPass());
}

void mlir::memopt::buildJointPipeline(OpPassManager &manager, const PipelineOptions &options) {
  AutodiffPassOptions autodiff;
  autodiff.lossScale = options.lossScale;
  manager.addPass(createAutodiffPass(autodiff));
  InsertOptimizerPassOptions optimizer;
  optimizer.settings = options.optimizer;
  optimizer.maxGradNorm = options.maxGradNorm;
  optimizer.ranks = options.ranks;
  optimizer.zeroStage = options.zeroStage;
  optimizer.formsUnits = options.formsUnits;
  manager.addPass(createInsertOptimizerPass(optimizer));
  // Whoever refuses a step at its loss finds all state as it was.
  manager.addPass(createGuardStatePass());
  // Gradient rules write the general case.
  addCleaning(manager);
  SplitBatchPassOptions split;
  split.size = options.batch;
  split.batches = options.accumulativeCounts;
  split.parts = options.microBatches;
  split.ranks = options.ranks;
  split.scatter = options.zeroStage >= 2;
  split.syncBatchNorm = options.syncBatchNorm;
  split.elementType = options.accumulateDtype;
  manager.addPass(createSplitBatchPass(split));
  if (options.isBatchCut())
    addCleaning(manager);
  // By now a body has the reads that it needs, alike ones joined: each is one gather.
  if (options.zeroStage >= 3) {
    ShardParametersPassOptions shard;
    shard.ranks = options.ranks;
    shard.formsUnits = options.formsUnits;
    shard.gathersAgain = options.budget < 0; // with a budget that is for the planner to say
    manager.addPass(createShardParametersPass(shard));
    addCleaning(manager);
  }
  if (options.lossScale == 0)
    return;
  // Whether gradients overflow is asked of totals, and state is written in one block by now.
  SkipOverflowPassOptions overflow;
  overflow.isDynamic = options.dynamicLossScale;
  overflow.growth = options.growthFactor;
  overflow.backoff = options.backoffFactor;
  overflow.interval = options.growthInterval;
  manager.addPass(createSkipOverflowPass(overflow));
  addCleaning(manager);
}

void mlir::memopt::buildStatePipeline(OpPassManager &manager, const PipelineOptions &) {
  // Codes are widened where those of a training are, in the kernel pipeline.
  manager.addPass(createShardParametersPass());
  addCleaning(manager);
}

void mlir::memopt::buildKernelPipeline(OpPassManager &manager, const PipelineOptions &options) {
  // Ranges of inputs are read off ops that index, which lowering takes apart. Evaluation needs
  // them, too.
  manager.addNestedPass<func::FuncOp>(createAnnotateInputRangesPass());
  // Before lowering, which makes a kernel of their additions.
  WriteOutRankSumsPassOptions sums;
  sums.library = options.reduce == "nccl";
  manager.addNestedPass<func::FuncOp>(createWriteOutRankSumsPass(sums));
  // What the runtime cannot check before the step, the program checks.
  manager.addPass(createCheckIndicesPass());
  // Behind the checks, which know inputs by their names, and before sums are cut.
  TileTokensPassOptions tiles;
  tiles.parts = options.tileParts;
  tiles.modules = llvm::to_vector_of<std::string>(options.tileModules);
  tiles.moduleParts = options.tileModuleParts;
  manager.addPass(createTileTokensPass(tiles));
  // Lowering cuts reductions along the order of memory, so that is settled first.
  manager.addNestedPass<func::FuncOp>(createChooseLayoutPass());
  manager.addNestedPass<func::FuncOp>(createLowerToLinalgPass());
  // Widening is elementwise code, which what follows makes again instead of keeping it.
  NarrowFrozenPassOptions frozen;
  frozen.code = options.frozenWeights;
  frozen.scales = options.frozenScales;
  manager.addPass(createNarrowFrozenPass(frozen));
  // What the lowering repeated (a variance in forward and backward, say) is computed once.
  manager.addNestedPass<func::FuncOp>(createCSEPass());
  // Before kernels are formed: what a backward kernel recomputes is never a buffer.
  RecomputeElementwisePassOptions recompute;
  recompute.enabled = options.recompute;
  manager.addNestedPass<func::FuncOp>(createRecomputeElementwisePass(recompute));
  // What is left that backward reads of forward is kept.
  if (options.recompute)
    manager.addNestedPass<func::FuncOp>(createPackRowsPass());
  NarrowActivationsPassOptions narrow;
  narrow.type = options.activationDtype;
  narrow.only =
      llvm::to_vector(llvm::map_range(options.activations, [](int64_t number) { return number; }));
  narrow.choice = options.activationChoice;
  manager.addNestedPass<func::FuncOp>(createNarrowActivationsPass(narrow));
  manager.addNestedPass<func::FuncOp>(createFormKernelsPass());
  manager.addNestedPass<func::FuncOp>(createPackMasksPass());
  manager.addPass(createReserveExchangePass());
  manager.addPass(createVerifyKernelGraphPass());
}

void mlir::memopt::buildSchedulePipeline(OpPassManager &manager, const PipelineOptions &options) {
  // What the user recomputes by hand comes before all search, which builds on it: in the order that
  // autodiff leaves, a module's backward pass begins where the forward pass would be repeated.
  ActivationCheckpointingPassOptions checkpointing;
  checkpointing.modules = llvm::to_vector_of<std::string>(options.checkpointModules);
  checkpointing.segments = options.checkpointSegments;
  manager.addPass(createActivationCheckpointingPass(checkpointing));
  // Behind that, so that what is recomputed finds its parameters; and before the order is chosen,
  // in which transfers hide.
  OffloadPassOptions offload;
  offload.optimizer = options.offloadOptimizer;
  offload.parameters = options.offloadParam;
  offload.activations = options.offloadActivation;
  offload.fetchesAgain = options.budget < 0; // with a budget that is for the planner to say
  manager.addPass(createOffloadPass(offload));
  // Autodiff leaves all updates at the end; the order decides how long gradients live.
  SchedulePassOptions schedule;
  schedule.hostBudget = options.hostBudget;
  schedule.threads = options.threads;
  schedule.cache = options.cache;
  manager.addPass(createSchedulePass(schedule));
}

void mlir::memopt::buildPlanPipeline(OpPassManager &manager, const PipelineOptions &options) {
  // A budget is met by recomputation on top of the best order without it.
  RematerializePassOptions rematerialize;
  if (options.rematerialize)
    rematerialize.budget = options.budget;
  rematerialize.hostBudget = options.hostBudget;
  rematerialize.swaps = options.swaps;
  if (options.activationDtype == "f32" || !options.activations.empty())
    rematerialize.activations = options.activationChoice;
  rematerialize.threads = options.threads;
  rematerialize.cache = options.cache;
  manager.addPass(createRematerializePass(rematerialize));
  // With the bytes that the plan leaves.
  HoistInvariantsPassOptions hoist;
  hoist.budget = options.budget;
  manager.addPass(createHoistInvariantsPass(hoist));
  if (options.overlapCollectives && options.ranks > 1) {
    OverlapCollectivesPassOptions overlap;
    overlap.budget = options.budget;
    overlap.hostBudget = options.hostBudget;
    overlap.cache = options.cache;
    manager.addPass(createOverlapCollectivesPass(overlap));
  }
  PlanMemoryPassOptions plan;
  plan.budget = options.budget;
  plan.hostBudget = options.hostBudget;
  plan.diskBudget = options.diskBudget;
  plan.cache = options.cache;
  manager.addPass(createPlanMemoryPass(plan));
  manager.addPass(createVerifyPlannedPass());
}

void mlir::memopt::registerMemoptDialects(DialectRegistry &registry) {
  registry.insert<MemoptDialect, affine::AffineDialect, arith::ArithDialect, cf::ControlFlowDialect,
                  func::FuncDialect, linalg::LinalgDialect, LLVM::LLVMDialect, math::MathDialect,
                  memref::MemRefDialect, NVVM::NVVMDialect, scf::SCFDialect, tensor::TensorDialect,
                  vector::VectorDialect>();
  registerUpstreamInterfaces(registry);
  registerCpuTarget(registry);
  registerCudaTarget(registry);
  registerHostInstructions(registry);
  registerTargetCode(registry);
}

void mlir::memopt::registerMemoptPipelines() {
  PassPipelineRegistration<PipelineOptions>("memopt-graph", "imported graph to imported graph",
                                            buildGraphPipeline);
  PassPipelineRegistration<PipelineOptions>("memopt-joint", "imported graph to joint graph",
                                            buildJointPipeline);
  PassPipelineRegistration<PipelineOptions>("memopt-kernels", "joint graph to kernel graph",
                                            buildKernelPipeline);
  PassPipelineRegistration<PipelineOptions>(
      "memopt-plan", "kernel graph to planned program",
      [](OpPassManager &manager, const PipelineOptions &options) {
        buildSchedulePipeline(manager, options);
        buildPlanPipeline(manager, options);
      });
  PassPipelineRegistration<PipelineOptions>(
      "memopt-train", "imported graph to planned program",
      [](OpPassManager &manager, const PipelineOptions &options) {
        buildGraphPipeline(manager, options);
        buildJointPipeline(manager, options);
        buildKernelPipeline(manager, options);
        buildSchedulePipeline(manager, options);
        buildPlanPipeline(manager, options);
      });
}
