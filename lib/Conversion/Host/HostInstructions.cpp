//===- HostInstructions.cpp - how instructions become host code -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Host/HostProgram.h"

#include "memopt/Dialect/ApartOps.h"
#include "memopt/Dialect/Kernels/AttentionTiles.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
struct EmitKernel : HostInstructionOpInterface::ExternalModel<EmitKernel, KernelOp> {
  LogicalResult emit(Operation *op, HostEmitter &emitter) const {
    auto kernel = cast<KernelOp>(op);
    FailureOr<SmallVector<Value>> buffers = emitter.createAddresses(kernel);
    return failure(failed(buffers) || failed(emitter.callKernel(kernel, *buffers)));
  }
};

struct EmitLibraryCall : HostInstructionOpInterface::ExternalModel<EmitLibraryCall, LibraryCallOp> {
  LogicalResult emit(Operation *op, HostEmitter &emitter) const {
    auto call = cast<LibraryCallOp>(op);
    FailureOr<SmallVector<Value>> buffers = emitter.createAddresses(call);
    if (failed(buffers))
      return failure();
    emitter.moveToElements(*buffers, call.getInputs(), call.getOperandOffsets());
    if (call.getImplementation() == kOwnKernels)
      return emitter.launchCall(call, *buffers);
    if (call.getWorkspaces().empty())
      buffers->push_back(LLVM::ZeroOp::create(emitter.getBuilder(), emitter.getLocation(),
                                              emitter.getPointerType()));
    Value number = emitter.createNumber(static_cast<int64_t>(*call.getNumber()));
    emitter.callRuntime(offsetof(memopt_runtime_functions, library_call),
                        {number, emitter.createPointerList(*buffers)});
    return success();
  }
};

/// The declaration of a function of the user's, with its source.
LLVM::LLVMFuncOp declareForeign(ForeignCallOp call, ModuleOp program, LLVM::LLVMFunctionType type) {
  if (auto known = program.lookupSymbol<LLVM::LLVMFuncOp>(call.getFunction()))
    return known;
  OpBuilder builder = OpBuilder::atBlockEnd(program.getBody());
  auto function = LLVM::LLVMFuncOp::create(builder, call.getLoc(), call.getFunction(), type);
  function->setAttr(kSourceAttr, call.getSourceAttr());
  return function;
}

/// The sizes of all operands and results, one after the other, as constants of the program; of what
/// goes element by element how many elements there are.
Value createSizes(ForeignCallOp call, ModuleOp program, HostEmitter &emitter) {
  SmallVector<int64_t> sizes;
  if (call.getElementwise())
    sizes.push_back(cast<ShapedType>(call.getResult(0).getType()).getNumElements());
  else
    for (Type type : llvm::concat<const Type>(call->getOperandTypes(), call->getResultTypes()))
      llvm::append_range(sizes, cast<ShapedType>(type).getShape());
  if (sizes.empty())
    return LLVM::ZeroOp::create(emitter.getBuilder(), emitter.getLocation(),
                                emitter.getPointerType());
  std::string name;
  for (unsigned number = 0; name.empty() || program.lookupSymbol(name); ++number)
    name = "memopt_sizes_" + std::to_string(number);
  OpBuilder builder = OpBuilder::atBlockEnd(program.getBody());
  auto type = LLVM::LLVMArrayType::get(builder.getI64Type(), sizes.size());
  LLVM::GlobalOp::create(builder, call.getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Internal,
                         name, builder.getI64TensorAttr(sizes));
  return LLVM::AddressOfOp::create(emitter.getBuilder(), emitter.getLocation(),
                                   emitter.getPointerType(), name);
}

