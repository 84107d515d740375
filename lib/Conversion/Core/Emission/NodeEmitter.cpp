//===- NodeEmitter.cpp - loads, arithmetic and indices of kernels *- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/NodeEmitter.h"
#include "RandomEmitter.h"
#include "SharedReads.h"
#include "memopt/Conversion/Core/Emission/BitEmitter.h"
#include "memopt/Conversion/Core/Emission/SumEmitter.h"
#include "memopt/Conversion/Core/Math/MathExpansion.h"
#include "memopt/Conversion/Core/Math/ScalarExpansion.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

NodeEmitter::NodeEmitter(OpBuilder &builder, Location location, const ElementGraph &graph,
                         const StageArguments &arguments, int64_t alignment)
    : ScopedBuilder(builder, location, graph.getTable()), graph(graph), arguments(arguments),
      alignment(alignment), bits(std::make_unique<BitEmitter>(*this)),
      randoms(std::make_unique<RandomEmitter>(*this)) {}

NodeEmitter::~NodeEmitter() = default;

unsigned NodeEmitter::getAlignment(Type element) {
  return Storage::ofWhole(element).getUnitBytes();
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

Value NodeEmitter::emitNode(NodeId id) {
  const ElementNode &node = graph.getNode(id);
  Scope *home = findHome(node.variables);
  // A value of an enclosing scope may stand in for one that is emitted here.
  if (Value known = home->nodes.lookup(id))
    return known;
  Value value = emitIn(home, [&] { return emitNodeHere(id); });
  home->nodes[id] = value;
  return value;
}

/// The node as a vector: a scalar is repeated, once where it is computed.
Value NodeEmitter::emitLanesOf(NodeId id, int64_t lanes) {
  Value value = emitNode(id);
  if (isa<VectorType>(value.getType()))
    return value;
  // Main loop and tail differ in lanes, so the splat belongs to the scope that has them.
  const ElementNode &node = graph.getNode(id);
  if (node.kind == ElementNode::Constant)
    return arith::ConstantOp::create(
        builder, location,
        DenseElementsAttr::get(cast<ShapedType>(getVectorType(node.type, lanes)), node.attribute));
  Value &known = current->splats[id];
  if (!known)
    known = splat(value, lanes);
  return known;
}

Value NodeEmitter::emitNodeHere(NodeId id) {
  const ElementNode &node = graph.getNode(id);
  switch (node.kind) {
  case ElementNode::Constant:
    return arith::ConstantOp::create(builder, location, cast<TypedAttr>(node.attribute));
  case ElementNode::Load:
    if (Value staged = loadStaged ? loadStaged(id) : Value())
      return staged;
    return graph.getStorage(node).isShared() ? bits->load(node) : emitLoad(node);
  case ElementNode::Index:
    return emitIndexNode(node);
  case ElementNode::Apply:
    return emitApply(node);
  case ElementNode::Reduce:
    return sums->emit(node);
  case ElementNode::Accumulator:
    break;
  }
  llvm_unreachable("an accumulator is bound by its loops");
}

Value NodeEmitter::emitApply(const ElementNode &node) {
  if (node.name->getStringRef() == CheckOp::getOperationName())
    return emitCheck(node);
  if (node.name->getStringRef() == RandomWordOp::getOperationName())
    return randoms->emit(node);
  SmallVector<Value> operands;
  int64_t lanes = 1;
  for (NodeId operand : node.operands) {
    operands.push_back(emitNode(operand));
    if (isa<VectorType>(operands.back().getType()))
      lanes = getLanes(operands.back());
  }
  bool isVector = llvm::any_of(operands, [](Value v) { return isa<VectorType>(v.getType()); });
  Type type = node.type;
  if (isVector) {
    type = getVectorType(node.type, lanes);
    for (auto [operand, id] : llvm::zip_equal(operands, node.operands))
      operand = emitLanesOf(id, lanes);
  }
  if (Value expanded = expandScalar(builder, location, *node.name, type, operands))
    return expanded;
  if (Value expanded = expandMath(builder, location, *node.name, type, operands))
    return expanded;
  OperationState state(location, *node.name);
  state.addOperands(operands);
  state.addAttributes(cast<DictionaryAttr>(node.attribute).getValue());
  // The few ops with several results (extended multiplication) have results of one type.
  bool isExtended = isa_and_present<arith::ArithDialect>(node.name->getDialect()) &&
                    (node.name->getStringRef() == arith::MulUIExtendedOp::getOperationName() ||
                     node.name->getStringRef() == arith::MulSIExtendedOp::getOperationName());
  state.addTypes(SmallVector<Type>(isExtended ? 2 : 1, type));
  return builder.create(state)->getResult(node.number);
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// Operand 1, when there is one, says whether the value counts.
Value NodeEmitter::emitCheck(const ElementNode &node) {
  auto attributes = cast<DictionaryAttr>(node.attribute);
  Value value = emitNode(node.operands[0]);
  int64_t lanes = getLanes(value);
  bool isVector = isa<VectorType>(value.getType());
  auto number = [&](int64_t integer) {
    Type type = getElementTypeOrSelf(value.getType());
    TypedAttr attribute =
        IntegerAttr::get(type, APInt(type.getIntOrFloatBitWidth(), integer, /*isSigned=*/true,
                                     /*implicitTrunc=*/true));
    Value scalar = arith::ConstantOp::create(builder, location, attribute);
    return isVector ? splat(scalar, lanes) : scalar;
  };
  auto get = [&](StringRef key) { return attributes.getAs<IntegerAttr>(key).getInt(); };
  auto compare = [&](arith::CmpIPredicate predicate, int64_t integer) -> Value {
    return arith::CmpIOp::create(builder, location, predicate, value, number(integer));
  };
  int64_t low = get("min"), high = get("max");
  Value above = compare(arith::CmpIPredicate::sge, low);
  Value below = compare(arith::CmpIPredicate::sle, high);
  Value isGood = low > high ? arith::OrIOp::create(builder, location, above, below).getResult()
                            : arith::AndIOp::create(builder, location, above, below).getResult();
  if (attributes.contains("ignore"))
    isGood = arith::OrIOp::create(builder, location, isGood,
                                  compare(arith::CmpIPredicate::eq, get("ignore")));
  Value truth = arith::ConstantOp::create(builder, location, builder.getBoolAttr(true));
  Value isBad =
      arith::XOrIOp::create(builder, location, isGood, isVector ? splat(truth, lanes) : truth);
  if (node.operands.size() == 2) {
    Value counts = isVector ? emitLanesOf(node.operands[1], lanes) : emitNode(node.operands[1]);
    // A guard may vary in lanes where the value does not; then any of them counts.
    if (!isVector && isa<VectorType>(counts.getType()))
      counts = vector::ReductionOp::create(builder, location, vector::CombiningKind::OR, counts);
    isBad = arith::AndIOp::create(builder, location, isBad, counts);
  }
  reportFault(isBad, value, get("site"));
  return arith::SelectOp::create(builder, location, isGood, value, number(get("otherwise")));
}

/// faults = min(faults, site << 48 | the value's low 48 bits), if any lane is bad.
void NodeEmitter::reportFault(Value isBad, Value value, int64_t site) {
  constexpr int64_t valueBits = 48;
  bool isVector = isa<VectorType>(value.getType());
  Value isAnyBad = isBad;
  if (isVector)
    isAnyBad = vector::ReductionOp::create(builder, location, vector::CombiningKind::OR, isBad);
  auto branch = scf::IfOp::create(builder, location, isAnyBad, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  Type wide = builder.getI64Type();
  int64_t lanes = getLanes(value);
  if (isVector)
    wide = getVectorType(wide, lanes);
  auto number = [&](int64_t integer) {
    return isVector ? splat(constant(integer), lanes) : constant(integer);
  };
  if (value.getType() != wide)
    value = arith::ExtSIOp::create(builder, location, wide, value);
  Value low =
      arith::AndIOp::create(builder, location, value, number((int64_t(1) << valueBits) - 1));
  Value report = arith::OrIOp::create(builder, location, low,
                                      number(static_cast<int64_t>(uint64_t(site) << valueBits)));
  if (isVector) {
    report = arith::SelectOp::create(builder, location, isBad, report, number(-1));
    report = vector::ReductionOp::create(builder, location, vector::CombiningKind::MINUI, report);
  }
  LLVM::AtomicRMWOp::create(builder, location, LLVM::AtomicBinOp::umin, arguments.faults, report,
                            LLVM::AtomicOrdering::monotonic);
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

Value NodeEmitter::emitAtom(AtomId id) {
  const IndexAtom &atom = table.getAtom(id);
  if (atom.kind == IndexAtom::Datum) {
    Value value = emitNode(atom.node);
    if (!value.getType().isInteger(64))
      value = arith::ExtSIOp::create(builder, location, builder.getI64Type(), value);
    return value;
  }
  Scope *home = findHome(atom.variables);
  if (atom.kind == IndexAtom::Variable) {
    for (auto [variable, value] : home->variables)
      if (variable == id)
        return value;
    llvm_unreachable("a loop variable is used outside its loop");
  }
  if (Value known = home->atoms.lookup(id))
    return known;
  Value value = emitIn(home, [&]() -> Value {
    Value dividend = emitScalarIndex(atom.dividend), divisor = constant(atom.divisor);
    if (table.getRange(atom.dividend).low >= 0)
      return arith::DivUIOp::create(builder, location, dividend, divisor);
    return arith::FloorDivSIOp::create(builder, location, dividend, divisor);
  });
  home->atoms[id] = value;
  return value;
}

/// The expression at lane 0.
Value NodeEmitter::emitScalarIndex(const IndexExpr &expr) {
  return emitIn(findHome(table.getVariables(expr)), [&] { return emitIndex(expr, nullptr); });
}

Value NodeEmitter::emitVectorIndex(const IndexExpr &expr, Scope *scope) {
  Value value = emitIndex(expr, scope);
  return splat(value, scope->lanes);
}

/// Lanes of `scope` when given, lane 0 otherwise. Parts that do not vary stay scalar.
Value NodeEmitter::emitIndex(const IndexExpr &expr, Scope *scope) {
  auto isVarying = [&](AtomId atom) {
    return scope && llvm::is_contained(table.getAtom(atom).variables, *scope->vector);
  };
  auto accumulate = [&](Value sum, Value term, int64_t coefficient) -> Value {
    if (coefficient != 1) {
      Value factor = constant(coefficient);
      if (isa<VectorType>(term.getType()))
        factor = splat(factor, getLanes(term));
      term = arith::MulIOp::create(builder, location, term, factor);
    }
    return sum ? arith::AddIOp::create(builder, location, sum, term).getResult() : term;
  };
  Value uniform, varying;
  for (auto [atom, coefficient] : expr.terms)
    if (isVarying(atom))
      varying = accumulate(varying, emitVectorAtom(atom, scope), coefficient);
    else
      uniform = accumulate(uniform, emitAtom(atom), coefficient);
  if (expr.constant || (!uniform && !varying))
    uniform = accumulate(uniform, constant(expr.constant), 1);
  if (!varying)
    return uniform;
  return uniform ? accumulate(varying, splat(uniform, scope->lanes), 1) : varying;
}

Value NodeEmitter::emitVectorAtom(AtomId id, Scope *scope) {
  const IndexAtom &atom = table.getAtom(id);
  if (atom.kind == IndexAtom::Datum) {
    // A checked value may be a scalar though its guard varies in lanes.
    Value value = emitLanesOf(atom.node, scope->lanes);
    Type wide = getVectorType(builder.getI64Type(), scope->lanes);
    return value.getType() == wide ? value : arith::ExtSIOp::create(builder, location, wide, value);
  }
  if (atom.kind == IndexAtom::Variable) {
    auto lanes = llvm::to_vector(llvm::seq<int64_t>(0, scope->lanes));
    auto type = cast<VectorType>(getVectorType(builder.getI64Type(), scope->lanes));
    Value steps =
        arith::ConstantOp::create(builder, location, DenseElementsAttr::get(type, ArrayRef(lanes)));
    return arith::AddIOp::create(builder, location, splat(emitAtom(id), scope->lanes), steps);
  }
  Value dividend = emitVectorIndex(atom.dividend, scope);
  Value divisor = splat(constant(atom.divisor), scope->lanes);
  IndexRange range = table.getRange(atom.dividend);
  if (range.low < 0)
    return arith::FloorDivSIOp::create(builder, location, dividend, divisor);
  if (range.high > std::numeric_limits<int32_t>::max() || atom.divisor > (1 << 30))
    return arith::DivUIOp::create(builder, location, dividend, divisor);
  // Division by a constant is a multiplication, which machines have for 32 bits.
  Type narrow = getVectorType(builder.getI32Type(), scope->lanes);
  Value quotient = arith::DivUIOp::create(
      builder, location, arith::TruncIOp::create(builder, location, narrow, dividend),
      arith::TruncIOp::create(builder, location, narrow, divisor));
  return arith::ExtUIOp::create(builder, location, dividend.getType(), quotient);
}

Value NodeEmitter::emitIndexNode(const ElementNode &node) {
  Scope *scope = findVectorScope(node.variables);
  if (!scope)
    return emitIndex(node.address, nullptr);
  return emitVectorIndex(node.address, scope);
}

/// Whether the lanes are consecutive numbers, the first of them a multiple of `divisor`.
bool NodeEmitter::beginWithMultiple(const IndexExpr &number, Scope *scope, int64_t divisor) {
  if (table.getStride(number, *scope->vector) != 1)
    return false;
  int64_t common = std::gcd(divisor, number.constant);
  for (auto [atom, coefficient] : number.terms)
    common = std::gcd(common, atom == *scope->vector ? scope->step : coefficient);
  return common == divisor;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The alignment of vectors follows from that of their buffer and from the steps of the loops
/// around them.
unsigned NodeEmitter::getAlignment(const IndexExpr &address, Type element, Scope *scope) {
  unsigned bytes = getAlignment(element);
  if (!alignment || !scope)
    return bytes;
  auto elements = static_cast<uint64_t>(alignment / bytes);
  auto divide = [&](int64_t step) { elements = std::gcd(elements, static_cast<uint64_t>(step)); };
  divide(address.constant);
  for (auto [atom, coefficient] : address.terms)
    divide(atom == *scope->vector ? coefficient * scope->lanes : coefficient);
  return bytes * static_cast<unsigned>(elements);
}

Value NodeEmitter::getAddress(Value buffer, Type element, Value index) {
  Type type = buffer.getType();
  if (auto vector = dyn_cast<VectorType>(index.getType()))
    type = vector.clone(type);
  return LLVM::GEPOp::create(builder, location, type, Storage::ofWhole(element).unit, buffer,
                             ArrayRef<LLVM::GEPArg>{index});
}

static Value asBoolean(OpBuilder &builder, Location location, Value bytes) {
  Value zero = arith::ConstantOp::create(builder, location, builder.getZeroAttr(bytes.getType()));
  return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::ne, bytes, zero);
}

/// `pointer` is one address, of a scalar or of the first lane, or a vector of addresses.
Value NodeEmitter::loadFrom(Value pointer, Type type, unsigned alignment, Value mask) {
  Type element = getElementTypeOrSelf(type);
  Type stored = Storage::ofWhole(element).unit;
  if (auto vector = dyn_cast<VectorType>(type))
    stored = vector.clone(stored);
  Value value;
  if (isa<VectorType>(pointer.getType())) {
    if (!mask)
      mask = splat(arith::ConstantOp::create(builder, location, builder.getBoolAttr(true)),
                   getLanes(pointer));
    Value zero = arith::ConstantOp::create(builder, location, builder.getZeroAttr(stored));
    value = LLVM::masked_gather::create(builder, location, stored, pointer, mask, zero,
                                        builder.getI32IntegerAttr(alignment));
  } else if (mask) {
    Value zero = arith::ConstantOp::create(builder, location, builder.getZeroAttr(stored));
    value = LLVM::MaskedLoadOp::create(builder, location, stored, pointer, mask, zero,
                                       builder.getI32IntegerAttr(alignment));
  } else {
    value = LLVM::LoadOp::create(builder, location, stored, pointer, alignment);
  }
  return element.isInteger(1) ? asBoolean(builder, location, value) : value;
}

Value NodeEmitter::emitLoad(const ElementNode &node) {
  Value buffer = arguments.buffers[node.number];
  unsigned alignment = getAlignment(node.type);
  Value guard = node.guard == kNoNode ? Value() : emitNode(node.guard);
  Scope *scope = findVectorScope(node.variables);
  if (!scope) {
    Value index = emitIndex(node.address, nullptr);
    // Where the guard is false any address will do.
    if (guard)
      index = arith::SelectOp::create(builder, location, guard, index, constant(0));
    return loadFrom(getAddress(buffer, node.type, index), node.type, alignment, nullptr);
  }
  Type type = getVectorType(node.type, scope->lanes);
  if (Value shared = emitSharedLoad(node, scope, guard))
    return shared;
  if (guard)
    guard = splat(guard, scope->lanes);
  if (table.getStride(node.address, *scope->vector) == 1) {
    Value index = emitIndex(node.address, nullptr);
    return loadFrom(getAddress(buffer, node.type, index), type,
                    getAlignment(node.address, node.type, scope), guard);
  }
  Value index = emitVectorIndex(node.address, scope);
  return loadFrom(getAddress(buffer, node.type, index), type, alignment, guard);
}

/// Elements that several lanes read are read once; null where they cannot be told.
Value NodeEmitter::emitSharedLoad(const ElementNode &node, Scope *scope, Value guard) {
  if (table.getStride(node.address, *scope->vector) == 1)
    return nullptr; // a vector as it lies
  std::optional<SmallVector<int64_t>> offsets =
      table.getOffsets(node.address, {*scope->vector, scope->lanes, scope->step});
  std::optional<SharedReads> reads = offsets ? shareReads(*offsets) : std::nullopt;
  // A guard for each lane is none for each element.
  if (!reads || (guard && isa<VectorType>(guard.getType())))
    return nullptr;
  auto count = static_cast<int64_t>(reads->offsets.size());
  bool areContiguous = reads->areContiguous();
  Value index = emitIndex(node.address, nullptr);
  if (areContiguous && reads->offsets.front())
    index = arith::AddIOp::create(builder, location, index, constant(reads->offsets.front()));
  if (count == 1) {
    // Where the guard is false any address will do.
    if (guard)
      index = arith::SelectOp::create(builder, location, guard, index, constant(0));
    Value element = loadFrom(getAddress(arguments.buffers[node.number], node.type, index),
                             node.type, getAlignment(node.type), nullptr);
    return splat(element, scope->lanes);
  }
  if (!areContiguous) {
    auto type = cast<VectorType>(getVectorType(builder.getI64Type(), count));
    Value steps = arith::ConstantOp::create(builder, location,
                                            DenseElementsAttr::get(type, ArrayRef(reads->offsets)));
    index = arith::AddIOp::create(builder, location, splat(index, count), steps);
  }
  Value elements = loadFrom(getAddress(arguments.buffers[node.number], node.type, index),
                            getVectorType(node.type, count), getAlignment(node.type),
                            guard ? splat(guard, count) : Value());
  Value poison = LLVM::PoisonOp::create(builder, location, elements.getType());
  return LLVM::ShuffleVectorOp::create(builder, location, elements, poison, reads->choice);
}

/// `pointer` is one address, of a scalar or of the first lane, or a vector of addresses.
void NodeEmitter::storeTo(Value pointer, Value value, unsigned alignment, Value mask) {
  Type element = getElementTypeOrSelf(value.getType());
  if (element.isInteger(1)) {
    Type bytes = builder.getI8Type();
    if (auto vector = dyn_cast<VectorType>(value.getType()))
      bytes = vector.clone(bytes);
    value = arith::ExtUIOp::create(builder, location, bytes, value);
  }
  if (!isa<VectorType>(pointer.getType())) {
    LLVM::StoreOp::create(builder, location, value, pointer, alignment);
    return;
  }
  if (!mask)
    mask = splat(arith::ConstantOp::create(builder, location, builder.getBoolAttr(true)),
                 getLanes(pointer));
  LLVM::masked_scatter::create(builder, location, value, pointer, mask,
                               builder.getI32IntegerAttr(alignment));
}
