//===- MemoptInterfaces.td - contracts between ops and passes -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rules live on ops, passes only walk: a new op joins a pass by implementing the interface. Upstream
// ops (arith, math, tensor, linalg) get theirs as external models.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_INTERFACES_MEMOPTINTERFACES_TD
#define MEMOPT_INTERFACES_MEMOPTINTERFACES_TD

include "memopt/Interfaces/MemoptEnums.td"
include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let description = [{
    Reverse-mode differentiation (Griewank and Walther, Evaluating Derivatives, chapter 3). The autodiff
    pass visits ops from the loss backwards and asks each for the gradients of its operands.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<[{
        Builds the ops that map gradients of the results to gradients of the operands, at the builder's
        insertion point, which every operand and result of the op dominates. `resultGradients` has one
        entry per result, null where no gradient flows. `operandGradients` comes with one null entry per
        operand; the rule fills those operands that have a gradient, each of the operand's own type.
        `needed[i]` says whether anybody will use operand i's gradient; work for others may be skipped.
        Fails, with a diagnostic, when the op has no gradient for this use.
      }],
      "::llvm::LogicalResult", "differentiate",
      (ins "::mlir::OpBuilder &":$builder, "::llvm::ArrayRef<::mlir::Value>":$resultGradients,
           "::llvm::ArrayRef<bool>":$needed, "::llvm::MutableArrayRef<::mlir::Value>":$operandGradients)>,
    InterfaceMethod<"Whether a gradient may flow to operand `operand`; autodiff looks behind no other.",
      "bool", "passesGradient", (ins "unsigned":$operand), "", [{ return true; }]>,
    InterfaceMethod<[{
        Whether the op says something about gradients and computes nothing: its results are its first
        operands, which take its place once the backward pass is there.
      }],
      "bool", "isGradientMark", (ins), "", [{ return false; }]>
  ];
}

def CostOpInterface : OpInterface<"CostOpInterface"> {
  let description = [{ What an op costs, as plain counts; a machine model turns them into seconds. }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"Floating-point operations of one execution (a multiply-add counts as two).",
      "int64_t", "getFlops", (ins)>,
    InterfaceMethod<"Bytes read from and written to memory by one execution.",
      "int64_t", "getBytesMoved", (ins), "", [{
        return ::mlir::memopt::getOperandAndResultBytes($_op.getOperation());
      }]>
  ];
}

def ScalarOpInterface : OpInterface<"ScalarOpInterface"> {
  let description = [{ An op on scalars that code generation computes, on vectors too. }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    StaticInterfaceMethod<"What one element costs.", "::mlir::memopt::ScalarCost", "getScalarCost", (ins)>
  ];
}

