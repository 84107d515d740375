//===- KernelOps.cpp - the kernel graph -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BoundRegion.h"
#include "memopt/Dialect/Kernels/AttentionTiles.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/OpImplementation.h"

#include <climits>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// KernelOp: memopt.kernel (%inner = %outer : type, ...) -> (types) attributes {...} { body }
//===----------------------------------------------------------------------===//

/// Names of the attributes of an instruction that have their default and are not printed.
static SmallVector<StringRef> getDefaultedAttributes(KernelOp kernel) {
  SmallVector<StringRef> names;
  if (kernel.getPhase() == Phase::Forward)
    names.push_back(kernel.getPhaseAttrName());
  if (kernel.getClone() == 0)
    names.push_back(kernel.getCloneAttrName());
  return names;
}

/// The type inside of a kernel of what is an operand or result outside.
static Type getInnerType(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && getSpace(tensor) != Space::Device ? inSpace(tensor, Space::Device) : type;
}

void KernelOp::build(OpBuilder &, OperationState &state, TypeRange results, ValueRange inputs) {
  state.addOperands(inputs);
  state.addTypes(results);
  state.addRegion();
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &state) {
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  SmallVector<OpAsmParser::Argument> arguments;
  SMLoc operandsAt = parser.getCurrentLocation();
  if (parseBindings(parser, operands, arguments) ||
      parser.parseOptionalArrowTypeList(state.types) ||
      parser.parseOptionalAttrDictWithKeyword(state.attributes) ||
      parser.resolveOperands(operands, getTypes(arguments), operandsAt, state.operands))
    return failure();
  for (OpAsmParser::Argument &argument : arguments)
    argument.type = getInnerType(argument.type);
  return parser.parseRegion(*state.addRegion(), arguments);
}

void KernelOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printBindings(printer, getBody().getArguments(), getInputs());
  printer.printArrowTypeList(getResultTypes());
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), getDefaultedAttributes(*this));
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

/// Fails unless all operands and results lie in one space that has something to compute with.
static LogicalResult verifySpace(KernelOp kernel) {
  SmallVector<Type> types(kernel->getOperandTypes());
  llvm::append_range(types, kernel->getResultTypes());
  for (Type type : types) {
    if (getSpace(type) == Space::Disk)
      return kernel.emitOpError() << "computes on the disk, where nothing runs";
    if (getSpace(type) != getSpace(types.front()))
      return kernel.emitOpError() << "computes on " << types.front() << " and " << type
                                  << ", expected one space";
  }
  return success();
}

/// What code generation knows how to read through or compute.
static bool belongsInKernel(Operation *op) {
  return isa<linalg::GenericOp, linalg::FillOp, arith::ConstantOp, tensor::EmptyOp, ViewOpInterface,
             IotaOp, PackBitsOp, UnpackBitsOp, YieldOp>(op) ||
         op->hasTrait<OpTrait::FillsKernel>();
}

LogicalResult KernelOp::verify() {
  Block &body = getBody().front();
  if (!llvm::equal(body.getArgumentTypes(), llvm::map_range(getInputs().getTypes(), getInnerType)))
    return emitOpError("expects one block argument for each operand, of its type");
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield ||
      !llvm::equal(yield.getValues().getTypes(), llvm::map_range(getResultTypes(), getInnerType)))
    return emitOpError("expects the body to yield one value for each result, of its type");
  if (failed(verifySpace(*this)))
    return failure();
  for (Operation &op : body)
    if (!belongsInKernel(&op)) {
      InFlightDiagnostic diagnostic = emitOpError()
                                      << "holds '" << op.getName() << "', which no kernel computes";
      diagnostic.attachNote(op.getLoc()) << "here";
      return diagnostic;
    }
  return success();
}

/// Gives nothing.
void YieldOp::build(OpBuilder &, OperationState &) {}

std::string KernelOp::getKindName() { return "kernel"; }

Resource KernelOp::getResource() {
  ValueRange values = getInputs().empty() ? ValueRange(getResults()) : ValueRange(getInputs());
  bool isOnHost = !values.empty() && getSpace(values.front().getType()) == Space::Host;
  return isOnHost ? Resource::Host : Resource::Compute;
}

//===----------------------------------------------------------------------===//
// PackBitsOp, UnpackBitsOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyBits(Operation *op, Value bools, Value bytes) {
  auto wide = cast<RankedTensorType>(bools.getType());
  auto packed = cast<RankedTensorType>(bytes.getType());
  SmallVector<int64_t> shape(packed.getShape());
  if (!shape.empty())
    shape.back() *= CHAR_BIT;
  if (!wide.getElementType().isInteger(1) || !packed.getElementType().isInteger(8) ||
      shape.empty() || wide.getShape() != ArrayRef(shape))
    return op->emitOpError() << "has booleans " << wide << " and bytes " << packed
                             << ", expected i1 and i8 with an eighth of the last dimension";
  return success();
}

LogicalResult PackBitsOp::verify() {
  if (!llvm::all_of(getResult().getUsers(), llvm::IsaPred<YieldOp, UnpackBitsOp>))
    return emitOpError("expects the kernel's yield to be its only reader");
  return verifyBits(*this, getInput(), getResult());
}

LogicalResult UnpackBitsOp::verify() {
  if (!isa<BlockArgument>(getInput()) && !getInput().getDefiningOp<PackBitsOp>())
    return emitOpError("expects an operand of the kernel");
  return verifyBits(*this, getResult(), getInput());
}

//===----------------------------------------------------------------------===//
// LibraryCallOp
//===----------------------------------------------------------------------===//

