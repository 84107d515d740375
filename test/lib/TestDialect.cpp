//===- TestDialect.cpp - ops of nobody's, for tests -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestDialect.h"

#include "TestDevice.h"
#include "TestOptimizer.h"
#include "memopt/Conversion/Host/HostEmitter.h"
#include "memopt/Conversion/Targets/TargetCode.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include <filesystem>
#include <fstream>

#include "TestDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "TestAttributes.h.inc"

#define GET_OP_CLASSES
#include "TestOps.h.inc"

using namespace mlir;
using namespace mlir::memopt;
using namespace memopt_test;

#include "TestDialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "TestAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "TestOps.cpp.inc"

void TestDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "TestAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "TestOps.cpp.inc"
      >();
}

void memopt_test::registerTestDialect(DialectRegistry &registry) {
  registry.insert<TestDialect>();
  registerTestOptimizer();
}

//===----------------------------------------------------------------------===//
// DeviceAttr
//===----------------------------------------------------------------------===//

llvm::json::Value DeviceAttr::describe() const {
  return llvm::json::Object{{"name", "test"}, {"image", getImageName()}};
}
bool DeviceAttr::isDevice() const { return true; }
StringRef DeviceAttr::getImageName() const { return "kernels.s"; }
std::string DeviceAttr::describeMachine() const { return "a device of tests"; }
int64_t DeviceAttr::getThreads() const { return 1; }
llvm::json::Object DeviceAttr::describeCall(LibraryCallAttrInterface call) const {
  return call.toJson();
}
bool DeviceAttr::canReadMatrix(int64_t, int64_t) const { return false; }
bool DeviceAttr::mayWriteOverRows() const { return true; }

FailureOr<SmallVector<CallImplementation>>
DeviceAttr::getImplementations(LibraryCallAttrInterface call,
                               function_ref<InFlightDiagnostic()> emitError) const {
  return emitError() << "a device of tests has no library for a " << call.getKindName();
}

std::function<double(const Work &)> DeviceAttr::getCostFunction() const {
  return [](const Work &work) { return work.operations * 1e-9; };
}

FailureOr<KernelOptions> DeviceAttr::getKernelOptions(function_ref<InFlightDiagnostic()>) const {
  KernelOptions options;
  options.deviceOps = &getTestDeviceOps();
  options.device.emplace().sms = getUnits();
  return options;
}

LogicalResult DeviceAttr::convertKernels(ModuleOp kernels) const {
  return convertToLLVMDialect(kernels);
}

Emission DeviceAttr::emitText(ModuleOp kernels, std::string &text) const {
  return emitTestDeviceText(kernels, text);
}

Emission DeviceAttr::writeImage(ModuleOp kernels, StringRef folder,
                                MutableArrayRef<KernelLaunch>) const {
  std::string text;
  if (Emission end = emitText(kernels, text); end != Emission::Done)
    return end;
  std::ofstream(std::filesystem::path(folder.str()) / getImageName().str()) << text;
  return Emission::Done;
}

//===----------------------------------------------------------------------===//
// MachineAttr
//===----------------------------------------------------------------------===//

llvm::json::Value MachineAttr::describe() const { return "test"; }
std::string MachineAttr::describeMachine() const { return "a machine of tests"; }
int64_t MachineAttr::getThreads() const { return 1; }
llvm::json::Object MachineAttr::describeCall(LibraryCallAttrInterface call) const {
  return call.toJson();
}
bool MachineAttr::canReadMatrix(int64_t, int64_t) const { return true; }
bool MachineAttr::mayWriteOverRows() const { return true; }

FailureOr<SmallVector<CallImplementation>>
MachineAttr::getImplementations(LibraryCallAttrInterface,
                                function_ref<InFlightDiagnostic()>) const {
  return SmallVector<CallImplementation>{{"roomy", 8192}};
}

SmallVector<CallImplementation>
MachineAttr::getLeanImplementations(LibraryCallAttrInterface) const {
  return {{"tight", 2048, 1.5}, {"bare", 0, 3}};
}

std::function<double(const Work &)> MachineAttr::getCostFunction() const {
  return [](const Work &work) { return work.operations * 1e-9; };
}

//===----------------------------------------------------------------------===//
// RunOp
//===----------------------------------------------------------------------===//

void RunOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (getPinned())
    effects.emplace_back(MemoryEffects::Write::get());
}

bool RunOp::isRecomputable() { return !getPinned(); }
std::string RunOp::getKindName() { return getKind().str(); }

Work RunOp::getWork() {
  Work work;
  work.workClass = getKind() == "convolution" ? WorkClass::Convolution : WorkClass::Matmul;
  work.operations = static_cast<double>(getFlops());
  work.bytes = static_cast<double>(getBytesMoved());
  return work;
}

SmallVector<Workspace> RunOp::getWorkspaces() {
  return llvm::map_to_vector(getScratch(), [](int64_t bytes) { return Workspace{bytes}; });
}

SmallVector<InPlaceOperand> RunOp::getInPlaceOperands(unsigned result) {
  ArrayRef<int64_t> operands = getInPlace();
  if (result >= operands.size() || operands[result] < 0)
    return {};
  return {{static_cast<unsigned>(operands[result]), /*byRow=*/false}};
}

//===----------------------------------------------------------------------===//
// RollOp
//===----------------------------------------------------------------------===//

static int64_t getNumRows(RollOp roll) {
  return cast<RankedTensorType>(roll.getInput().getType()).getDimSize(0);
}

ViewKind RollOp::getViewKind() { return ViewKind::Assembled; }

