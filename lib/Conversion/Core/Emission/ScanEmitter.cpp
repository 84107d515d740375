//===- ScanEmitter.cpp - scans and sorts of kernels --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScanEmitter.h"
#include "memopt/Conversion/Core/Math/MathExpansion.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

namespace {
/// The step of one scan op on scalars (no lanes) or on lanes: what is carried, and what of it is
/// stored.
class ScanStep {
public:
  ScanStep(OpBuilder &builder, Location location, Operation *op, int64_t lanes)
      : builder(builder), location(location), op(op), lanes(lanes) {}

  SmallVector<Value> getInitial() {
    Type element = getElement();
    if (auto scan = dyn_cast<LinearScanOp>(op))
      return {number(getCarried(element), scan.getInitial().convertToDouble())};
    if (isa<LogSumExpScanOp>(op))
      return {number(element, -std::numeric_limits<double>::infinity())};
    auto extreme = cast<ArgextremeScanOp>(op);
    return {lowest(element, extreme.getKind() == ReduceKind::Max), number(builder.getI64Type(), 0)};
  }

  /// `position` is where the step is along the axis.
  SmallVector<Value> run(ValueRange carried, ArrayRef<Value> values, Value position) {
    if (isa<LinearScanOp>(op)) {
      Type wide = getCarried(getElement());
      Value scaled = create(
          wide, isFloat() ? arith::MulFOp::getOperationName() : arith::MulIOp::getOperationName(),
          {widen(values[0]), carried[0]});
      return {create(
          wide, isFloat() ? arith::AddFOp::getOperationName() : arith::AddIOp::getOperationName(),
          {scaled, widen(values[1])})};
    }
    if (isa<LogSumExpScanOp>(op))
      return {addExponentials(carried[0], values[0])};
    Value isNew = isNewExtreme(carried[0], values[0]);
    return {select(isNew, values[0], carried[0]), select(isNew, position, carried[1])};
  }

  Value getStored(ValueRange carried) {
    if (isa<ArgextremeScanOp>(op))
      return carried[1];
    if (carried[0].getType() == withLanes(getElement()))
      return carried[0];
    return arith::TruncFOp::create(builder, location, withLanes(getElement()), carried[0]);
  }

private:
  Type getElement() { return getElementTypeOrSelf(op->getOperand(0).getType()); }
  bool isFloat() { return isa<FloatType>(getElement()); }
  /// Sums of many terms are carried in f64, as PyTorch carries them.
  Type getCarried(Type element) { return isa<FloatType>(element) ? builder.getF64Type() : element; }
  Type withLanes(Type element) { return lanes == 0 ? element : VectorType::get({lanes}, element); }

  Value constant(TypedAttr value) {
    if (lanes)
      value = DenseElementsAttr::get(cast<ShapedType>(withLanes(value.getType())),
                                     ArrayRef<Attribute>(value));
    return arith::ConstantOp::create(builder, location, value);
  }
  Value number(Type type, double value) {
    if (isa<FloatType>(type))
      return constant(builder.getFloatAttr(type, value));
    return constant(builder.getIntegerAttr(type, static_cast<int64_t>(value)));
  }
  Value lowest(Type type, bool ofAll) {
    if (isa<FloatType>(type))
      return number(type, ofAll ? -std::numeric_limits<double>::infinity()
                                : std::numeric_limits<double>::infinity());
    unsigned width = type.getIntOrFloatBitWidth();
    return constant(builder.getIntegerAttr(type, ofAll ? APInt::getSignedMinValue(width)
                                                       : APInt::getSignedMaxValue(width)));
  }
  Value widen(Value value) {
    Type wide = withLanes(getCarried(getElement()));
    return value.getType() == wide ? value : arith::ExtFOp::create(builder, location, wide, value);
  }
  Value create(Type element, StringRef name, ValueRange operands) {
    Type type = withLanes(element);
    OperationName opName(name, builder.getContext());
    if (Value expanded = expandMath(builder, location, opName, type, operands))
      return expanded;
    OperationState state(location, opName);
    state.addOperands(operands);
    state.addTypes(type);
    return builder.create(state)->getResult(0);
  }
  Value select(Value condition, Value a, Value b) {
    return arith::SelectOp::create(builder, location, condition, a, b);
  }
  Value compare(arith::CmpFPredicate predicate, Value a, Value b) {
    return arith::CmpFOp::create(builder, location, predicate, a, b);
  }

