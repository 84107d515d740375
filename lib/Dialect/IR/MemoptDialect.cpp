//===- MemoptDialect.cpp - registration and attributes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BoundRegion.h"
#include "memopt/Dialect/ApartOps.h"
#include "memopt/Dialect/Program.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::memopt;

#include "memopt/Dialect/MemoptDialect.cpp.inc"

//===----------------------------------------------------------------------===//
// Attributes: lists of numbers print as [1, 2]
//===----------------------------------------------------------------------===//

static ParseResult parseNumbers(AsmParser &parser, SmallVector<int64_t> &numbers) {
  return parser.parseCommaSeparatedList(
      AsmParser::Delimiter::Square, [&] { return parser.parseInteger(numbers.emplace_back()); });
}

static void printNumbers(AsmPrinter &printer, ArrayRef<int64_t> numbers) {
  printer << "[";
  llvm::interleaveComma(numbers, printer);
  printer << "]";
}

#define GET_ATTRDEF_CLASSES
#include "memopt/Dialect/MemoptAttributes.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "memopt/Dialect/MemoptTypes.cpp.inc"

#define GET_OP_CLASSES
#include "memopt/Dialect/MemoptOps.cpp.inc"

void MemoptDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "memopt/Dialect/MemoptOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "memopt/Dialect/ForeignOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "memopt/Dialect/LinearAlgebraOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "memopt/Dialect/RowOps.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "memopt/Dialect/MemoptAttributes.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "memopt/Dialect/MemoptTypes.cpp.inc"
      >();
}

static bool isI64(Attribute value) {
  auto integer = dyn_cast<IntegerAttr>(value);
  return integer && integer.getType().isInteger(64);
}

/// {fused = [string, ...], refused = {key = string, ...}, result_bytes = i64, filter_bytes = i64}
static bool isEfficientConvBnEval(Attribute value) {
  auto report = dyn_cast<DictionaryAttr>(value);
  auto fused = report ? report.getAs<ArrayAttr>("fused") : ArrayAttr();
  auto refused = report ? report.getAs<DictionaryAttr>("refused") : DictionaryAttr();
  return fused && refused && llvm::all_of(fused, llvm::IsaPred<StringAttr>) &&
         llvm::all_of(refused,
                      [](NamedAttribute entry) { return isa<StringAttr>(entry.getValue()); }) &&
         report.getAs<IntegerAttr>("result_bytes") && report.getAs<IntegerAttr>("filter_bytes");
}

/// What attributes of this dialect on any op must be.
LogicalResult MemoptDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  StringRef name = attribute.getName();
  Attribute value = attribute.getValue();
  auto expect = [&](bool holds, StringRef what) -> LogicalResult {
    if (holds)
      return success();
    return op->emitOpError() << "'" << name << "' must be " << what << ", found " << value;
  };
  if (name == kCloneAttr)
    return expect(isa<IntegerAttr>(value), "an integer");
  if (name == kPhaseAttr)
    return expect(isa<PhaseAttr>(value), "a phase");
  if (name == kPlannedAttr)
    return expect(isa<PlannedAttr>(value), "a #memopt.planned");
  if (name == kSharesStateAttr || name == kOwnAttr || name == kNarrowedAttr)
    return expect(isa<UnitAttr>(value), "a unit");
  if (name == kProgramOrderAttr)
    return expect(isa<DenseI32ArrayAttr>(value), "an array of i32");
  if (name == kActivationsAttr || name == kChosenActivationsAttr)
    return expect(isa<DenseI64ArrayAttr>(value), "an array of i64");
  if (name == kRestoreAttr)
    return expect(isa<StringAttr>(value), "a string");
  if (name == kTargetAttr)
    return expect(isa<TargetAttrInterface>(value), "a target such as #memopt.cpu");
  if (name == kNetworkAttr)
    return expect(isa<NetworkAttr>(value), "a #memopt.network");
  if (name == kEfficientConvBnEvalAttr)
    return expect(isEfficientConvBnEval(value),
                  "a dictionary {fused, refused, result_bytes, filter_bytes}");
  return success();
}

/// {min = i64, max = i64, ignore = i64, reason = string}, all optional.
static bool isValidRange(Attribute value) {
  auto range = dyn_cast<DictionaryAttr>(value);
  return range && llvm::all_of(range, [](NamedAttribute entry) {
           StringRef name = entry.getName();
           return name == "reason" ? isa<StringAttr>(entry.getValue())
                                   : (name == "min" || name == "max" || name == "ignore") &&
                                         isI64(entry.getValue());
         });
}