struct EmitForeignCall : HostInstructionOpInterface::ExternalModel<EmitForeignCall, ForeignCallOp> {
  LogicalResult emit(Operation *op, HostEmitter &emitter) const {
    auto call = cast<ForeignCallOp>(op);
    FailureOr<SmallVector<Value>> buffers = emitter.createAddresses(call);
    if (failed(buffers))
      return failure();
    OpBuilder &builder = emitter.getBuilder();
    auto program = builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
    buffers->push_back(createSizes(call, program, emitter));
    auto type =
        LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(call.getContext()),
                                    SmallVector<Type>(buffers->size(), emitter.getPointerType()));
    LLVM::LLVMFuncOp function = declareForeign(call, program, type);
    if (function.getFunctionType() != type ||
        function->getAttr(kSourceAttr) != call.getSourceAttr())
      return call.emitOpError() << "calls '" << call.getFunction()
                                << "', which another source or the program has, too; rename it";
    LLVM::CallOp::create(builder, emitter.getLocation(), function, *buffers);
    return success();
  }
};

struct EmitCommit : HostInstructionOpInterface::ExternalModel<EmitCommit, CommitOp> {
  LogicalResult emit(Operation *, HostEmitter &emitter) const {
    emitter.callRuntime(offsetof(memopt_runtime_functions, commit), {});
    return success();
  }
};

struct EmitRepeat : HostInstructionOpInterface::ExternalModel<EmitRepeat, RepeatOp> {
  LogicalResult emit(Operation *op, HostEmitter &emitter) const {
    auto repeat = cast<RepeatOp>(op);
    return emitter.emitLoop(repeat.getRepeatCount(), [&](Value iteration) {
      if (repeat.getNextBatch())
        emitter.callRuntime(offsetof(memopt_runtime_functions, next_batch), {iteration});
      return emitter.emitBlock(repeat.getBody().front());
    });
  }
};

struct EmitScan : HostInstructionOpInterface::ExternalModel<EmitScan, ScanOp> {
  LogicalResult emit(Operation *op, HostEmitter &emitter) const {
    auto scan = cast<ScanOp>(op);
    return emitter.emitLoop(scan.getRepeatCount(), [&](Value iteration) {
      emitter.setIteration(scan, iteration);
      return emitter.emitBlock(scan.getBody().front());
    });
  }
};

/// The runtime knows a transfer or a collective by its number, that of the start where `OpTy` waits.
template <typename OpTy, size_t function>
struct EmitNumbered
    : HostInstructionOpInterface::ExternalModel<EmitNumbered<OpTy, function>, OpTy> {
  LogicalResult emit(Operation *op, HostEmitter &emitter) const {
    Operation *start = getStart(op);
    std::optional<uint64_t> number = cast<ListedOpInterface>(start ? start : op).getNumber();
    emitter.callRuntime(function, {emitter.createNumber(static_cast<int64_t>(*number))});
    return success();
  }
};
using EmitCollective = EmitNumbered<CollectiveOp, offsetof(memopt_runtime_functions, collective)>;
using EmitCollectiveStart =
    EmitNumbered<CollectiveStartOp, offsetof(memopt_runtime_functions, start_collective)>;
using EmitCollectiveWait =
    EmitNumbered<CollectiveWaitOp, offsetof(memopt_runtime_functions, wait_for_collective)>;
using EmitTransferStart = EmitNumbered<TransferStartOp, offsetof(memopt_runtime_functions, start)>;
using EmitTransferWait = EmitNumbered<TransferWaitOp, offsetof(memopt_runtime_functions, wait)>;
} // namespace

void mlir::memopt::registerHostInstructions(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MemoptDialect *) {
    KernelOp::attachInterface<EmitKernel>(*context);
    LibraryCallOp::attachInterface<EmitLibraryCall>(*context);
    ForeignCallOp::attachInterface<EmitForeignCall>(*context);
    CommitOp::attachInterface<EmitCommit>(*context);
    CollectiveOp::attachInterface<EmitCollective>(*context);
    CollectiveStartOp::attachInterface<EmitCollectiveStart>(*context);
    CollectiveWaitOp::attachInterface<EmitCollectiveWait>(*context);
    RepeatOp::attachInterface<EmitRepeat>(*context);
    ScanOp::attachInterface<EmitScan>(*context);
    TransferStartOp::attachInterface<EmitTransferStart>(*context);
    TransferWaitOp::attachInterface<EmitTransferWait>(*context);
  });
}