  /// max + log1p(exp(min - max)); the maximum alone where the difference is none of finite numbers.
  Value addExponentials(Value a, Value b) {
    Type element = getElement();
    Value high = create(element, arith::MaximumFOp::getOperationName(), {a, b});
    Value low = create(element, arith::MinimumFOp::getOperationName(), {a, b});
    Value distance = create(element, arith::SubFOp::getOperationName(), {low, high});
    Value rest = create(element, math::Log1pOp::getOperationName(),
                        create(element, math::ExpOp::getOperationName(), distance));
    Value sum = create(element, arith::AddFOp::getOperationName(), {high, rest});
    Value isFinite = compare(arith::CmpFPredicate::ONE, low, high);
    Value doubled = create(element, arith::AddFOp::getOperationName(),
                           {high, number(element, 0.6931471805599453)});
    // Equal numbers have no distance, and two infinities none that is a number.
    return select(isFinite, sum, select(isInfinite(high), high, doubled));
  }
  Value isInfinite(Value value) {
    Value magnitude = create(getElement(), math::AbsFOp::getOperationName(), value);
    return compare(arith::CmpFPredicate::UEQ, magnitude,
                   number(getElement(), std::numeric_limits<double>::infinity()));
  }

  /// The last of equal elements counts, and NaN above all.
  Value isNewExtreme(Value best, Value value) {
    bool isMax = cast<ArgextremeScanOp>(op).getKind() == ReduceKind::Max;
    if (!isFloat())
      return arith::CmpIOp::create(builder, location,
                                   isMax ? arith::CmpIPredicate::sge : arith::CmpIPredicate::sle,
                                   value, best);
    Value isBetter =
        compare(isMax ? arith::CmpFPredicate::OGE : arith::CmpFPredicate::OLE, value, best);
    Value isNan = compare(arith::CmpFPredicate::UNO, value, value);
    return arith::OrIOp::create(builder, location, isBetter, isNan);
  }

  OpBuilder &builder;
  Location location;
  Operation *op;
  int64_t lanes;
};
} // namespace

void ScanEmitter::emit(const KernelScan &scan, int64_t lanes) {
  int64_t size = table.getSize(scan.along);
  ScanStep step(builder, location, scan.op, lanes);
  auto onLanes = [&](Value value) { return lanes ? splat(value, lanes) : value; };
  nodes.emitLoop(
      constant(0), constant(size), 1, step.getInitial(), [&](Value turn, ValueRange carried) {
        ScopeGuard scope(nodes);
        Value position = turn;
        if (scan.isReversed)
          position = arith::SubIOp::create(builder, location, constant(size - 1), turn);
        scope->variables.push_back({scan.along, position});
        SmallVector<Value> values;
        for (NodeId node : scan.values)
          values.push_back(onLanes(nodes.emitNode(node)));
        SmallVector<Value> next = step.run(carried, values, onLanes(position));
        Value stored = step.getStored(next);
        Type element = getElementTypeOrSelf(stored.getType());
        Scope *columns = scan.points.column ? nodes.findVectorScope(*scan.points.column) : nullptr;
        nodes.storeTo(nodes.getAddress(nodes.arguments.results[scan.result], element,
                                       nodes.emitIndex(scan.address, nullptr)),
                      stored, nodes.getAlignment(scan.address, element, columns), nullptr);
        return next;
      });
}

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

namespace {
/// A heap of positions in the result's own memory, whose root is the last in order of those kept.
class OrderEmitter {
public:
  /// `readElement` gives the element at a position, `getSlot` the address of a place in the heap.
  OrderEmitter(OpBuilder &builder, Location location, bool isDescending,
               llvm::function_ref<Value(Value)> readElement,
               llvm::function_ref<Value(Value)> getSlot)
      : builder(builder), location(location), isDescending(isDescending), readElement(readElement),
        getSlot(getSlot) {}

  void run(int64_t elements, int64_t wanted);

private:
  Value constant(int64_t value) {
    return arith::ConstantOp::create(builder, location, builder.getI64IntegerAttr(value));
  }
  Value load(Value place) {
    return LLVM::LoadOp::create(builder, location, builder.getI64Type(), getSlot(place), 8);
  }
  void store(Value place, Value position) {
    LLVM::StoreOp::create(builder, location, position, getSlot(place), 8);
  }
  Value add(Value a, int64_t b) { return arith::AddIOp::create(builder, location, a, constant(b)); }
  Value isBelow(Value a, Value b) {
    return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, a, b);
  }
  Value both(Value a, Value b) { return arith::AndIOp::create(builder, location, a, b); }
  Value either(Value a, Value b) { return arith::OrIOp::create(builder, location, a, b); }
  Value isLess(Value a, Value b);
  Value comesBefore(Value a, Value b);
  Value chooseChild(Value left, Value size);
  void siftDown(Value root, Value size);
  void forEach(int64_t begin, int64_t end, llvm::function_ref<void(Value)> body);
  void when(Value condition, llvm::function_ref<void()> body);

  OpBuilder &builder;
  Location location;
  bool isDescending;
  llvm::function_ref<Value(Value)> readElement, getSlot;
};
} // namespace

