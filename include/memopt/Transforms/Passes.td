//===- Passes.td - IR to IR, one pass per file -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_PASSES_TD
#define MEMOPT_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// From the training graph to the joint graph
//===----------------------------------------------------------------------===//

def FuseConvBnEvalPass : Pass<"memopt-fuse-conv-bn-eval", "::mlir::ModuleOp"> {
  let summary = "Scale filters instead of what convolutions give to batch norms that use running statistics";
  let description = [{
    In the imported graph, training or evaluation, a convolution (with groups, or transposed) or linear layer that is
    followed by a batch norm by running statistics becomes one whose filter and bias are scaled in every step:
    `conv(x, W) * s + t` becomes `conv(x, W * s) + t`. Gradients of filter, bias and the norm's two vectors follow by
    autodiff and are those of the first form; the convolution's own result is not kept for them.

    `modules` are names or globs of modules that hold the norms, or "all". Norms among them that cannot be fused stay as
    they are. The module's `memopt.efficient_conv_bn_eval` says what became of each. A pattern that no norm matches is an
    error.

    Remarks: for every norm the module, and the bytes of the result that need not be kept and of the scaled filter; or the
    reason of the refusal.

    Results differ by rounding.
  }];
  let options = [
    ListOption<"modules", "modules", "std::string", "Names or globs of modules, or all">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::tensor::TensorDialect", "::mlir::memopt::MemoptDialect"];
}

def SinkReluPass : Pass<"memopt-sink-relu", "::mlir::func::FuncOp"> {
  let summary = "Rectify what a max pool leaves instead of all that it reads";
  let description = [{
    In the imported graph `max_pool(relu(x))` becomes `relu(max_pool(x))` where nobody else reads the rectified value
    or the pool's winners. The backward pass then needs the small value instead of the large one. Results and gradients
    keep their bits.

    Remark: bytes of the rectified value before and after.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def PadChannelsPass : Pass<"memopt-pad-channels", "::mlir::func::FuncOp"> {
  let summary = "Channels of zeros that tensor cores take";
  let description = [{
    In the imported graph, for devices: a convolution of 16-bit numbers in one group, whose input has no multiple of
    eight channels, gets further ones of zeros in input and filter, where the input does not become larger than the
    result. Its gradients are those of eight channels, too; a pad's gradient leaves out what is too much.

    Remark: bytes of the padded input.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def WriteOutAttentionPass : Pass<"memopt-write-out-attention", "::mlir::func::FuncOp"> {
  let summary = "Products and a softmax where the target has no attention for such heads";
  let description = [{
    In the imported graph, for targets whose libraries do not compute attention, where heads are too wide for the
    tiles of kernels (`fitsAttentionTiles`) and nobody reads logarithms of sums: scores are a product of queries and
    keys in f32 at least, hidden ones become the lowest number, and the probabilities of a softmax, less what dropout
    takes, are multiplied with the values. Grouped queries of one head of keys are rows of one product. The matrix of
    scores is a value of the graph, and its memory is planned like any other.

    Remark: bytes of the scores.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def WriteOutPatchesPass : Pass<"memopt-write-out-patches", "::mlir::func::FuncOp"> {
  let summary = "Convolutions over separate patches as products";
  let description = [{
    In the imported graph, for devices: a convolution whose windows neither overlap nor leave elements out (strides are
    the kernel's sizes, no padding, one group) becomes a product of its patches and filters, as the patch embedding of
    a vision transformer is. Its gradients are products then, too.

    Remark: bytes of the patches.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::tensor::TensorDialect"];
}

def WriteOutRankSumsPass : Pass<"memopt-write-out-rank-sums", "::mlir::func::FuncOp"> {
  let summary = "Sums over ranks as what is sent and a kernel that adds";
  let description = [{
    For targets whose kernels are a device's, where nothing but kernels adds up: `all_reduce` and `reduce_scatter`
    become an exchange of terms and additions from zero in the order of the ranks, behind which a whole sum is
    gathered. The terms are a value of the graph, whose memory is planned like any other's. Small tensors are
    gathered whole and added up by every rank.
  }];
  let options = [
    Option<"library", "library", "bool", "false", "Leave sums that the device's library can make to it">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def MixedPrecisionPass : Pass<"memopt-mixed-precision", "::mlir::ModuleOp"> {
  let summary = "Multiply and keep bf16 or f16 numbers, compute the rest in f32";
  let description = [{
    In the imported graph, training or evaluation, operands of matmul, convolution and attention are rounded to `type`;
    sums stay in f32 and are rounded with the bias that is added to them. Values that follow from rounded ones alone are
    rounded where they are kept, as torch.autocast would have them; norms, softmax and pools compute in f32. Variables
    stay f32: casts of parameters are ops of the step. Autodiff then differentiates the casts, so the backward pass
    multiplies and keeps narrow values, too, and gradients of parameters are f32.

    Products that neither a trainable parameter nor a floating-point input reaches stay as they are, and so do f64
    and integers.

    Without `master-weights` trainable parameters are bf16 variables from here on, their first values rounded.

    Remark: the number of products made narrow and of casts.
  }];
  let options = [
    Option<"type", "type", "std::string", "\"f32\"", "bf16, fp16, or f32 for no change">,
    Option<"hasMasterWeights", "master-weights", "bool", "true", "Keep parameters in f32">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::tensor::TensorDialect", "::mlir::memopt::MemoptDialect"];
}

def AutodiffPass : Pass<"memopt-autodiff", "::mlir::ModuleOp"> {
  let summary = "Add the gradients of the trainable parameters to the step";
  let description = [{
    Differentiates the loss (the result whose `memopt.role` is "loss", else the first floating-point
    scalar) backwards, by the rules that ops give through `DifferentiableOpInterface`. One
    `memopt.gradient` marks each parameter's gradient where it is complete. A parameter that the loss does
    not depend on gets none.

    Backward ops carry `memopt.phase = "backward"` and the location of the op that they differentiate. Work
    that no gradient needs is not made.

    An op without a rule between a trainable parameter and the loss is an error that names both.

    With `loss-scale` the backward pass starts from the variable `@loss_scale` (f32, whose first value that is)
    instead of 1, and gradients of parameters are divided by it where they are complete: small ones of the backward
    pass do not vanish in f16.
  }];
  let options = [
    Option<"lossScale", "loss-scale", "double", "0.0", "Scale of the loss to start from; 0: none">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::memopt::MemoptDialect"];
}

def InsertOptimizerPass : Pass<"memopt-insert-optimizer", "::mlir::ModuleOp"> {
  let summary = "Update the parameters from their gradients";
  let description = [{
    Declares the optimizer's state and adds one `memopt.optimizer_step` and the writes for each parameter whose
    gradient `memopt.gradient` marks. `settings` are those of memopt-compile, without dashes and separated by
    blanks: `optimizer=adamw betas=0.9,0.95 param-group=*.bias:weight-decay=0`. The learning rate is the variable
    `@lr` (f64), the number of the step `@step` (i64, from 1); both are written by the runtime, and `lr` is what
    `@lr` starts from. Groups of parameters with a rate of their own have `@lr.1`, `@lr.2`, ... With
    `hyperparameters=inputs` among the settings, momentum, betas and weight decay are variables that the runtime writes,
    too: `@hyperparameter.momentum`, and `@hyperparameter.momentum.1` beside `@lr.1`. State of parameter
    `p` is the variable `optimizer.<slot>.p`, slot being a name of the optimizer's such as "momentum" or "exp_avg".
    Codes of 8 bits come with `optimizer.<slot>.scale.p`, one scale for each block of 256.

    With `zero-stage` 1 to 3 an update is that of a shard: the rank's own part of parameter and gradient, as a vector,
    goes in, and a gather gives the new parameter. Shards end at multiples of 16 elements unless they have fewer, those of
    state in 8 bits at blocks. Fails at an optimizer whose updates do not treat each element on its own.

    The update of a bf16 parameter is computed in f32 and rounded at random by counter (`memopt.stochastic_round`),
    with `@seed`.
  }];
  let options = [
    Option<"settings", "settings", "std::string", "\"\"", "Options of memopt-compile about optimizers">,
    Option<"maxGradNorm", "max-grad-norm", "double", "0.0",
           "Scale gradients down to this global norm; 0 leaves them alone">,
    Option<"ranks", "ranks", "int64_t", "1", "Processes that run the step together">,
    Option<"zeroStage", "zero-stage", "int64_t", "0",
           "From 1 on each rank keeps the optimizer's state for its shard of a parameter, and updates that">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::memopt::MemoptDialect"];
}

//===----------------------------------------------------------------------===//
// From named ops to the kernel graph
//===----------------------------------------------------------------------===//

def SetBatchPass : Pass<"memopt-set-batch", "::mlir::ModuleOp"> {
  let summary = "Compile for another batch size than the exported one";
  let description = [{
    Finds the dimensions that count samples, by the iteration spaces of the ops, and gives them `size` elements.
    Runs on the imported graph. Fails at an op that mixes samples, naming it.

    A step that is cut as well gets its size from memopt-split-batch, behind autodiff, where samples of a larger batch
    are still told apart; but not one that was exported with one sample (`only-of-one`): what that sample shared with
    the batch has gradients that are summed over samples only if there were more before gradients stood.
  }];
  let options = [
    Option<"size", "size", "int64_t", "0", "Samples in a batch; 0 leaves them as they are">,
    Option<"onlyOfOne", "only-of-one", "bool", "false", "Leave a step of several samples as it is">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def GuardStatePass : Pass<"memopt-guard-state", "::mlir::ModuleOp"> {
  let summary = "Let no state change before the loss is known";
  let description = [{
    Puts `memopt.commit` behind the loss, and behind that every write of a parameter, buffer or optimizer state,
    with the ops that only make what is written. A step that the runtime refuses there has changed nothing.
    Steps without a loss or without writes stay as they are.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def SplitBatchPass : Pass<"memopt-split-batch", "::mlir::ModuleOp"> {
  let summary = "Accumulate the gradients of several micro-batches before one update";
  let description = [{
    Forward and backward pass become the body of a `memopt.repeat`. With `batches` each iteration takes one batch of
    the graph's size; with `parts` a batch is cut into as many micro-batches; both multiply. Sums over samples are
    accumulated in variables of role `gradient`, in the order of the iterations; the update and the loss see totals. The result is that of one batch with all
    samples but for the order of sums, and but for statistics of a batch (batch normalization): these are those of each
    micro-batch, and running statistics move once for each. A remark names the modules.

    A total that the body itself needs (the number of valid targets, which the gradient of a mean divides by) is taken
    by a repeat of its own in front, of just the ops that it needs.

    With `size` a batch gets another number of samples first. What is cut must be told apart, which it no longer is
    once a batch of one sample was set and folded, so whoever cuts sets the size here.

    With `ranks` the step runs on as many processes, each on batches of its own: sums are taken over the ranks in
    their order (`memopt.collective`), and the result has the bits of one rank with as many iterations, one for each
    rank. Without iterations there is no repeat. Every rank makes the moves of running statistics of all ranks.
    With `sync-batch-norm` a batch norm takes its statistics over the samples of all ranks, and running statistics
    move once.

    Fails at an op that mixes samples other than by a sum, at a loss that depends on the statistics of a batch, and
    when `parts` does not divide the batch. Runs behind `memopt-guard-state`.
  }];
  let options = [
    Option<"size", "size", "int64_t", "0", "Samples in a batch; 0 leaves them as they are">,
    Option<"batches", "batches", "int64_t", "1", "Batches for one update">,
    Option<"parts", "parts", "int64_t", "1", "Micro-batches that a batch is cut into">,
    Option<"ranks", "ranks", "int64_t", "1", "Processes that run the step together, each on batches of its own">,
    Option<"scatter", "scatter", "bool", "false", "Accumulate shards of gradients whose updates are shared out">,
    Option<"syncBatchNorm", "sync-batch-norm", "bool", "false", "Batch norms take statistics over all ranks">,
    Option<"elementType", "element-type", "std::string", "\"fp32\"", "Of accumulators: fp32 (that of the sum, and at least f32), bf16">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
}

def ShardParametersPass : Pass<"memopt-shard-parameters", "::mlir::ModuleOp"> {
  let summary = "Let each rank keep its shard of every parameter";
  let description = [{
    Stage 3 of ZeRO. The variable of a parameter becomes this rank's shard, in the cut of its update where there is
    one. A read is followed by an `all_gather`, of narrower elements where a cast narrows what was read; what an update
    makes is written as it is, and not gathered. Parameters of which a shard is no smaller than the whole stay whole.

    An evaluation that reads a training's state says of each variable which part a rank has, in the attribute
    `memopt.state_shard`; its reads are gathered in the same way.

    Runs behind `memopt-insert-optimizer` with a `zero-stage`, and behind `memopt-split-batch`.
  }];
  let options = [
    Option<"ranks", "ranks", "int64_t", "1", "Processes that run the step together">,
    Option<"gathersAgain", "gather-again", "bool", "false", "Once for the forward and once for the backward pass">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memopt::MemoptDialect"];
}

def SkipOverflowPass : Pass<"memopt-skip-overflow", "::mlir::ModuleOp"> {
  let summary = "Let a step whose gradients are not finite change nothing but the scale of the loss";
  let description = [{
    In a step whose loss is scaled by `@loss_scale`, every write of state becomes a choice between the new value and
    the old one, which stays where a gradient is not finite. `@loss_scale.skipped_steps` counts such steps, and
    optimizers number their updates without them. With `dynamic` the scale is multiplied by `backoff-factor` then, and
    by `growth-factor` after each `growth-interval` steps in a row without (torch.amp.GradScaler's meaning).

    Runs behind `memopt-guard-state` and `memopt-split-batch`.
  }];
  let options = [
    Option<"isDynamic", "dynamic", "bool", "true", "Move the scale at all">,
    Option<"growth", "growth-factor", "double", "2.0", "Above 1">,
    Option<"backoff", "backoff-factor", "double", "0.5", "Between 0 and 1">,
    Option<"interval", "growth-interval", "int64_t", "2000", "Steps without overflow before the scale grows">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::memopt::MemoptDialect"];
}

def ChooseLayoutPass : Pass<"memopt-choose-layout", "::mlir::func::FuncOp"> {
  let summary = "Store what convolutions touch with channels last";
  let description = [{
    First decides for every value in which order its dimensions lie in memory: convolutions ask for
    channels-last, and each op carries an order from its operands to its results and back (elementwise ops
    as it is; reductions, broadcasts, reshapes and transposes as their dimensions say). Then rewrites ops to
    work in these orders. A value that an op needs in another order than it has (arguments of the step,
    variables, results, ops with an order of their own such as matmul) is transposed, or reshaped where
    only dimensions of size 1 move. Filters keep their order. Without convolutions nothing changes.

    Runs on the joint graph, before `memopt-lower-to-linalg`, which cuts reductions into chunks along the
    order of memory. Results change in the order of sums only.
  }];
  let options = [
    Option<"printPlan", "print-plan", "bool", "false", "Print the order of each value that has one to stderr">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::tensor::TensorDialect", "::mlir::memopt::MemoptDialect"];
}

def LowerToLinalgPass : Pass<"memopt-lower-to-linalg", "::mlir::func::FuncOp"> {
  let summary = "Turn everything that is not a library call into linalg.generic";
  let description = [{
    Elementwise arith and math ops, activations, norms, softmax, losses, pooling, interpolation, reductions,
    random masks, optimizer steps and gathers become `linalg.generic` on tensors. Broadcasts and transposes
    of their operands become indexing maps, splat constants become scalars. What a library computes
    (`convolution*`, `matmul`, `attention*`), `embedding_backward` and views stay.

    Reductions over leading dimensions of large tensors are made of two stages with a number of chunks that
    only the shape decides, so that results do not depend on the number of threads. Sums accumulate in f32
    at least, scalars of optimizers in f64.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def RecomputeElementwisePass : Pass<"memopt-recompute-elementwise", "::mlir::func::FuncOp"> {
  let summary = "Recompute cheap pointwise values in backward instead of keeping them";
  let description = [{
    Chooses, as a minimum cut over bytes, which forward values stay alive until the backward pass, so that
    everything else backward uses follows from those by pointwise `linalg.generic` and views. Only what is
    chosen is cloned, once for all backward users; clones carry `memopt.clone` and `memopt.phase = "backward"`.
    Results do not change by a bit: a clone evaluates the same scalar operations in the same order.

    Results of library calls, reductions, and gathers from large tables are never recomputed.

    Remark: the bytes kept before and after, and the number of clones.
  }];
  let options = [
    Option<"enabled", "enabled", "bool", "true", "Recompute at all">,
    Option<"print", "print", "bool", "false", "Print the values kept and those recomputed as remarks">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def NarrowFrozenPass : Pass<"memopt-narrow-frozen", "::mlir::ModuleOp"> {
  let summary = "Keep parameters that nobody trains in few bits";
  let description = [{
    Parameters in f32 that are not trainable become variables of bf16, or of codes and scales by block of 64 elements in
    row-major order: int8 with the largest magnitude / 127 as scale, nf4 with the largest magnitude and the table of
    QLoRA. With codes these are matrices, embeddings and filters of at least 4,096 elements; the rest stays f32. With
    `scales` of int8 the scales of nf4 are bytes with one f32 for each 256 of them. Each read is widened by elementwise
    code; of what indices look up, the elements are.

    An evaluation that reads a training's state says of each variable what it is kept in, in the attribute
    `memopt.state_code`, which comes before `code`.

    Remark: the number of parameters, and their bytes before and after.
  }];
  let options = [
    Option<"code", "code", "std::string", "\"f32\"", "bf16, int8, nf4, or f32 for no change">,
    Option<"scales", "scales", "std::string", "\"f32\"", "of nf4: f32 or int8">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def NarrowActivationsPass : Pass<"memopt-narrow-activations", "::mlir::func::FuncOp"> {
  let summary = "Keep activations for the backward pass in few bits";
  let description = [{
    Results of products, convolutions, attention and pointwise ops that follow from the step's inputs and are read by
    the backward pass are rounded behind their producer, and widened in front of their readers there, once for all that
    stand close to each other. All is computed in f32, and forward values do not change; results of reductions, and
    values below 4 KiB, are kept as they are.

    bf16 rounds to nearest. int8 and fp8 (E4M3) have a code for each element and the largest magnitude of each block, as
    many of the last dimensions as have 64 elements; codes are rounded at random, by words that are counted from the
    variables `seed` and `step`. With them values that are bf16 already are narrowed, too.

    With a share below 100 only those made first are narrowed, which wait longest, until they have that many percent of
    the bytes of all.

    Remark: the number of values, and their bytes before and after.
  }];
  let options = [
    Option<"type", "type", "std::string", "\"f32\"", "bf16, int8, fp8, or f32 for no change">,
    Option<"share", "share", "int64_t", "100", "percent of their bytes that are narrowed, the first made first">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def FormKernelsPass : Pass<"memopt-form-kernels", "::mlir::func::FuncOp"> {
  let summary = "Group the ops of a step into kernels and library calls";
  let description = [{
    Afterwards every op of the step is one `memopt.kernel`, one `memopt.library_call`, a `memopt.read`, a
    `memopt.write`, a reshape that only renames a buffer, or the return. Fusion never changes a result's bits:
    a kernel evaluates the same scalar expressions, some of them more than once.

    Views of a library call's operands become element strides and offsets of its descriptor where strides can
    say them; a bias that is added to a convolution or matmul joins the call.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def ReserveExchangePass : Pass<"memopt-reserve-exchange", "::mlir::ModuleOp"> {
  let summary = "Declare the memory in which a device and its host exchange what a step takes and gives";
  let description = [{
    Where kernels are a device's, the host does not reach what they read. A variable `exchange` on the host holds
    inputs, outputs and the numbers that the host writes or reads with each step, from where they are copied; and
    `next_samples` on the device receives the samples of the next batch while kernels still read the last one.
    Both are bytes, planned like any other variable; `memopt-runtime/PackageFormat.h` says what lies where in them.
    For a target whose programs run their kernels themselves nothing is declared.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def VerifyKernelGraphPass : Pass<"memopt-verify-kernel-graph", "::mlir::ModuleOp"> {
  let summary = "Reject ops that the kernel graph does not know";
  let description = [{
    Names every op of the step, bodies of instructions included, that is no instruction, read, write, mark,
    reshape of a buffer or the return, every variable that a block writes twice, and every value of a type that
    no package holds or of too many elements. Runs after `memopt-form-kernels`; passes that plan memory check
    the same before they begin.
  }];
}

def AnnotateInputRangesPass : Pass<"memopt-annotate-input-ranges", "::mlir::func::FuncOp"> {
  let summary = "Note which values of an integer input would index outside a tensor";
  let description = [{
    Sets `memopt.valid_range` on arguments all of whose elements reach indices of a tensor: rows of an
    embedding, classes of a cross entropy. The runtime checks every batch against it, so that generated code
    need not.
  }];
}

def CheckIndicesPass : Pass<"memopt-check-indices", "::mlir::ModuleOp"> {
  let summary = "Check indices and divisors that nothing proves to be allowed while the program runs";
  let description = [{
    Puts a `memopt.check` in front of each use of an index that may lie outside of its tensor, and of an integer
    divisor that may be zero, unless constants, arithmetic and the ranges of inputs prove that it does not.
    Notes the places in `memopt.index_sites` and declares the variable in which the program reports them.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

//===----------------------------------------------------------------------===//
// Kernel graph to planned program
//===----------------------------------------------------------------------===//

def SchedulePass : Pass<"memopt-schedule", "::mlir::ModuleOp"> {
  let summary = "Order the instructions of the kernel graph for the lowest peak";
  let description = [{
    Each instruction runs once; an update of a variable comes after every reader of its old value. Where the peak
    allows it, what frees more bytes than it allocates runs as early as it can, updates above all. Writes whose
    value cannot be made in the variable's own bytes get a copying kernel first.
  }];
  let options = [
    Option<"iterations", "iterations", "int64_t", "-1", "Moves of the search; -1 for a number by size">,
    Option<"threads", "threads", "int", "1", "Threads of the search, for speed only">,
    Option<"hostBudget", "host-budget", "int64_t", "-1", "Bytes of the host that hiding transfers may take; -1 for no limit">,
    Option<"problem", "problem", "std::string", "\"\"", "File to write the planning problem to, for memopt-plan">,
    Option<"cache", "cache", "std::string", "\"\"", "Folder in which answers are found again, for speed only">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def ActivationCheckpointingPass : Pass<"memopt-activation-checkpointing", "::mlir::ModuleOp"> {
  let summary = "Recompute the named modules in the backward pass, keeping their inputs";
  let description = [{
    By hand, as users of other frameworks do, on the kernel graph in its given order. `modules` are fully qualified
    names or globs; each matching module is one segment. What the forward pass takes from one segment into another is
    kept. `segments` cuts the forward pass into equal pieces instead (Chen et al. 2016 take the square
    root of the number of layers).
  }];
  let options = [
    ListOption<"modules", "modules", "std::string", "Names or globs of modules">,
    Option<"segments", "segments", "int64_t", "0", "Number of equal segments of the forward pass">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def OffloadPass : Pass<"memopt-offload", "::mlir::ModuleOp"> {
  let summary = "Keep parameters, optimizer state and activations on the host or on disk";
  let description = [{
    With `optimizer=cpu` the state of the optimizer and each parameter that a kernel updates lie in the memory of the
    host; what updates them runs there, on gradients that are sent there, and the forward pass begins with sending the
    parameters back (Ren et al., ZeRO-Offload). With `parameters=cpu` all parameters lie there, and each pass over them
    sends what it reads. Casts to a narrower type run on the host, so that what is sent is narrow.

    With `activations=cpu` what the forward pass makes for the backward pass is sent to the host and back, but for what
    has less than 4 KiB.

    `nvme` is the same with the disk in the place of the host's memory. Nothing computes on a disk: what is read or
    written there goes through a window of the host, a value that lives from one transfer to the next (Rajbhandari et
    al., ZeRO-Infinity), and updates run on the host. A parameter that both `optimizer` and `parameters` name lies where
    `parameters` says.

    Every value that is read in another space than its own gets a `memopt.transfer_start` and a
    `memopt.transfer_wait`: instructions that the planner moves, and may run again where a value is sent to the
    device. Results do not change by a bit.

    Remark: the variables that moved, their bytes, and the kernels that run on the host.
  }];
  let options = [
    Option<"optimizer", "optimizer", "::mlir::memopt::OffloadTier", "::mlir::memopt::OffloadTier::None",
           "Optimizer state, and the parameters that kernels update", "::mlir::memopt::getOffloadTierValues()">,
    Option<"parameters", "parameters", "::mlir::memopt::OffloadTier", "::mlir::memopt::OffloadTier::None",
           "All parameters", "::mlir::memopt::getOffloadTierValues()">,
    Option<"activations", "activations", "::mlir::memopt::OffloadTier", "::mlir::memopt::OffloadTier::None",
           "What is kept for the backward pass", "::mlir::memopt::getOffloadTierValues()">,
    Option<"fetchesAgain", "fetch-again", "bool", "false",
           "With parameters: once for the forward and once for the backward pass">,
    Option<"leastElements", "least-elements", "int64_t", "4097",
           "Of parameters: smaller ones stay on the device, with their state">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def PackMasksPass : Pass<"memopt-pack-masks", "::mlir::func::FuncOp"> {
  let summary = "Let booleans that wait for the backward pass be bits";
  let description = [{
    A boolean tensor that a kernel makes in the forward pass, such as a dropout mask, and that kernels alone read, some
    of them in the backward pass, is stored with eight elements to a byte: `memopt.pack_bits` in front of the yield,
    `memopt.unpack_bits` behind the operand. Left as they are: tensors below 4 KiB, those whose last dimension is no
    multiple of eight, and all on targets whose kernels do not pack masks.

    Remark: the number of values, and their bytes before and after.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def HoistInvariantsPass : Pass<"memopt-hoist-invariants", "::mlir::ModuleOp"> {
  let summary = "Run once, in front of a loop, what gives the same in each iteration";
  let description = [{
    A kernel in a `memopt.repeat` that reads only what the loop does not change, such as the cast of a parameter to
    bf16, gives the same bits in each iteration, and in the backward pass again. Behind the search for a plan each of
    them runs once, in front of the loop, and its result lives through it, as long as the bytes of all such results fit
    between the planned arena and the budget; those come first that save most time for their bytes. Without a budget all
    do. Numbers keep their bits.

    Of what is left weights are packed in front of the loop, which convolutions of the target's library pack in each run
    where they are plain (`getPackedWeightBytes`). They take twice the bytes of the parameters, one layout for the
    convolution and one for the gradient of its input, so that happens within a budget alone.

    Remark: the number of kernels that left and of weights that are packed, and the bytes that live through loops for it.
  }];
  let options = [
    Option<"budget", "budget", "int64_t", "-1", "Bytes the device arena may have; -1 for no limit">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def RematerializePass : Pass<"memopt-rematerialize", "::mlir::ModuleOp"> {
  let summary = "Meet a byte budget by running kernels and library calls again";
  let description = [{
    Clones instructions of the kernel graph, marked `memopt.clone`, so that their results need not be kept. Updates
    of state run once; random bits are counter-based, so clones give the same bits. Without a budget, or when the
    graph fits as it is, nothing changes.

    With `swaps` what the forward pass keeps may be sent to the host instead, and back, where that costs less: both
    ways are searched together, under `budget` and `host-budget`, and beside recomputation alone.

    The plan is the cheapest point within the budget of a frontier that follows from the graph alone, so more bytes
    never give a slower plan.
  }];
  let options = [
    Option<"budget", "budget", "int64_t", "-1", "Bytes the device arena may have; -1 for no limit">,
    Option<"hostBudget", "host-budget", "int64_t", "-1", "Bytes the host arena may have; -1 for no limit">,
    Option<"swaps", "swaps", "bool", "false", "Values may be stored on the host and fetched again">,
    Option<"iterations", "iterations", "int64_t", "-1", "Moves of the search; -1 for a number by size">,
    Option<"threads", "threads", "int", "1", "Threads of the search, for speed only">,
    Option<"problem", "problem", "std::string", "\"\"", "File to write the planning problem to, for memopt-plan">,
    Option<"cache", "cache", "std::string", "\"\"", "Folder in which answers are found again, for speed only">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def PlanMemoryPass : Pass<"memopt-plan-memory", "::mlir::ModuleOp"> {
  let summary = "Give every buffer an offset in the arena of its space";
  let description = [{
    Input: the kernel graph. Output: the planned program, in which every instruction carries `offsets` (one
    byte offset per result, then one per workspace), variables `offset`, function arguments `memopt.offset`,
    library calls their `number` in the package's list, and the module `memopt.planned` with the arenas'
    heights. Each space has an arena of its own.

    A `memopt.write` whose value may not be made in the variable's own buffer gets a copying kernel first.
    The layout comes from Planning's arena solver and is checked by its validator.

    Fails when the arena is above `budget`; the message names the smallest budget that this plan needs and
    the largest values alive at the peak with their modules.
  }];
  let options = [
    Option<"budget", "budget", "int64_t", "-1", "Bytes the device arena may have; -1 for no limit">,
    Option<"hostBudget", "host-budget", "int64_t", "-1", "Bytes the host arena may have; -1 for no limit">,
    Option<"diskBudget", "disk-budget", "int64_t", "-1", "Bytes on disk; -1 for no limit">,
    Option<"iterations", "iterations", "int64_t", "::mlir::memopt::kArenaIterations", "Search work of the arena solver">,
    Option<"cache", "cache", "std::string", "\"\"", "Folder in which answers are found again, for speed only">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def VerifyPlannedPass : Pass<"memopt-verify-planned", "::mlir::ModuleOp"> {
  let summary = "Reject a planned program with overlapping live buffers or missing offsets";
  let description = [{
    Runs the program in the abstract, with a map from the bytes of each space to the value that was last written
    there: every operand must still own its bytes, whatever is in flight both of its ends until its wait, and
    every variable at the end the bytes of what was written to it. Bodies of loops run twice, which shows what
    one iteration leaves for the next. Nothing of the planner's live ranges is used.
  }];
}

#endif // MEMOPT_TRANSFORMS_PASSES_TD
