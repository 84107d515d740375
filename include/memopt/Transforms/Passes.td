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
  let summary = "Fuse convolutions with batch norms that use running statistics";
  let description = [{
    Works on the imported graph, for training or evaluation. A convolution (also with groups, or transposed) or a linear
    layer is fused with the batch norm that follows it, if the norm uses running statistics: `conv(x, W) * s + t` becomes
    `conv(x, W * s) + t`. The filter and the bias are scaled in every step. Gradients of the filter, the bias and the
    norm's two vectors follow by autodiff, and are those of the first form. The result of the convolution is not kept
    for them.

    `modules` are names or globs of modules that hold the norms, or "all". Norms that cannot be fused stay as they are.
    The module's `memopt.efficient_conv_bn_eval` has the result for each norm. A pattern that matches no norm is an error.

    Remarks: for every norm the module, the bytes of the result that need not be kept, and the bytes of the scaled
    filter; or the reason of the refusal.

    Results differ by rounding.
  }];
  let options = [
    ListOption<"modules", "modules", "std::string", "Names or globs of modules, or all">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::tensor::TensorDialect", "::mlir::memopt::MemoptDialect"];
}

def SinkReluPass : Pass<"memopt-sink-relu", "::mlir::func::FuncOp"> {
  let summary = "Apply a relu after a max pool instead of before it";
  let description = [{
    In the imported graph `max_pool(relu(x))` becomes `relu(max_pool(x))`, if nothing else reads the result of the relu
    or the positions of the largest elements. The backward pass then needs the small value instead of the large one. Results and gradients
    keep their bits.

    Remark: bytes of the rectified value before and after.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def RollLoopsPass : Pass<"memopt-roll-loops", "::mlir::ModuleOp"> {
  let summary = "Find loops that are written out, and make them loops again";
  let description = [{
    Works on the imported graph. A model's loop arrives written out, turn by turn. Where the same ops follow each other
    `least-turns` times or more, and each operand is a fixed value, a slice of one value, a result of the same turn or
    of one of the three turns before, in all turns alike, the ops become `memopt.scan`. Long loops become several, so
    that budgets can run some of them again. A product of a slice and a fixed matrix is taken once for all turns of a
    loop. A concatenation of what the turns leave becomes the stacked result.

    Left written out: chains of elementwise ops without slices, which are one kernel; bodies that draw random numbers,
    sum or normalize over samples, merge them with another dimension, or index.

    Losses keep their values up to the rounding of sums: the gradient of a weight is one product over all turns.

    Remark: the number of turns and of ops in each.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect"];
  let options = [
    Option<"leastTurns", "least-turns", "int64_t", "16", "The number of turns from which on a loop is made">
  ];
}

def PadChannelsPass : Pass<"memopt-pad-channels", "::mlir::func::FuncOp"> {
  let summary = "Pad channels with zeros so that tensor cores can be used";
  let description = [{
    Works on the imported graph, for devices. A 16-bit convolution with one group needs a multiple of eight input
    channels for tensor cores. If it has another number, channels of zeros are added to the input and the filter, unless
    the input would become larger than the result. The gradients have the padded channels, too; the gradient of the
    pad removes them.

    Remark: bytes of the padded input.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def WriteOutAttentionPass : Pass<"memopt-write-out-attention", "::mlir::func::FuncOp"> {
  let summary = "Write attention out as products and a softmax, if the target cannot compute it";
  let description = [{
    Works on the imported graph, for targets whose libraries do not compute attention. It rewrites attention whose heads
    are too wide for the tiles of kernels (`fitsAttentionTiles`), if nothing reads the logarithms of sums. Scores are a
    product of queries and keys in f32 or wider. Masked scores become the lowest number. The probabilities of a softmax,
    after dropout, are multiplied with the values. Grouped queries of one head of keys are rows of one product. The
    matrix of scores is a value of the graph, and its memory is planned like any other.

    Remark: bytes of the scores.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def WriteOutPatchesPass : Pass<"memopt-write-out-patches", "::mlir::func::FuncOp"> {
  let summary = "Write convolutions over separate patches as products";
  let description = [{
    Works on the imported graph, for devices. A convolution becomes a product of its patches and filters if its windows
    neither overlap nor leave elements out (strides equal the kernel's sizes, no padding, one group). The patch embedding
    of a vision transformer is an example. Its gradients are products, too.

    Remark: bytes of the patches.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::tensor::TensorDialect"];
}

def WriteOutRankSumsPass : Pass<"memopt-write-out-rank-sums", "::mlir::func::FuncOp"> {
  let summary = "Write sums over ranks as an exchange of terms and a kernel that adds";
  let description = [{
    Works for devices, where only kernels add. `all_reduce` and `reduce_scatter` become an exchange of terms, and
    additions from zero in the order of the ranks; for `all_reduce` a gather follows. The terms are a value of the graph,
    and their memory is planned like any other. Small tensors are gathered whole, and every rank adds all terms.
    The terms of more than 8 ranks are added in a loop, so the program does not grow with the ranks.
  }];
  let options = [
    Option<"library", "library", "bool", "false", "Leave sums to the device's library where it can compute them">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def MixedPrecisionPass : Pass<"memopt-mixed-precision", "::mlir::ModuleOp"> {
  let summary = "Multiply and keep bf16 or f16 numbers, compute the rest in f32";
  let description = [{
    Works on the imported graph, for training or evaluation. Operands of matmul, convolution and attention are rounded to
    `type`. Sums stay in f32; they are rounded once, after the bias is added. A value that follows only from rounded
    values is rounded where it is kept, as in torch.autocast. Norms, softmax and pools compute in f32. Variables stay f32:
    casts of parameters are ops of the step. Autodiff differentiates the casts. So the backward pass also multiplies and
    keeps narrow values, and gradients of parameters are f32.

    Unchanged are f64, integers, and products that neither a trainable parameter nor a floating-point input reaches.

    Without `master-weights` trainable parameters become bf16 variables, and their initial values are rounded.

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

    Backward ops carry `memopt.phase = #memopt.phase<backward>` and the location of the op that they differentiate.
    No op is made that no gradient needs.

    An op without a rule between a trainable parameter and the loss is an error that names both.

    With `loss-scale` the backward pass starts from the variable `@loss_scale` (f32, with this initial value) instead of
    1. Gradients of parameters are divided by it where they are complete. So small values of the backward pass do not
    become zero in f16.
  }];
  let options = [
    Option<"lossScale", "loss-scale", "double", "0.0", "Initial scale of the loss; 0: no scale">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::memopt::MemoptDialect"];
}

def InsertOptimizerPass : Pass<"memopt-insert-optimizer", "::mlir::ModuleOp"> {
  let summary = "Update the parameters from their gradients";
  let description = [{
    Declares the state of the optimizer. For each parameter whose gradient `memopt.gradient` marks, adds one
    `memopt.optimizer_step` and the writes. `settings` are options of memopt-compile, without dashes and separated by
    blanks: `optimizer=adamw betas=0.9,0.95 param-group=*.bias:weight-decay=0`.

    The learning rate is the variable `@lr` (f64, with the initial value `lr`), and the number of the step is `@step`
    (i64, from 1). The runtime writes both. Groups of parameters with a rate of their own have `@lr.1`, `@lr.2`, ...
    With `hyperparameters=inputs` among the settings, momentum, betas and weight decay are such variables, too:
    `@hyperparameter.momentum`, and `@hyperparameter.momentum.1` beside `@lr.1`. The state of parameter `p` is the
    variable `optimizer.<slot>.p`; a slot is a name such as "momentum" or "exp_avg". Codes of 8 bits have
    `optimizer.<slot>.scale.p`, one scale for each block of 256.

    With `zero-stage` 1 to 3 each rank updates its shard: the op reads the rank's part of parameter and gradient as a
    vector, and a gather gives the new parameter. The size of a shard is a multiple of 16 elements unless it has fewer;
    with state in 8 bits it is a multiple of a block. Fails at an optimizer that does not update each element by itself.

    The update of a bf16 parameter is computed in f32 and rounded at random (`memopt.stochastic_round`). The random
    bits are counted, from `@seed`.
  }];
  let options = [
    Option<"settings", "settings", "std::string", "\"\"", "Options of memopt-compile about optimizers">,
    Option<"maxGradNorm", "max-grad-norm", "double", "0.0",
           "Scale gradients down to this global norm; 0 leaves them alone">,
    Option<"ranks", "ranks", "int64_t", "1", "Processes that run the step together">,
    Option<"zeroStage", "zero-stage", "int64_t", "0",
           "From 1 on each rank keeps the optimizer's state of its shard of a parameter, and updates this shard">,
    Option<"formsUnits", "units", "bool", "true", "Cut small parameters over ranks together">
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

    If the step is also cut into parts, memopt-split-batch sets the size, after autodiff, because the samples of a larger
    batch are still distinct there. A step that was exported with one sample is an exception (`only-of-one`), and gets
    its size here: the gradients of values that all samples share are summed over samples only if there were several
    samples before autodiff.
  }];
  let options = [
    Option<"size", "size", "int64_t", "0", "Samples in a batch; 0 leaves them as they are">,
    Option<"onlyOfOne", "only-of-one", "bool", "false", "Leave a step of several samples as it is">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def GuardStatePass : Pass<"memopt-guard-state", "::mlir::ModuleOp"> {
  let summary = "Change no state before the loss is known";
  let description = [{
    Puts `memopt.commit` after the loss. Every write of a parameter, buffer or optimizer state is moved after it,
    together with the ops that are only used by these writes. A step that the runtime refuses at this point has changed
    nothing. Steps without a loss or without writes stay as they are.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def SplitBatchPass : Pass<"memopt-split-batch", "::mlir::ModuleOp"> {
  let summary = "Accumulate the gradients of several micro-batches before one update";
  let description = [{
    The forward and the backward pass become the body of a `memopt.repeat`. With `batches` each iteration takes one batch
    of the graph's size. With `parts` a batch is cut into this number of micro-batches. Both may be combined. Sums over
    samples are accumulated in variables of role `gradient`, in the order of the iterations; the update and the loss use
    the totals. The result is that of one batch with all samples, with two exceptions: the order of sums, and statistics
    of a batch (batch normalization). These statistics are those of each micro-batch, and running statistics move once
    for each. A remark names the modules.

    The body may need a total itself: the gradient of a mean divides by the number of valid targets. A separate repeat
    in front computes such a total, and contains only the ops that it needs.

    With `size` a batch gets another number of samples first. (Samples must be distinct to be cut. They are no longer
    distinct after a batch of one sample was set and folded, so the size is set here.)

    With `ranks` the step runs on this number of processes, each on its own batches. Sums are taken over the ranks in
    their order (`memopt.collective`). The result has the bits of one rank with one iteration for each rank. Without
    iterations there is no repeat. Every rank moves running statistics for all ranks. With `sync-batch-norm` a batch
    norm uses the statistics of the samples of all ranks, and running statistics move once.

    Fails at an op that mixes samples in another way than by a sum, at a loss that depends on the statistics of a batch,
    and if `parts` does not divide the batch. Runs after `memopt-guard-state`.
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
  let summary = "Keep only a shard of every parameter on each rank";
  let description = [{
    Stage 3 of ZeRO. The variable of a parameter becomes this rank's shard, cut as in its update if it has one. A read is
    followed by an `all_gather`. If a cast narrows the value, the narrow elements are gathered. The result of an update
    is written without a gather. A parameter stays whole if a shard would not be smaller, and if its `memopt.state_code` says
    that it will be codes, whose blocks are not cut.

    Parameters that are updated as one vector (`memopt.pack`) become one joined variable, which is gathered once for all of
    them. Small frozen parameters that are read alike are cut together, too.

    An evaluation that reads a training's state says of each variable which part a rank has, in the attribute
    `memopt.state_shard`; its reads are gathered in the same way.

    Runs after `memopt-insert-optimizer` with a `zero-stage`, and after `memopt-split-batch`.
  }];
  let options = [
    Option<"ranks", "ranks", "int64_t", "1", "Processes that run the step together">,
    Option<"gathersAgain", "gather-again", "bool", "false", "Once for the forward and once for the backward pass">,
    Option<"formsUnits", "units", "bool", "true", "Cut small frozen parameters together">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memopt::MemoptDialect"];
}

def SkipOverflowPass : Pass<"memopt-skip-overflow", "::mlir::ModuleOp"> {
  let summary = "If gradients are not finite, change nothing but the scale of the loss";
  let description = [{
    Works on a step whose loss is scaled by `@loss_scale`. Every write of state becomes a choice between the new and the
    old value; the old value is kept if a gradient is not finite. `@loss_scale.skipped_steps` counts such steps, and
    optimizers do not count them. With `dynamic` the scale is multiplied by `backoff-factor` after such a step, and by
    `growth-factor` after `growth-interval` other steps in a row, as in torch.amp.GradScaler.

    Runs after `memopt-guard-state` and `memopt-split-batch`.
  }];
  let options = [
    Option<"isDynamic", "dynamic", "bool", "true", "Adapt the scale">,
    Option<"growth", "growth-factor", "double", "2.0", "Above 1">,
    Option<"backoff", "backoff-factor", "double", "0.5", "Between 0 and 1">,
    Option<"interval", "growth-interval", "int64_t", "2000", "Steps without overflow before the scale grows">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::memopt::MemoptDialect"];
}

def ChooseLayoutPass : Pass<"memopt-choose-layout", "::mlir::func::FuncOp"> {
  let summary = "Store the operands and results of convolutions with channels last";
  let description = [{
    First decides for every value the order of its dimensions in memory. Convolutions ask for channels-last. Each op
    passes an order from its operands to its results and back: elementwise ops unchanged; reductions, broadcasts,
    reshapes and transposes according to their dimensions. Then rewrites ops to work in these orders. Some values are
    needed in another order than they have: arguments of the step, variables, results, and operands of ops with an order
    of their own such as matmul. They are transposed, or reshaped if only dimensions of size 1 move. Filters keep their
    order. Without convolutions nothing changes.

    Runs on the joint graph, before `memopt-lower-to-linalg`, which cuts reductions into chunks along the order of
    memory. Results change only in the order of sums.
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

    Reductions over leading dimensions of large tensors have two stages. The number of chunks follows only from the
    shape, so results do not depend on the number of threads. Sums accumulate in f32 or wider, scalars of optimizers in
    f64.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def RecomputeElementwisePass : Pass<"memopt-recompute-elementwise", "::mlir::func::FuncOp"> {
  let summary = "Recompute cheap pointwise values in backward instead of keeping them";
  let description = [{
    Chooses the forward values that stay alive until the backward pass, by a minimum cut over bytes. All other values
    that the backward pass uses are recomputed from these by pointwise `linalg.generic` and views. Each recomputed op is
    cloned once for all backward users that are close to each other, as the loops of one sequence are; clones carry
    `memopt.clone` and `memopt.phase = #memopt.phase<backward>`.
    Results do not change by a bit: a clone evaluates the same scalar operations in the same order.

    Never recomputed are results of library calls, reductions, and gathers from large tables.

    Remark: the bytes kept before and after, and the number of clones.
  }];
  let options = [
    Option<"enabled", "enabled", "bool", "true", "Recompute; false: change nothing">,
    Option<"print", "print", "bool", "false", "Print the values kept and those recomputed as remarks">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def NarrowFrozenPass : Pass<"memopt-narrow-frozen", "::mlir::ModuleOp"> {
  let summary = "Keep frozen parameters in few bits";
  let description = [{
    f32 parameters that are not trainable become variables of bf16, or of codes and scales by block of 64 elements in
    row-major order. int8 has the largest magnitude / 127 as scale; nf4 has the largest magnitude, and the table of
    QLoRA. Codes are used for matrices, embeddings and filters of at least 4,096 elements; others stay f32. With `scales`
    of int8 the scales of nf4 are bytes, with one f32 for each 256 of them. Elementwise code widens each read. Of a
    table that indices look up, only the selected elements are widened.

    An evaluation that reads a training's state says of each variable what it is kept in, in the attribute
    `memopt.state_code`, which comes before `code`.

    Remark: the number of parameters, and their bytes before and after.
  }];
  let options = [
    Option<"code", "code", "std::string", "\"f32\"", "bf16, int8, nf4, or f32 for no change">,
    Option<"scales", "scales", "std::string", "\"f32\"", "Type of the scales of nf4: f32 or int8">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def NarrowActivationsPass : Pass<"memopt-narrow-activations", "::mlir::func::FuncOp"> {
  let summary = "Keep activations for the backward pass in few bits";
  let description = [{
    Narrows results of products, convolutions, attention and pointwise ops that follow from the step's inputs and that
    the backward pass reads. They are rounded after their producer, and widened before their readers in the backward
    pass, once for readers close to each other. Everything is computed in f32, and forward values do not change. Results
    of reductions, and values below 4 KiB, stay as they are.

    bf16 rounds to nearest. int8 and fp8 (E4M3) have a code for each element and the largest magnitude of each block. A
    block is as many of the last dimensions as have 64 elements together. Codes are rounded at random, by words that are
    counted from the variables `seed` and `step`. int8 and fp8 also narrow values that are bf16 already.

    The values that may be narrowed have numbers from 0, in the order in which they are made; `only` narrows some of
    them. With a `choice` the numbers are noted on the ops, as `memopt.activations`: memopt-rematerialize
    says which of those that stay wide a plan would narrow.

    Remark: the number of values, and their bytes before and after.
  }];
  let options = [
    Option<"type", "type", "std::string", "\"f32\"", "bf16, int8, fp8, or f32 for no change">,
    ListOption<"only", "only", "int64_t", "Numbers of the activations that are narrowed; none for all">,
    Option<"choice", "choice", "std::string", "\"f32\"", "Type that a plan may choose for single activations: bf16, int8, fp8, or f32 for no numbers">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def FormKernelsPass : Pass<"memopt-form-kernels", "::mlir::func::FuncOp"> {
  let summary = "Group the ops of a step into kernels and library calls";
  let description = [{
    Afterwards every op of the step is a `memopt.kernel`, a `memopt.library_call`, a `memopt.read`, a `memopt.write`, a
    reshape that only renames a buffer, or the return. Fusion never changes the bits of a result: a kernel evaluates the
    same scalar expressions, some of them more than once.

    Views of a library call's operands become strides and offsets of its descriptor, where strides can express them. A
    bias that is added to a convolution or matmul becomes part of the call.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def ReserveExchangePass : Pass<"memopt-reserve-exchange", "::mlir::ModuleOp"> {
  let summary = "Declare the memory through which host and device exchange inputs and outputs";
  let description = [{
    Kernels of a device read memory that the host cannot access. The variable `exchange` on the host holds inputs,
    outputs and the numbers that the host writes or reads with each step; they are copied from and to it. The variable
    `next_samples` on the device receives the samples of the next batch while kernels still read the previous one. Both
    are bytes, planned like any other variable; `memopt-runtime/PackageFormat.h` has their layout. For processors nothing
    is declared.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def VerifyKernelGraphPass : Pass<"memopt-verify-kernel-graph", "::mlir::ModuleOp"> {
  let summary = "Reject ops that are not part of the kernel graph";
  let description = [{
    Reports every op of the step, bodies of instructions included, that is not an instruction, a read, a write, a mark, a
    reshape of a buffer or the return. Also reports every variable that a block writes twice, and every value with too
    many elements or with a type that packages cannot hold. Runs after `memopt-form-kernels`. Passes that plan memory
    check the same first.
  }];
}

def AnnotateInputRangesPass : Pass<"memopt-annotate-input-ranges", "::mlir::func::FuncOp"> {
  let summary = "Note which values of an integer input would index outside a tensor";
  let description = [{
    Sets `memopt.valid_range` on arguments if all of their elements become indices of a tensor: rows of an embedding,
    classes of a cross entropy. The runtime checks every batch against this range, so generated code need not check.
  }];
}

def CheckIndicesPass : Pass<"memopt-check-indices", "::mlir::ModuleOp"> {
  let summary = "Check indices and divisors at run time, unless they are proven to be valid";
  let description = [{
    Puts a `memopt.check` before each use of an index that may lie outside of its tensor, and of an integer divisor that
    may be zero, unless constants, arithmetic and the ranges of inputs prove that it is valid. Lists the places in
    `memopt.index_sites`, and declares the variable in which the program reports faults.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

//===----------------------------------------------------------------------===//
// Kernel graph to planned program
//===----------------------------------------------------------------------===//

def SchedulePass : Pass<"memopt-schedule", "::mlir::ModuleOp"> {
  let summary = "Order the instructions of the kernel graph for the lowest peak";
  let description = [{
    Each instruction runs once. An update of a variable comes after every reader of its old value. If the peak allows
    it, an instruction that frees more bytes than it allocates runs as early as possible; updates are the main case. If
    the value of a write cannot be made in the variable's own bytes, a copying kernel is added first.

    Blocks are ordered from the inside to the outside, each by the same search, for what a body needs at its peak is
    scratch of its loop. The block where the activations live is the last loop over micro-batches, or else the step; any
    other block keeps its order unless another one is lower, or as low and faster.
  }];
  let options = [
    Option<"iterations", "iterations", "int64_t", "-1", "Moves of the search; -1 for a number by size">,
    Option<"threads", "threads", "int", "1", "Threads of the search, for speed only">,
    Option<"hostBudget", "host-budget", "int64_t", "-1", "Bytes of the host that may be used to hide transfers; -1 for no limit">,
    Option<"problem", "problem", "std::string", "\"\"", "File to write the planning problem to, for memopt-plan">,
    Option<"cache", "cache", "std::string", "\"\"", "Folder of cached answers, for speed only">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def ActivationCheckpointingPass : Pass<"memopt-activation-checkpointing", "::mlir::ModuleOp"> {
  let summary = "Recompute the named modules in the backward pass, keeping their inputs";
  let description = [{
    Recomputation by hand, as in other frameworks, on the kernel graph in its given order. `modules` are fully qualified
    names or globs; each matching module is one segment. Values that pass from one segment to another are kept.
    `segments` cuts the forward pass into equal pieces instead (Chen et al. 2016 use the square root of the number of
    layers).
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
    With `optimizer=cpu` the optimizer's state, and each parameter that a kernel updates, lie in the memory of the host.
    Updates run there, on gradients that are sent to the host. The forward pass begins with sending the parameters back
    (Ren et al., ZeRO-Offload). With `parameters=cpu` all parameters lie there, and each pass over them sends what it
    reads. Casts to a narrower type run on the host, so fewer bytes are sent.

    With `activations=cpu` the values that the forward pass makes for the backward pass are sent to the host and back, if
    they have 4 KiB or more.

    `nvme` is the same with the disk instead of the host's memory. A value that is read from or written to the disk goes
    through a window on the host, a value that lives from one transfer to the next (Rajbhandari et al., ZeRO-Infinity);
    updates run on the host. If both `optimizer` and `parameters` name a parameter, `parameters` decides.

    Every value that is read in another space than its own gets a `memopt.transfer_start` and a `memopt.transfer_wait`.
    The planner moves these instructions, and may repeat transfers to the device. Results do not change by a bit.

    Remark: the variables that moved, their bytes, and the kernels that run on the host.
  }];
  let options = [
    Option<"optimizer", "optimizer", "::mlir::memopt::OffloadTier", "::mlir::memopt::OffloadTier::None",
           "Optimizer state, and the parameters that kernels update", "::mlir::memopt::getOffloadTierValues()">,
    Option<"parameters", "parameters", "::mlir::memopt::OffloadTier", "::mlir::memopt::OffloadTier::None",
           "All parameters", "::mlir::memopt::getOffloadTierValues()">,
    Option<"activations", "activations", "::mlir::memopt::OffloadTier", "::mlir::memopt::OffloadTier::None",
           "Values that are kept for the backward pass", "::mlir::memopt::getOffloadTierValues()">,
    Option<"fetchesAgain", "fetch-again", "bool", "false",
           "With parameters: once for the forward and once for the backward pass">,
    Option<"leastElements", "least-elements", "int64_t", "4097",
           "Of parameters: smaller ones stay on the device, with their state">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def PackMasksPass : Pass<"memopt-pack-masks", "::mlir::func::FuncOp"> {
  let summary = "Store booleans as bits until the backward pass";
  let description = [{
    A boolean tensor, such as a dropout mask, is stored with eight elements in a byte if a kernel makes it in the forward
    pass, and only kernels read it, some of them in the backward pass: `memopt.pack_bits` before the yield,
    `memopt.unpack_bits` after the operand. Tensors below 4 KiB stay as they are, and so do those whose last dimension is
    not a multiple of eight.

    Remark: the number of values, and their bytes before and after.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def HoistInvariantsPass : Pass<"memopt-hoist-invariants", "::mlir::ModuleOp"> {
  let summary = "Run kernels with the same result in each iteration once, before the loop";
  let description = [{
    A kernel in a `memopt.repeat` that reads only values that the loop does not change gives the same bits in each
    iteration, and again in the backward pass. The cast of a parameter to bf16 is an example. After the search for a
    plan, such kernels run once, before the loop, and their results are alive through the loop. Within a budget this is
    done as long as all these results fit between the planned arena and the budget, first for kernels that save most
    time for their bytes. Without a budget it is done for all. Results keep their bits.

    With the remaining bytes, weights are packed before the loop, if the target's library packs plain weights in each run
    (`getPackedWeightBytes`): those of convolutions, and of products of few rows. Packed weights take twice the bytes of the
    parameters: one layout for the forward call, and one for the gradient of its input. So this is only done within a
    budget. In front of a `memopt.scan` it is done without a budget, too: such weights live through the scan alone. Scans
    of one phase that read the same packed weights share them, from the first to the last, where the arena stays within
    the budget, or without one grows by at most two percent.

    Remark: the number of kernels that moved and of weights that are packed, and the bytes that are alive through loops.
  }];
  let options = [
    Option<"budget", "budget", "int64_t", "-1", "Bytes the device arena may have; -1 for no limit">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def RematerializePass : Pass<"memopt-rematerialize", "::mlir::ModuleOp"> {
  let summary = "Meet a byte budget by running kernels and library calls again";
  let description = [{
    Clones instructions of the kernel graph, marked `memopt.clone`, so that their results need not be kept. Updates of
    state run once. Random bits are counted, so clones give the same bits. Without a budget, or if the graph already
    fits, nothing changes.

    With `swaps` values of the forward pass may be sent to the host and back instead, if that costs less. Both ways are
    searched together, under `budget` and `host-budget`, and also recomputation alone.

    The frontier of time against bytes follows only from the graph. The plan is its cheapest point within the budget, so
    more bytes never give a slower plan.

    With `activations` the plan itself stays as it would be without. Of the activations that memopt-narrow-activations has
    numbered, the search says which the cheapest plan within the budget would keep in this type, in the attribute
    `memopt.chosen_activations` of the module: a kernel graph in which these are narrowed can then be formed.
  }];
  let options = [
    Option<"budget", "budget", "int64_t", "-1", "Bytes the device arena may have; -1 for no limit">,
    Option<"hostBudget", "host-budget", "int64_t", "-1", "Bytes the host arena may have; -1 for no limit">,
    Option<"swaps", "swaps", "bool", "false", "Values may be stored on the host and fetched again">,
    Option<"activations", "activations", "std::string", "\"f32\"", "Type for which to say what a plan would narrow: bf16, int8, fp8, or f32 for nothing">,
    Option<"iterations", "iterations", "int64_t", "-1", "Moves of the search; -1 for a number by size">,
    Option<"threads", "threads", "int", "1", "Threads of the search, for speed only">,
    Option<"problem", "problem", "std::string", "\"\"", "File to write the planning problem to, for memopt-plan">,
    Option<"cache", "cache", "std::string", "\"\"", "Folder of cached answers, for speed only">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def OverlapCollectivesPass : Pass<"memopt-overlap-collectives", "::mlir::ModuleOp"> {
  let summary = "Let collectives run beside computation";
  let description = [{
    Collectives of a planned order become `memopt.collective_start` and `memopt.collective_wait`. Starts move towards the
    front and waits towards the back, as far as the arena does not grow beyond `budget`. Without a budget no more bytes are
    alive than without overlap, and gaps may add two percent to the arena. Gradients that are sent are computed as early as
    these bytes allow. A pair that stays together becomes one instruction again. Results do not change by a bit.

    Remark: the number of collectives that run beside something.
  }];
  let options = [
    Option<"budget", "budget", "int64_t", "-1", "Bytes the device arena may have; -1 for no limit">,
    Option<"hostBudget", "host-budget", "int64_t", "-1", "Bytes of the host that may be used to hide transfers; -1 for no limit">,
    Option<"cache", "cache", "std::string", "\"\"", "Folder of cached answers, for speed only">
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

    If the value of a `memopt.write` may not be made in the variable's own buffer, a copying kernel is added first. The
    arena solver of Planning finds the layout, and its validator checks it.

    Fails if the arena is above `budget`. The message names the smallest budget that this plan needs, and the largest
    values alive at the peak with their modules.
  }];
  let options = [
    Option<"budget", "budget", "int64_t", "-1", "Bytes the device arena may have; -1 for no limit">,
    Option<"hostBudget", "host-budget", "int64_t", "-1", "Bytes the host arena may have; -1 for no limit">,
    Option<"diskBudget", "disk-budget", "int64_t", "-1", "Bytes on disk; -1 for no limit">,
    Option<"iterations", "iterations", "int64_t", "::mlir::memopt::kArenaIterations", "Search work of the arena solver">,
    Option<"cache", "cache", "std::string", "\"\"", "Folder of cached answers, for speed only">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
}

def VerifyPlannedPass : Pass<"memopt-verify-planned", "::mlir::ModuleOp"> {
  let summary = "Reject a planned program with overlapping live buffers or missing offsets";
  let description = [{
    Simulates the program, with a map from the bytes of each space to the value that was last written there. Every
    operand must still own its bytes. A transfer must own both of its ends until its wait. At the end every variable must
    own the bytes of the value that was written to it. Bodies of loops run twice, which shows what one iteration leaves
    for the next. The live ranges of the planner are not used.
  }];
}

#endif // MEMOPT_TRANSFORMS_PASSES_TD