/// NaN is greater than all numbers.
Value OrderEmitter::isLess(Value a, Value b) {
  if (a.getType().isInteger(1))
    return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::ult, a, b);
  if (isa<IntegerType>(a.getType()))
    return isBelow(a, b);
  Value aIsNan = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::UNO, a, a);
  Value bIsNan = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::UNO, b, b);
  Value aIsNumber = arith::XOrIOp::create(
      builder, location, aIsNan,
      arith::ConstantOp::create(builder, location, builder.getBoolAttr(true)));
  Value below = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OLT, a, b);
  return either(below, both(bIsNan, aIsNumber));
}

/// Whether the element at position `a` comes before that at `b`; equal ones keep their order.
Value OrderEmitter::comesBefore(Value a, Value b) {
  Value x = readElement(a), y = readElement(b);
  if (isDescending)
    std::swap(x, y);
  Value less = isLess(x, y), greater = isLess(y, x);
  Value isFirst = isBelow(a, b);
  Value no = arith::ConstantOp::create(builder, location, builder.getBoolAttr(false));
  return either(less, arith::SelectOp::create(builder, location, greater, no, isFirst));
}

void OrderEmitter::forEach(int64_t begin, int64_t end, llvm::function_ref<void(Value)> body) {
  auto loop = scf::ForOp::create(builder, location, constant(begin), constant(end), constant(1));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(loop.getBody()->getTerminator());
  body(loop.getInductionVar());
}

void OrderEmitter::when(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(builder, location, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  body();
}

/// Of the children `left` and `left + 1` the one that comes later.
Value OrderEmitter::chooseChild(Value left, Value size) {
  Value right = add(left, 1);
  auto choice =
      scf::IfOp::create(builder, location, TypeRange(builder.getI64Type()), isBelow(right, size),
                        /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  Value isLater = comesBefore(load(left), load(right));
  Value chosen = arith::SelectOp::create(builder, location, isLater, right, left);
  scf::YieldOp::create(builder, location, chosen);
  builder.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(builder, location, left);
  return choice.getResult(0);
}

/// Moves what is at `root` down until no child comes later.
void OrderEmitter::siftDown(Value root, Value size) {
  Type i64 = builder.getI64Type();
  auto loop = scf::WhileOp::create(
      builder, location, TypeRange(i64), ValueRange(root),
      [&](OpBuilder &, Location, ValueRange place) {
        Value left = add(arith::MulIOp::create(builder, location, place[0], constant(2)), 1);
        scf::ConditionOp::create(builder, location, isBelow(left, size), place);
      },
      [&](OpBuilder &, Location, ValueRange place) {
        Value left = add(arith::MulIOp::create(builder, location, place[0], constant(2)), 1);
        Value child = chooseChild(left, size);
        Value upper = load(place[0]), lower = load(child), isLater = comesBefore(upper, lower);
        when(isLater, [&] {
          store(place[0], lower);
          store(child, upper);
        });
        // A place beyond the heap ends the loop.
        Value next = arith::SelectOp::create(builder, location, isLater, child, size);
        scf::YieldOp::create(builder, location, next);
      });
  (void)loop;
}

void OrderEmitter::run(int64_t elements, int64_t wanted) {
  Value size = constant(wanted), zero = constant(0);
  forEach(0, wanted, [&](Value place) { store(place, place); });
  forEach(0, wanted / 2, [&](Value turn) {
    siftDown(arith::SubIOp::create(builder, location, constant(wanted / 2 - 1), turn), size);
  });
  forEach(wanted, elements, [&](Value position) {
    when(comesBefore(position, load(zero)), [&] {
      store(zero, position);
      siftDown(zero, size);
    });
  });
  // The root is the last of what is left: it goes to the end.
  forEach(0, wanted - 1, [&](Value turn) {
    Value end = arith::SubIOp::create(builder, location, constant(wanted - 1), turn);
    Value last = load(zero);
    store(zero, load(end));
    store(end, last);
    siftDown(zero, end);
  });
}

void ScanEmitter::emit(const KernelOrder &order) {
  auto withVariable = [&](AtomId variable, Value value, auto body) {
    ScopeGuard scope(nodes);
    scope->variables.push_back({variable, value});
    return body();
  };
  auto readElement = [&](Value position) {
    return withVariable(order.along, position, [&] { return nodes.emitNode(order.value); });
  };
  auto getSlot = [&](Value place) {
    return withVariable(order.place, place, [&] {
      return nodes.getAddress(nodes.arguments.results[order.result], builder.getI64Type(),
                              nodes.emitIndex(order.address, nullptr));
    });
  };
  // In a region of its own, which what does not change is computed before.
  auto region = scf::ExecuteRegionOp::create(builder, location, TypeRange());
  OpBuilder::InsertionGuard guard(builder);
  nodes.current->child = region;
  builder.setInsertionPointToStart(&region.getRegion().emplaceBlock());
  OrderEmitter(builder, location, order.isDescending, readElement, getSlot)
      .run(table.getSize(order.along), table.getSize(order.place));
  scf::YieldOp::create(builder, location);
  nodes.current->child = nullptr;
}