def LayoutOpInterface : OpInterface<"LayoutOpInterface"> {
  let description = [{
    An op that can be told to work on tensors whose dimensions come in another order in memory. Elementwise ops
    of upstream's traits need no rule.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"Without operands where the op ties none, as it stands.", "::mlir::memopt::TiedValues",
      "getTiedValues", (ins)>,
    InterfaceMethod<[{
        Changes attributes that name dimensions of the tied values, which lay row-major and whose dimensions now
        follow `order` (dimensions of the op, outermost first). Not asked of ops that rearrange.
      }],
      "void", "permuteDimensions", (ins "::llvm::ArrayRef<int64_t>":$order), "", [{ return; }]>
  ];
}

def IterationOpInterface : OpInterface<"IterationOpInterface"> {
  let description = [{
    The op as loops over elements (IterationSpace.h). One declaration serves accumulation, compiling for another
    batch size, and sharding over ranks.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"", "::mlir::memopt::IterationSpace", "getIterationSpace", (ins)>,
    InterfaceMethod<[{
        Makes the op compute results of these types, which differ from the present ones in the sizes of loops
        that are no windows; operands have been resized before.
      }],
      "void", "resize", (ins "::mlir::TypeRange":$resultTypes), "", [{
        for (auto [result, type] : ::llvm::zip_equal($_op->getResults(), resultTypes))
          result.setType(type);
      }]>
  ];
}

def RecomputableOpInterface : OpInterface<"RecomputableOpInterface"> {
  let description = [{
    Whether an op may run a second time to get its results back. Updates of running statistics, writes of
    state and reductions across ranks may not.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"Whether a clone of this op gives the same bits and has no other effect.",
      "bool", "isRecomputable", (ins), "", [{ return ::mlir::isPure($_op.getOperation()); }]>
  ];
}

def InPlaceOpInterface : OpInterface<"InPlaceOpInterface"> {
  let description = [{
    Which result may be written over which operand's buffer. By element: every element of the operand is read
    for the last time by the iteration that writes the bytes that replace it. By row: before anything of the
    row is written that replaces it, which takes a target that finishes a row's reads first
    (`TargetAttrInterface::mayWriteOverRows`).
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"The operands whose buffer result `result` may take, by number.",
      "::llvm::SmallVector<::mlir::memopt::InPlaceOperand>", "getInPlaceOperands", (ins "unsigned":$result), "",
      [{ return {}; }]>
  ];
}

def ViewOpInterface : OpInterface<"ViewOpInterface"> {
  let description = [{
    An op that computes nothing: each element of its one result is an element of an operand, or zero. Kernels read
    through views, so that a view has a buffer only where a library or the step's state needs one. All operands
    have the result's element type.

    A `Reshape` gives its operand's elements in their order, and shares its buffer. A `Strided` view is affine in the
    result's indices, so that a library may read it where the operand lies. Both have one part, which fills the
    result; `Assembled` is everything else.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"", "::mlir::memopt::ViewKind", "getViewKind", (ins)>,
    InterfaceMethod<"Boxes of the result that do not overlap; elements in none of them are zeros.",
      "::llvm::SmallVector<::mlir::memopt::ViewPart>", "getViewParts", (ins)>,
    InterfaceMethod<"Whether every element of operand `operand` is in the result.", "bool", "showsWhole",
      (ins "unsigned":$operand), "", [{ return true; }]>
  ];
}

def PrecisionOpInterface : OpInterface<"PrecisionOpInterface"> {
  let description = [{
    How an op joins a graph whose products read narrow numbers (memopt-mixed-precision). An op without this interface
    computes in f32, unless it is a view: views carry any type.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<[{
        The operands that decide whether the op takes its narrow form, in which they and the first result are narrow
        and all others stay f32. Empty where the op has no narrow form.
      }],
      "::llvm::SmallVector<unsigned>", "getFollowedOperands", (ins), "", [{ return {}; }]>,
    InterfaceMethod<[{
        Whether the op computes each element of its one result from elements of its operands: a kernel computes it in
        f32 between what it loads and what it stores, so that only what is kept is rounded.
      }],
      "bool", "isElementwise", (ins), "", [{ return false; }]>,
    InterfaceMethod<[{
        Of an op that a library computes and that gives its first result in the narrow type: the operands that it reads
        in that type. Empty where the op is a product, which reads all operands narrow and gives f32.
      }],
      "::llvm::SmallVector<unsigned>", "getNarrowOperands", (ins), "", [{ return {}; }]>
  ];
}

def ParameterOpInterface : OpInterface<"ParameterOpInterface"> {
  let description = [{
    What operands are for an op that reads parameters. Optimizers ask: norms and embeddings are often kept out of
    weight decay, and Muon takes matrices alone.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"", "::mlir::memopt::ParameterRole", "getParameterRole", (ins "unsigned":$operand)>
  ];
}

def DrawOpInterface : OpInterface<"DrawOpInterface"> {
  let description = [{
    An op that draws random numbers, each by its number among the elements of the draw (docs, CounterBasedRandom). A
    part of a batch draws what the whole batch would, once the op is told where its part begins.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"Whether this op draws: some do only with dropout.", "bool", "drawsNumbers", (ins), "",
      [{ return true; }]>,
    InterfaceMethod<"The shape of the draw, whose elements are numbered row-major.", "::llvm::SmallVector<int64_t>",
      "getDrawShape", (ins)>,
    InterfaceMethod<[{
        The dimension of the draw that dimension `dim` of the first result is; nothing where the op could not number
        a part along it.
      }],
      "::std::optional<unsigned>", "getDrawDimension", (ins "unsigned":$dim)>,
    InterfaceMethod<[{
        Makes the draw a part of a larger one, whose row-major strides are `strides`: `first`, an i64 scalar, is the
        number of the part's first element.
      }],
      "void", "setFirst", (ins "::mlir::Value":$first, "::llvm::ArrayRef<int64_t>":$strides)>
  ];
}

def BatchStatisticsOpInterface : OpInterface<"BatchStatisticsOpInterface"> {
  let description = [{
    An op that normalizes by statistics over dimensions that may hold samples, or the gradient of such an op.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"The statistics: results of the op, or operands of its gradient.",
      "::llvm::SmallVector<::mlir::Value>", "getBatchStatistics", (ins)>,
    InterfaceMethod<[{
        Builds what takes the op's place where the statistics are those of `ranks` ranks together, of which each has
        as many samples. One value for each result; gradients of parameters are still this rank's part.
      }],
      "::llvm::SmallVector<::mlir::Value>", "buildSynchronized",
      (ins "::mlir::OpBuilder &":$builder, "int64_t":$ranks)>
  ];
}

def IndexingOpInterface : OpInterface<"IndexingOpInterface"> {
  let description = [{
    Which operands index tensors. What nothing proves to lie inside is checked while the program runs
    (memopt-check-indices): no data reads or writes outside of a tensor.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"The operands that hold indices, and what they index.",
      "::llvm::SmallVector<::mlir::memopt::IndexUse>", "getIndexUses", (ins)>
  ];
}

def InstructionOpInterface
    : OpInterface<"InstructionOpInterface", [CostOpInterface, RecomputableOpInterface]> {
  let description = [{
    An op of the kernel graph that runs at run time: a kernel, a library call, a loop over instructions, the
    start or the end of something in flight. Each result is one buffer in the space that its type names.
    Passes over the kernel graph know instructions by this interface alone.

    An instruction that starts something returns a token and is done at once; the instruction that takes the
    token waits for it. Between the two what was started owns the bytes of its operands and of its results
    and workspaces: `memopt-verify-planned` proves that nobody else touches them.

    Three facts are attributes of every instruction: the phase that it belongs to, the number of its clone
    (0 for the first instance), and, in the planned program, byte offsets: one for each result that is a
    tensor, then one for each workspace, each in its own space.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"A word for people, such as `kernel` or `matmul`.", "std::string", "getKindName", (ins)>,
    InterfaceMethod<"What it occupies while it runs.", "::mlir::memopt::Resource", "getResource", (ins), "",
      [{ return ::mlir::memopt::Resource::Compute; }]>,
    InterfaceMethod<"Scratch memory that one execution needs beside operands and results.",
      "::llvm::SmallVector<::mlir::memopt::Workspace>", "getWorkspaces", (ins), "", [{ return {}; }]>,
    InterfaceMethod<"What of the machine one execution takes; of bodies it holds, nothing.", "::mlir::memopt::Work",
      "getWork", (ins)>,
    InterfaceMethod<"How many times in a row its regions run, which hold instructions; 1 without such regions.",
      "int64_t", "getRepeatCount", (ins), "", [{ return 1; }]>,
    InterfaceMethod<"Blocks of instructions that run as a part of this one, in order.",
      "::llvm::SmallVector<::mlir::Block *>", "getBodies", (ins), "", [{ return {}; }]>,
    InterfaceMethod<"", "::mlir::memopt::Phase", "getPhase", (ins)>,
    InterfaceMethod<"", "void", "setPhase", (ins "::mlir::memopt::Phase":$phase)>,
    InterfaceMethod<"0 for the first instance of an instruction.", "uint64_t", "getClone", (ins)>,
    InterfaceMethod<"", "void", "setClone", (ins "uint64_t":$number)>,
    InterfaceMethod<"Null before memory is planned.", "::mlir::DenseI64ArrayAttr", "getOffsetsAttr", (ins)>,
    InterfaceMethod<"", "void", "setOffsetsAttr", (ins "::mlir::DenseI64ArrayAttr":$offsets)>
  ];
  let verify = [{ return ::mlir::memopt::verifyInstruction($_op); }];
}

def ListedOpInterface : OpInterface<"ListedOpInterface", [InstructionOpInterface]> {
  let description = [{
    An instruction that the runtime finds in one of the lists of a package, such as `library_calls` or
    `transfers`. Memory planning numbers those of each list from 0.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"The key of the list.", "::llvm::StringRef", "getListName", (ins)>,
    InterfaceMethod<"Its place in the list; nothing before memory is planned.", "::std::optional<uint64_t>",
      "getNumber", (ins)>,
    InterfaceMethod<"", "void", "setNumber", (ins "::std::optional<uint64_t>":$number)>,
    InterfaceMethod<"Its entry, once it is planned.", "::llvm::json::Object", "describe",
      (ins "::mlir::memopt::TargetAttrInterface":$target)>
  ];
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def LibraryCallAttrInterface : AttrInterface<"LibraryCallAttrInterface"> {
  let description = [{
    What a library is asked to compute: everything that a call needs but the addresses of its buffers. Sizes
    and strides count elements. A new kind of call is one attribute, one implementation for each target, and
    its entry in the runtime.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"The kind of call by its name in a package.", "::llvm::StringRef", "getKindName", (ins)>,
    InterfaceMethod<"Floating-point operations of one call (a multiply-add counts as two).",
      "int64_t", "getFlops", (ins)>,
    InterfaceMethod<"What of the machine it takes, for predictions.", "::mlir::memopt::Work", "getWork", (ins)>,
    InterfaceMethod<[{
        The call's views of its buffers, operands first: extents, strides and element type. A view begins at
        an element that the call's op names for operands, and at the first for results.
      }],
      "::llvm::SmallVector<::mlir::memopt::BufferView>", "getViews", (ins)>,
    InterfaceMethod<"How many of the views are operands.", "unsigned", "getNumOperands", (ins)>,
    InterfaceMethod<"The operand that the call adds to its first result, which may take its place.",
      "::std::optional<unsigned>", "getAddend", (ins), "", [{ return ::std::nullopt; }]>,
    InterfaceMethod<"The operand that lies as a result does and whose place this may take.",
      "::std::optional<unsigned>", "getReplaced", (ins "unsigned":$result), "", [{
        return result == 0 ? $_attr.getAddend() : ::std::optional<unsigned>();
      }]>,
    InterfaceMethod<[{
        Bytes of the operand `kPackedOperand` where it is weights in the library's own layout (`memopt.pack_weights`); 0
        where it is plain.
      }],
      "int64_t", "getPackedWeightBytes", (ins), "", [{ return 0; }]>,
    InterfaceMethod<"The same call with weights packed in so many bytes, or plain for 0; null where none are packed.",
      "::mlir::memopt::LibraryCallAttrInterface", "withPackedWeights", (ins "int64_t":$bytes), "",
      [{ return ::mlir::memopt::LibraryCallAttrInterface(); }]>,
    InterfaceMethod<"The description that a package holds and the runtime reads.", "::llvm::json::Object",
      "toJson", (ins)>
  ];
}

def TargetAttrInterface : AttrInterface<"TargetAttrInterface"> {
  let description = [{
    The machine that a module is compiled for, as the module's attribute `memopt.target` names it. All that
    depends on a machine is asked here, so that passes and analyses know none.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"As packages describe it: by its name, or, for a device, by what its kernels and launches were made for.",
      "::llvm::json::Value", "describe", (ins)>,
    InterfaceMethod<"Whether kernels run on a device that the process launches them on.", "bool", "isDevice", (ins), "",
      [{ return false; }]>,
    InterfaceMethod<"The file of a package that holds a device's kernels; empty for a processor.",
      "::llvm::StringRef", "getImageName", (ins), "", [{ return ""; }]>,
    InterfaceMethod<"The machine whose rates costs are predicted from, for people.", "::std::string",
      "describeMachine", (ins)>,
    InterfaceMethod<"Threads that library calls are planned for.", "int64_t", "getThreads", (ins)>,
    InterfaceMethod<[{
        Elements that kernels have to work on at one time to fill the machine; 0 where a few threads do, and what
        counts is that a piece stays in their caches.
      }],
      "int64_t", "getElementsAtOnce", (ins), "", [{ return 0; }]>,
    InterfaceMethod<[{
        The ways in which a library can compute `call`, the preferred one first. Fails, with a diagnostic,
        when there is none.
      }],
      "::llvm::FailureOr<::llvm::SmallVector<::mlir::memopt::CallImplementation>>", "getImplementations",
      (ins "::mlir::memopt::LibraryCallAttrInterface":$call,
           "::llvm::function_ref<::mlir::InFlightDiagnostic()>":$emitError)>,
    InterfaceMethod<[{
        Implementations of `call` with less workspace than the preferred one, each with less than the one
        before. On a processor they give its bits; where a target's do not, a budget may change last bits. A
        package asks for one by the limit of its workspace.
      }],
      "::llvm::SmallVector<::mlir::memopt::CallImplementation>", "getLeanImplementations",
      (ins "::mlir::memopt::LibraryCallAttrInterface":$call), "", [{ return {}; }]>,
    InterfaceMethod<[{
        Bytes of the weights of `call` as the library reads them, where it packs them in each run and would take them
        packed (`packed` of a convolution or a product); 0 where there is nothing to spare.
      }],
      "int64_t", "getPackedWeightBytes", (ins "::mlir::memopt::LibraryCallAttrInterface":$call), "", [{ return 0; }]>,
    InterfaceMethod<"The description of `call` for this target's runtime.", "::llvm::json::Object", "describeCall",
      (ins "::mlir::memopt::LibraryCallAttrInterface":$call)>,
    InterfaceMethod<"Buffers begin at multiples of so many bytes at least.", "int64_t", "getLeastAlignment", (ins), "",
      [{ return 8; }]>,
    InterfaceMethod<"Workspaces of library calls begin at multiples of so many bytes.", "int64_t",
      "getWorkspaceAlignment", (ins), "", [{ return 64; }]>,
    InterfaceMethod<[{
        What the runtime loads to run `call` by the `implementation` that getImplementations named: an entry of
        the package's plans, or null where the description is all that it needs. Fails, with a diagnostic, when
        there is no such implementation.
      }],
      "::llvm::FailureOr<::llvm::json::Value>", "getPlan",
      (ins "::mlir::memopt::LibraryCallAttrInterface":$call, "::llvm::StringRef":$implementation,
           "::llvm::function_ref<::mlir::InFlightDiagnostic()>":$emitError),
      "", [{ return ::llvm::json::Value(nullptr); }]>,
    InterfaceMethod<[{
        Whether a library adds a bias to sums of products of 16-bit numbers, which are f32, and stores those of a
        convolution as they are; else both are kernels' work, and what a convolution gives is rounded before.
      }],
      "bool", "storesWideSums", (ins), "", [{ return true; }]>,
    InterfaceMethod<[{
        Whether a library computes `call`, whose result goes through a relu that keeps NaN.
      }],
      "bool", "rectifies", (ins "::mlir::memopt::LibraryCallAttrInterface":$call), "", [{ return false; }]>,
    InterfaceMethod<"Whether a library adds the gradient of a convolution's weights to what its result's buffer holds; else a kernel does.",
      "bool", "accumulatesConvolutions", (ins), "", [{ return true; }]>,
    InterfaceMethod<"Whether a library computes attention of any heads; else kernels do where heads are narrow enough, and where they are not it is written out as products and a softmax.",
      "bool", "computesAttention", (ins), "", [{ return true; }]>,
    InterfaceMethod<"Whether a library takes matrices apart (memopt.linear_algebra); else loops of the program do.",
      "bool", "computesLinearAlgebra", (ins), "", [{ return true; }]>,
    InterfaceMethod<"Whether a library reads a matrix with these strides of rows and columns as it lies.",
      "bool", "canReadMatrix", (ins "int64_t":$rowStride, "int64_t":$columnStride)>,
    InterfaceMethod<"Whether a kernel's result may take a row of an operand that the kernel reads as a whole.",
      "bool", "mayWriteOverRows", (ins)>,
    InterfaceMethod<"What predicts the seconds of one instruction.",
      "::std::function<double(const ::mlir::memopt::Work &)>", "getCostFunction", (ins)>
  ];
}

#endif // MEMOPT_INTERFACES_MEMOPTINTERFACES_TD
