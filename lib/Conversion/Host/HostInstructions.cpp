//===- HostInstructions.cpp - how instructions become host code -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Host/HostProgram.h"

#include "memopt/Dialect/AttentionTiles.h"

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