/// The last rows, which come first, and the others.
SmallVector<ViewPart> RollOp::getViewParts() {
  auto type = cast<RankedTensorType>(getInput().getType());
  int64_t rows = getNumRows(*this), by = getBy();
  SmallVector<ViewPart> parts;
  for (auto [begin, end, shift] : {std::tuple(int64_t(0), by, by - rows), {by, rows, by}}) {
    ViewPart part{0, SmallVector<int64_t>(type.getRank(), 0), SmallVector<int64_t>(type.getShape()),
                  AffineMap::getMultiDimIdentityMap(type.getRank(), getContext())};
    part.offsets[0] = begin;
    part.sizes[0] = end - begin;
    AffineExpr row = getAffineDimExpr(0, getContext());
    part.map = part.map.replace(row, row - shift, type.getRank(), 0);
    parts.push_back(std::move(part));
  }
  return parts;
}

LogicalResult RollOp::differentiate(OpBuilder &builder, ArrayRef<Value> resultGradients,
                                    ArrayRef<bool>, MutableArrayRef<Value> operandGradients) {
  operandGradients[0] = RollOp::create(builder, getLoc(), getInput().getType(), resultGradients[0],
                                       getNumRows(*this) - getBy());
  return success();
}

int64_t RollOp::getFlops() { return 0; }

/// Rows depend on rows of other numbers.
static IterationSpace getRowSpace(Operation *op, LoopKind rows) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  IterationSpace space;
  space.sizes.assign(type.getShape().begin(), type.getShape().end());
  space.kinds.assign(type.getRank(), LoopKind::Parallel);
  space.kinds.front() = rows;
  space.maps.assign(2, AffineMap::getMultiDimIdentityMap(type.getRank(), op->getContext()));
  return space;
}
IterationSpace RollOp::getIterationSpace() { return getRowSpace(*this, LoopKind::Mix); }

//===----------------------------------------------------------------------===//
// CopyOp
//===----------------------------------------------------------------------===//

std::string CopyOp::getKindName() { return "copy"; }
Resource CopyOp::getResource() { return Resource::Host; }
int64_t CopyOp::getFlops() { return 0; }
IterationSpace CopyOp::getIterationSpace() { return getRowSpace(*this, LoopKind::Parallel); }

Work CopyOp::getWork() {
  Work work;
  work.bytes = static_cast<double>(getBytesMoved());
  return work;
}

LogicalResult CopyOp::emit(HostEmitter &emitter) {
  FailureOr<SmallVector<Value>> buffers = emitter.createAddresses(*this);
  if (failed(buffers))
    return failure();
  LLVM::MemcpyOp::create(emitter.getBuilder(), emitter.getLocation(), (*buffers)[1], (*buffers)[0],
                         emitter.createNumber(getTensorBytes(getResult().getType())),
                         /*isVolatile=*/false);
  return success();
}

//===----------------------------------------------------------------------===//
// GlowOp, PeakNormOp, NoiseOp
//===----------------------------------------------------------------------===//

int64_t GlowOp::getFlops() { return tensorType(getInput()).getNumElements(); }
bool GlowOp::isElementwise() { return true; }
IterationSpace GlowOp::getIterationSpace() { return getRowSpace(*this, LoopKind::Parallel); }

int64_t PeakNormOp::getFlops() { return tensorType(getInput()).getNumElements(); }
SmallVector<unsigned> PeakNormOp::getFollowedOperands() { return {0}; }
ParameterRole PeakNormOp::getParameterRole(unsigned operand) {
  return operand == 1 ? ParameterRole::Norm : ParameterRole::None;
}
SmallVector<Value> PeakNormOp::getBatchStatistics() { return {getPeak()}; }

/// The largest of all ranks, found as a sum for want of a better collective: a test looks at the
/// ops and not at numbers.
SmallVector<Value> PeakNormOp::buildSynchronized(OpBuilder &builder, int64_t ranks) {
  auto own = PeakNormOp::create(builder, getLoc(), getResult().getType(), getPeak().getType(),
                                getInput(), getScale());
  Value peak = CollectiveOp::create(builder, getLoc(), tensorType(own.getPeak()),
                                    CollectiveKind::AllReduce, own.getPeak(), ranks);
  return {own.getResult(), peak};
}

IterationSpace PeakNormOp::getIterationSpace() {
  RankedTensorType type = tensorType(getInput());
  MLIRContext *context = getContext();
  AffineMap all = AffineMap::getMultiDimIdentityMap(2, context);
  AffineMap column = AffineMap::get(2, 0, getAffineDimExpr(1, context));
  AffineMap none = AffineMap::get(2, 0, context);
  return {SmallVector<int64_t>(type.getShape()),
          {LoopKind::Statistic, LoopKind::Statistic},
          {all, column, all, none}};
}

int64_t NoiseOp::getFlops() { return tensorType(getLike()).getNumElements(); }
SmallVector<int64_t> NoiseOp::getDrawShape() {
  return SmallVector<int64_t>(tensorType(getResult()).getShape());
}
std::optional<unsigned> NoiseOp::getDrawDimension(unsigned dim) { return dim; }
void NoiseOp::setFirst(Value first, ArrayRef<int64_t> strides) {
  getFirstMutable().assign(first);
  setStrides(strides);
}
IterationSpace NoiseOp::getIterationSpace() {
  int64_t rank = tensorType(getLike()).getRank();
  AffineMap all = AffineMap::getMultiDimIdentityMap(rank, getContext());
  IterationSpace space{SmallVector<int64_t>(tensorType(getLike()).getShape()),
                       SmallVector<LoopKind>(rank, LoopKind::Parallel),
                       {all}};
  if (getFirst())
    space.maps.push_back(AffineMap::get(rank, 0, getContext()));
  space.maps.push_back(all);
  return space;
}