/// What attributes of this dialect on arguments of a function must be.
LogicalResult MemoptDialect::verifyRegionArgAttribute(Operation *op, unsigned region,
                                                      unsigned argument, NamedAttribute attribute) {
  StringRef name = attribute.getName();
  Attribute value = attribute.getValue();
  auto expect = [&](bool holds, const Twine &what) -> LogicalResult {
    if (holds)
      return success();
    return op->emitOpError() << "argument " << argument << ": '" << name << "' must be " << what
                             << ", found " << value;
  };
  if (name == kNameAttr || name == kDtypeAttr)
    return expect(isa<StringAttr>(value), "a string");
  if (name == kValidRangeAttr)
    return expect(isValidRange(value), "a dictionary {min, max, ignore, reason}");
  if (name == kOffsetAttr)
    return expect(isI64(value) && cast<IntegerAttr>(value).getInt() >= 0, "an i64 of at least 0");
  if (name == kBatchDimAttr) {
    auto function = dyn_cast<FunctionOpInterface>(op);
    auto type =
        function ? dyn_cast<ShapedType>(function.getArgumentTypes()[argument]) : ShapedType();
    int64_t rank = type && type.hasRank() ? type.getRank() : 0;
    return expect(isI64(value) && cast<IntegerAttr>(value).getInt() >= 0 &&
                      cast<IntegerAttr>(value).getInt() < rank,
                  "one of the " + Twine(rank) + " dimensions of its tensor");
  }
  return success();
}

LogicalResult ShardAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t ranks,
                                ArrayRef<int64_t> shape, int64_t first) {
  if (ranks < 1)
    return emitError() << "a shard needs at least one rank, found " << ranks;
  if (llvm::any_of(shape, [](int64_t size) { return size < 1; }))
    return emitError() << "a shard is one of a tensor of positive sizes";
  if (first < 0)
    return emitError() << "a tensor begins at an element of its unit, found " << first;
  return success();
}

/// Rates are positive; a profile may leave some of them to the shipped one.
static LogicalResult verifyProfile(function_ref<InFlightDiagnostic()> emitError,
                                   DictionaryAttr profile) {
  for (NamedAttribute entry : profile) {
    StringRef name = entry.getName();
    auto number = dyn_cast<FloatAttr>(entry.getValue());
    auto count = dyn_cast<IntegerAttr>(entry.getValue());
    if (name == "machine"   ? !isa<StringAttr>(entry.getValue())
        : name == "threads" ? !count || count.getInt() < 1
                            : !number || !number.getType().isF64() ||
                                  !number.getValue().isFinite() || number.getValueAsDouble() <= 0)
      return emitError() << "profile: '" << name << "' must be "
                         << (name == "machine"   ? "a string"
                             : name == "threads" ? "a count of at least 1"
                                                 : "a positive f64")
                         << ", found " << entry.getValue();
  }
  return success();
}

LogicalResult CpuAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef,
                              int64_t threads, bool, DictionaryAttr profile) {
  if (threads < 1)
    return emitError() << "a processor runs at least one thread, found " << threads;
  return profile ? verifyProfile(emitError, profile) : success();
}

/// The number of a chip, 90 of sm_90; none for another name.
static std::optional<unsigned> parseChip(StringRef chip) {
  unsigned number;
  if (!chip.consume_front("sm_"))
    return std::nullopt;
  // Code with a letter behind the number runs on that chip or its family alone.
  if (chip.ends_with("a") || chip.ends_with("f"))
    chip = chip.drop_back();
  if (chip.getAsInteger(10, number))
    return std::nullopt;
  return number;
}

unsigned CudaAttr::getCapability() { return *parseChip(getChip()); }

LogicalResult CudaAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef chip,
                               int64_t sms, StringRef, StringRef image, DictionaryAttr profile,
                               DictionaryAttr, StringRef matmul, StringRef convolution) {
  constexpr unsigned oldest = 75;
  std::optional<unsigned> number = parseChip(chip);
  if (!number || *number < oldest)
    return emitError() << "a chip is sm_" << oldest
                       << " or newer, for CUDA 13 has dropped those before, found '" << chip << "'";
  if (sms < 1)
    return emitError() << "a device has at least one multiprocessor, found " << sms;
  if (matmul != "highest" && matmul != "high" && matmul != "medium")
    return emitError() << "the precision of products is highest, high or medium, found '" << matmul
                       << "'";
  if (convolution != "highest" && convolution != "high")
    return emitError() << "the precision of convolutions is highest or high, found '" << convolution
                       << "'";
  if (image != "cubin" && image != "bitcode")
    return emitError() << "an image is 'cubin' or 'bitcode', found '" << image << "'";
  return profile ? verifyProfile(emitError, profile) : success();
}