void LibraryCallOp::build(OpBuilder &builder, OperationState &state, TypeRange results,
                          ValueRange inputs, LibraryCallAttrInterface call,
                          ArrayRef<int64_t> operandOffsets,
                          const CallImplementation &implementation) {
  state.addOperands(inputs);
  state.addTypes(results);
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.call = call;
  properties.operand_offsets = builder.getDenseI64ArrayAttr(operandOffsets);
  properties.workspace = builder.getI64IntegerAttr(implementation.workspaceBytes);
  if (!implementation.name.empty())
    properties.implementation = builder.getStringAttr(implementation.name);
}

/// `number` counts operands and then results.
static LogicalResult verifyView(LibraryCallOp op, unsigned number, const BufferView &view,
                                Value value, int64_t offset) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getElementType() != view.elementType)
    return op.emitOpError() << "buffer " << number << " has element type " << type.getElementType()
                            << ", expected " << view.elementType;
  if (offset < 0 || offset + view.getReach() >= type.getNumElements())
    return op.emitOpError() << "buffer " << number << " is read or written from element " << offset
                            << " to " << offset + view.getReach() << ", outside " << type;
  return success();
}

LogicalResult LibraryCallOp::verify() {
  if (getOperandOffsets().size() != getInputs().size())
    return emitOpError() << "has " << getOperandOffsets().size() << " operand offsets, expected "
                         << getInputs().size();
  SmallVector<BufferView> views = getCall().getViews();
  unsigned operands = getCall().getNumOperands();
  if (getInputs().size() != operands || getNumResults() != views.size() - operands)
    return emitOpError() << "has " << getInputs().size() << " operands and " << getNumResults()
                         << " results, expected " << operands << " and " << views.size() - operands;
  for (auto [number, view] : llvm::enumerate(views)) {
    bool isOperand = number < operands;
    Value value = isOperand ? getInputs()[number] : Value(getResult(number - operands));
    if (failed(verifyView(*this, number, view, value, isOperand ? getOperandOffsets()[number] : 0)))
      return failure();
  }
  if (getWorkspaceAttr().getInt() < 0)
    return emitOpError() << "workspace must not be negative, found " << getWorkspaceAttr().getInt();
  if (FloatAttr slowdown = getSlowdownAttr(); slowdown && !(slowdown.getValueAsDouble() >= 1))
    return emitOpError() << "slowdown must be at least 1, found " << slowdown.getValueAsDouble();
  return success();
}

int64_t LibraryCallOp::getFlops() { return getCall().getFlops(); }
int64_t LibraryCallOp::getBytesMoved() { return getOperandAndResultBytes(*this); }

/// Our own kernels widen what they pack, but for a device's attention; another library is asked only
/// for what the machine multiplies itself.
static Multiplication getMultiplication(LibraryCallOp op) {
  Type type = op.getCall().getViews().front().elementType;
  if (!isa<FloatType>(type) || type.getIntOrFloatBitWidth() > 16)
    return Multiplication::Full;
  auto attention = dyn_cast<AttentionAttr>(op.getCall());
  if (attention && chooseMatrixTiles(attention, AttentionStage::Forward, getTarget(op)))
    return Multiplication::Narrow;
  StringRef implementation = op.getImplementation().value_or("");
  return implementation.starts_with("memopt:") ? Multiplication::Converted : Multiplication::Narrow;
}

/// The runtime's own code for filters of 3 x 3 taps makes whole tiles of 2 x 2 results.
static void countTiles(ConvolutionAttr call, Work &work) {
  bool isWeight = call.getKind() == ConvolutionKind::BackwardWeights;
  work.workClass = isWeight ? WorkClass::TiledConvolutionWeight : WorkClass::TiledConvolution;
  bool isData = call.getKind() == ConvolutionKind::BackwardData;
  for (int64_t extent : (isData ? call.getInput() : call.getOutput()).drop_front(2))
    work.operations *= static_cast<double>(extent + extent % 2) / static_cast<double>(extent);
}

Work LibraryCallOp::getWork() {
  Work work = getCall().getWork();
  if (getImplementation().value_or("").ends_with("/winograd"))
    countTiles(cast<ConvolutionAttr>(getCall()), work);
  work.bytes = static_cast<double>(getBytesMoved());
  work.multiplication = getMultiplication(*this);
  if (getSlowdown())
    work.operations *= getSlowdown()->convertToDouble();
  return work;
}
std::string LibraryCallOp::getKindName() { return getCall().getKindName().str(); }

/// Element by element: the operand lies as the result does.
SmallVector<InPlaceOperand> LibraryCallOp::getInPlaceOperands(unsigned result) {
  std::optional<unsigned> replaced = getCall().getReplaced(result);
  if (!replaced || getOperandOffsets()[*replaced] != 0)
    return {};
  return {{*replaced, /*byRow=*/false}};
}

StringRef LibraryCallOp::getListName() { return "library_calls"; }

llvm::json::Object LibraryCallOp::describe(TargetAttrInterface target) {
  llvm::json::Object description = target.describeCall(getCall());
  description["workspace_bytes"] = getWorkspaceAttr().getInt();
  if (getSlowdown())
    description["workspace_limit"] = getWorkspaceAttr().getInt();
  if (getFlushDenormals())
    description["flush_denormals"] = true;
  description["buffers"] = static_cast<int64_t>((*this)->getNumOperands() + getNumResults());
  return description;
}

SmallVector<Workspace> LibraryCallOp::getWorkspaces() {
  int64_t bytes = getWorkspaceAttr().getInt();
  if (bytes == 0)
    return {};
  return {{bytes, Space::Device, getTarget(*this).getWorkspaceAlignment()}};
}