LogicalResult PlannedAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                  ArrayRef<int64_t> arenaBytes, ArrayRef<int64_t> lowerBounds) {
  for (ArrayRef<int64_t> bytes : {arenaBytes, lowerBounds}) {
    if (bytes.size() != kNumSpaces)
      return emitError() << "expects bytes of " << kNumSpaces << " spaces, found " << bytes.size();
    for (int64_t number : bytes)
      if (number < 0)
        return emitError() << "bytes must not be negative, found " << number;
  }
  return success();
}

LogicalResult NetworkAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                  ArrayRef<int64_t> members, ArrayRef<int64_t> latency,
                                  ArrayRef<int64_t> rate) {
  if (members.empty() || latency.size() != members.size() || rate.size() != members.size())
    return emitError() << "expects members, latency and rate of each level, found "
                       << members.size() << ", " << latency.size() << " and " << rate.size();
  for (int64_t number : llvm::concat<const int64_t>(members, rate))
    if (number < 1)
      return emitError() << "members and rates must be positive, found " << number;
  for (int64_t number : latency)
    if (number < 0)
      return emitError() << "a latency must not be negative, found " << number;
  return success();
}

//===----------------------------------------------------------------------===//
// Facts about values, ops and modules
//===----------------------------------------------------------------------===//

Space mlir::memopt::getSpace(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  auto space = tensor ? dyn_cast_or_null<SpaceAttr>(tensor.getEncoding()) : SpaceAttr();
  return space ? space.getValue() : Space::Device;
}

RankedTensorType mlir::memopt::inSpace(RankedTensorType type, Space space) {
  Attribute encoding =
      space == Space::Device ? Attribute() : SpaceAttr::get(type.getContext(), space);
  return RankedTensorType::get(type.getShape(), type.getElementType(), encoding);
}

StringRef mlir::memopt::getDtypeName(Type type) {
#define FLOAT_DTYPE(NAME, TEXT, SAFETENSORS, BITS)                                                 \
  if (type.is##NAME())                                                                             \
    return TEXT;
#define INTEGER_DTYPE(NAME, TEXT, SAFETENSORS, BITS)                                               \
  if (type.isSignlessInteger(BITS))                                                                \
    return TEXT;
#include "memopt-runtime/interface/DTypes.def"
  return "";
}

Type mlir::memopt::getComputeType(Type type) {
  return type.isF64() ? type : Float32Type::get(type.getContext());
}

Phase mlir::memopt::getPhase(Operation *op) {
  if (auto instruction = dyn_cast<InstructionOpInterface>(op))
    return instruction.getPhase();
  auto phase = op->getAttrOfType<PhaseAttr>(MemoptDialect::kPhaseAttr);
  return phase ? phase.getValue() : Phase::Forward;
}

void mlir::memopt::setPhase(Operation *op, Phase phase) {
  if (auto instruction = dyn_cast<InstructionOpInterface>(op))
    return instruction.setPhase(phase);
  op->setAttr(MemoptDialect::kPhaseAttr, PhaseAttr::get(op->getContext(), phase));
}

int64_t mlir::memopt::getActivationNumber(OpResult value) {
  auto numbers =
      value.getOwner()->getAttrOfType<DenseI64ArrayAttr>(MemoptDialect::kActivationsAttr);
  bool isThere = numbers && value.getResultNumber() < numbers.size();
  return isThere ? numbers[value.getResultNumber()] : -1;
}

TargetAttrInterface mlir::memopt::getTarget(Operation *op) {
  auto module = isa<ModuleOp>(op) ? cast<ModuleOp>(op) : op->getParentOfType<ModuleOp>();
  if (module)
    if (auto target = module->getAttrOfType<TargetAttrInterface>(MemoptDialect::kTargetAttr))
      return target;
  return cast<TargetAttrInterface>(Attribute(CpuAttr::get(op->getContext(), "", 2, false, {})));
}
