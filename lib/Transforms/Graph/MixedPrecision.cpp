//===- MixedPrecision.cpp - narrow operands for products --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What torch.autocast does at run time, done to the graph (Micikevicius et al., Mixed Precision
// Training, ICLR 2018): matmul, convolution and attention read narrow operands, their sums stay in
// f32 and are rounded once, behind the bias that is added to them. Everything else is computed in
// f32.
//
// Runs in front of autodiff. The gradient of a cast is a cast, so the backward pass multiplies
// narrow values too, and what it takes from the forward pass is what that has rounded: kept
// activations halve by themselves. Behind autodiff both would be work of their own.
//
// A value is rounded where it is stored, not at every op:
//
//   product    the result with its bias, always
//   operand    of a product, where it is made; through ops that only move elements, further up
//   follower   an op that has a narrow form of its own (relu, pools, batch norm, softmax: computed
//              in f32, stored narrow) and reads rounded values alone takes that form
//   the rest   elementwise results of rounded values alone count as rounded, and are in fact where
//              several ops read them and one of these will keep them, or a product reads them, too
//
// Sums of a rounded value and one that is not (the residual stream of a transformer begins with
// f32 embeddings) are f32, as PyTorch promotes them.
//
// With master weights, the default, parameters are f32 variables and their casts ops of the step.
// Without, they are bf16 variables, and updates are rounded at random (memopt-insert-optimizer).
//
// Left in f32: products that neither a trainable parameter nor a floating-point input reaches, such
// as tables of positions, whose integers a narrow type would round; f64 and integers.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_MIXEDPRECISIONPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// What ops are to it
//===----------------------------------------------------------------------===//

static bool isSingle(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getElementType().isF32();
}

/// Operands that decide whether `op` may take its narrow form; none where it has no such form.
static SmallVector<OpOperand *> getFollowed(Operation *op) {
  SmallVector<OpOperand *> followed;
  if (isa<ViewOpInterface>(op))
    for (OpOperand &operand : op->getOpOperands())
      followed.push_back(&operand);
  else if (auto precision = dyn_cast<PrecisionOpInterface>(op))
    for (unsigned number : precision.getFollowedOperands())
      followed.push_back(&op->getOpOperand(number));
  return followed;
}

static bool isElementwise(Operation *op) {
  if (auto precision = dyn_cast<PrecisionOpInterface>(op))
    return precision.isElementwise();
  return isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
         OpTrait::hasElementwiseMappableTraits(op) && op->getNumResults() == 1;
}

/// Operands that a library reads narrow where the result is narrow, too.
static SmallVector<unsigned> getNarrowOperands(Operation *op) {
  auto precision = dyn_cast<PrecisionOpInterface>(op);
  return precision ? precision.getNarrowOperands() : SmallVector<unsigned>();
}

/// The sum of `product` and a bias, which its library call will store; else the product.
static Value findBiasSum(Value product) {
  Value value = product;
  if (!value.hasOneUse())
    return product;
  Operation *user = *value.user_begin();
  if (isReshape(user) && user->hasOneUse()) {
    value = user->getResult(0);
    user = *value.user_begin();
  }
  auto add = dyn_cast<arith::AddFOp>(user);
  if (!add || add.getLhs() == add.getRhs())
    return product;
  Value other = add.getLhs() == value ? add.getRhs() : add.getLhs();
  auto bias = other.getDefiningOp<BroadcastOp>();
  return bias && cast<RankedTensorType>(bias.getInput().getType()).getRank() == 1 ? add.getResult()
                                                                                  : product;
}

//===----------------------------------------------------------------------===//
// Casts
//===----------------------------------------------------------------------===//

namespace {
class CastInserter {
public:
  CastInserter(func::FuncOp step, FloatType type, SymbolTable &symbols)
      : step(step), type(type), builder(step.getContext()) {
    findReached(symbols);
  }

  void run();
  int64_t getProducts() const { return products; }
  int64_t getCasts() const { return casts; }

private:
  void findReached(SymbolTable &symbols);
  void visitAll(Block &block);
  void visit(Operation *op);
  void enter(ScanOp scan);
  void narrowProduct(Operation *op);
  void narrowWhole(Operation *op, ArrayRef<unsigned> operands);
  void follow(Operation *op, ArrayRef<OpOperand *> followed);
  void visitElementwise(Operation *op);
  Value getNarrow(Value value);
  Value makeNarrow(Value value);
  void round(Value value) { getNarrow(markRounded(value)); }
  Value markRounded(Value value) {
    rounded.insert(value);
    reached.insert(value);
    return value;
  }
  void widen(Value made, Value original);
  /// `value`, which was there in f32, is narrow from here on; others read it widened.
  void setNarrow(Value value);
  RankedTensorType narrowed(Value value) const {
    return cast<RankedTensorType>(value.getType()).clone(type);
  }

  func::FuncOp step;
  FloatType type;
  OpBuilder builder;
  /// Values that a trainable parameter or a floating-point input reaches.
  DenseSet<Value> reached;
  /// f32 values that autocast would have in the narrow type.
  DenseSet<Value> rounded;
  /// f32 values and their narrow forms.
  DenseMap<Value, Value> narrow;
  int64_t products = 0, casts = 0;
};
} // namespace

void CastInserter::findReached(SymbolTable &symbols) {
  for (BlockArgument argument : step.getArguments())
    if (isSingle(argument))
      reached.insert(argument);
  for (Operation &op : step.getBody().front()) {
    auto read = dyn_cast<ReadOp>(op);
    auto variable = read ? symbols.lookup<VariableOp>(read.getVariable()) : VariableOp();
    bool isReached = (variable && variable.getTrainable()) ||
                     llvm::any_of(op.getOperands(), [&](Value v) { return reached.contains(v); });
    if (isReached)
      reached.insert_range(op.getResults());
  }
}

void CastInserter::run() { visitAll(step.getBody().front()); }

void CastInserter::visitAll(Block &block) {
  SmallVector<Operation *> ops = llvm::map_to_vector(block, [](Operation &op) { return &op; });
  for (Operation *op : ops)
    visit(op);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// Products in the body of a loop read narrow operands, too. What the loop begins with, carries and
/// leaves stays as it is, but for what products alone read, or what is rounded anyway: that is
/// rounded once, in front of the loop.
void CastInserter::enter(ScanOp scan) {
  auto isReached = [&](Value value) { return reached.contains(value); };
  if (llvm::none_of(scan->getOperands(), isReached))
    return;
  Block &body = scan.getBody().front();
  unsigned uncarried = scan->getNumOperands() - scan.getCarried().size();
  for (auto [number, argument] : llvm::enumerate(body.getArguments())) {
    Value operand = scan->getOperand(number);
    if (!isSingle(argument) || argument.use_empty())
      continue;
    if (number >= uncarried || isReached(operand))
      reached.insert(argument);
    bool feedsProducts = llvm::all_of(argument.getUsers(), [](Operation *user) {
      return user->hasTrait<OpTrait::ComputedByLibrary>() &&
             llvm::all_of(user->getOperands(), isSingle);
    });
    if (number >= uncarried ||
        !(rounded.contains(operand) || (feedsProducts && isReached(operand))))
      continue;
    scan->setOperand(number, getNarrow(operand));
    setNarrow(argument);
  }
  for (Operation &op : body)
    if (llvm::any_of(op.getOperands(), isReached))
      reached.insert_range(op.getResults());
  visitAll(body);
}

void CastInserter::visit(Operation *op) {
  if (auto scan = dyn_cast<ScanOp>(op))
    return enter(scan);
  bool isReached = llvm::any_of(op->getOperands(), [&](Value v) { return reached.contains(v); });
  if (SmallVector<unsigned> operands = getNarrowOperands(op); !operands.empty())
    return isSingle(op->getOperand(operands.front())) && isReached ? narrowWhole(op, operands)
                                                                   : void();
  if (op->hasTrait<OpTrait::ComputedByLibrary>())
    return llvm::all_of(op->getOperands(), isSingle) && isReached ? narrowProduct(op) : void();
  if (op->getNumResults() == 0 || !isSingle(op->getResult(0)))
    return;
  SmallVector<OpOperand *> followed = getFollowed(op);
  if (!followed.empty() &&
      llvm::all_of(followed, [&](OpOperand *operand) { return rounded.contains(operand->get()); }))
    return follow(op, followed);
  if (isElementwise(op))
    visitElementwise(op);
}

void CastInserter::narrowProduct(Operation *op) {
  for (OpOperand &operand : op->getOpOperands())
    operand.set(getNarrow(operand.get()));
  ++products;
  round(findBiasSum(op->getResult(0)));
}

/// The op reads these operands narrow and gives a narrow result.
void CastInserter::narrowWhole(Operation *op, ArrayRef<unsigned> operands) {
  for (unsigned number : operands)
    op->setOperand(number, getNarrow(op->getOperand(number)));
  ++products;
  setNarrow(op->getResult(0));
}

/// The op's narrow form takes its place.
void CastInserter::follow(Operation *op, ArrayRef<OpOperand *> followed) {
  for (OpOperand *operand : followed)
    operand->set(getNarrow(operand->get()));
  setNarrow(op->getResult(0));
}

void CastInserter::setNarrow(Value value) {
  Type single = value.getType();
  value.setType(narrowed(value));
  builder.setInsertionPointAfterValue(value);
  auto wide = arith::ExtFOp::create(builder, value.getLoc(), single, value);
  value.replaceAllUsesExcept(wide, wide);
  narrow[markRounded(wide)] = value;
}

void CastInserter::visitElementwise(Operation *op) {
  bool hasRounded = false;
  for (Value operand : op->getOperands()) {
    if (!isSingle(operand) || matchPattern(operand, m_Constant()))
      continue;
    if (!rounded.contains(operand))
      return;
    hasRounded = true;
  }
  if (!hasRounded)
    return;
  Value result = op->getResult(0);
  rounded.insert(result);
  bool isKept = llvm::any_of(result.getUsers(), [](Operation *user) {
    return !isElementwise(user) && !isa<ReduceOp>(user);
  });
  if (!result.hasOneUse() && isKept)
    round(result);
}

/// The narrow form of an f32 value, made where the value is.
Value CastInserter::getNarrow(Value value) {
  if (Value known = narrow.lookup(value))
    return known;
  if (auto wide = value.getDefiningOp<arith::ExtFOp>())
    if (wide.getIn().getType() == narrowed(value))
      return wide.getIn();
  OpBuilder::InsertionGuard guard(builder);
  Value made = makeNarrow(value);
  narrow[value] = made;
  // All who read a rounded value read the same one.
  if (rounded.contains(value))
    widen(made, value);
  return made;
}

Value CastInserter::makeNarrow(Value value) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<ViewOpInterface>(op)) {
    // By number: where an operand gets its narrow form, the op reads that one widened from then on.
    SmallVector<Value> operands;
    for (unsigned number = 0; number < op->getNumOperands(); ++number)
      operands.push_back(getNarrow(op->getOperand(number)));
    builder.setInsertionPointAfter(op);
    Operation *moved = builder.clone(*op);
    moved->setOperands(operands);
    moved->getResult(0).setType(narrowed(value));
    return moved->getResult(0);
  }
  builder.setInsertionPointAfterValue(value);
  ++casts;
  return arith::TruncFOp::create(builder, value.getLoc(), narrowed(value), value);
}

/// Puts the widened narrow form in the place of `original` everywhere else.
void CastInserter::widen(Value made, Value original) {
  builder.setInsertionPointAfterValue(made);
  Value wide = arith::ExtFOp::create(builder, original.getLoc(), original.getType(), made);
  original.replaceUsesWithIf(wide, [&](OpOperand &use) {
    return use.getOwner() != made.getDefiningOp() && use.getOwner() != wide.getDefiningOp();
  });
  narrow[markRounded(wide)] = made;
}

//===----------------------------------------------------------------------===//
// Parameters without a master copy
//===----------------------------------------------------------------------===//

static uint16_t roundToBFloat16(float number) {
  APFloat value(number);
  bool losesInfo;
  value.convert(APFloat::BFloat(), APFloat::rmNearestTiesToEven, &losesInfo);
  return static_cast<uint16_t>(value.bitcastToAPInt().getZExtValue());
}

/// First values in bf16; nothing where they are in a form that cannot be read.
static std::optional<ElementsAttr> roundInitial(ElementsAttr initial, RankedTensorType narrow) {
  if (auto dense = dyn_cast<DenseFPElementsAttr>(initial))
    return cast<ElementsAttr>(dense.mapValues(narrow.getElementType(), [](const APFloat &value) {
      return APInt(16, roundToBFloat16(value.convertToFloat()));
    }));
  auto resource = dyn_cast<DenseF32ResourceElementsAttr>(initial);
  std::optional<ArrayRef<float>> numbers = resource ? resource.tryGetAsArrayRef() : std::nullopt;
  if (!numbers)
    return std::nullopt;
  SmallVector<uint16_t> rounded = llvm::map_to_vector(*numbers, roundToBFloat16);
  auto blob = HeapAsmResourceBlob::allocateAndCopyInferAlign(ArrayRef(rounded));
  StringRef name = resource.getRawHandle().getKey();
  return cast<ElementsAttr>(DenseResourceElementsAttr::get(narrow, name, std::move(blob)));
}

/// Trainable parameters live in `type`; whoever reads them in f32 reads them widened.
static LogicalResult narrowParameters(ModuleOp module, FloatType type) {
  OpBuilder builder(module.getContext());
  llvm::StringSet<> narrowed;
  for (auto variable : module.getOps<VariableOp>()) {
    if (!variable.getTrainable() || !variable.getTensorType().getElementType().isF32())
      continue;
    RankedTensorType narrow = variable.getTensorType().clone(type);
    if (std::optional<ElementsAttr> initial = variable.getInitial()) {
      std::optional<ElementsAttr> rounded = roundInitial(*initial, narrow);
      if (!rounded)
        return variable.emitOpError("has first values in a form that cannot be rounded");
      variable.setInitialAttr(*rounded);
    }
    variable.setType(narrow);
    narrowed.insert(variable.getSymName());
  }
  module.walk([&](ReadOp read) {
    if (!narrowed.contains(read.getVariable()))
      return;
    Value value = read.getResult();
    Type single = value.getType();
    value.setType(cast<RankedTensorType>(single).clone(type));
    builder.setInsertionPointAfter(read);
    auto wide = arith::ExtFOp::create(builder, read.getLoc(), single, value);
    value.replaceAllUsesExcept(wide, wide);
  });
  return success();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct MixedPrecisionPass : mlir::memopt::impl::MixedPrecisionPassBase<MixedPrecisionPass> {
  using MixedPrecisionPassBase::MixedPrecisionPassBase;

  void runOnOperation() override {
    FailureOr<FloatType> type = parseType();
    if (failed(type))
      return signalPassFailure();
    if (!hasMasterWeights && !(*type && type->isBF16())) {
      getOperation().emitError() << "parameters without a master copy are bf16, which "
                                 << this->type << " is not";
      return signalPassFailure();
    }
    if (!*type)
      return markAllAnalysesPreserved();
    ModuleOp module = getOperation();
    if (!hasMasterWeights && failed(narrowParameters(module, *type)))
      return signalPassFailure();
    SymbolTable symbols(module);
    for (auto step : module.getOps<func::FuncOp>())
      if (step.getBody().hasOneBlock())
        insertCasts(step, *type, symbols);
  }

private:
  FailureOr<FloatType> parseType() {
    Builder builder(&getContext());
    if (type == "f32")
      return FloatType();
    if (type == "bf16")
      return FloatType(builder.getBF16Type());
    if (type == "fp16")
      return FloatType(builder.getF16Type());
    return getOperation().emitError()
           << "expected f32, bf16 or fp16 as the precision, found '" << type << "'";
  }

  void insertCasts(func::FuncOp step, FloatType narrow, SymbolTable &symbols) {
    CastInserter casts(step, narrow, symbols);
    casts.run();
    remark::passed(step.getLoc(), remark::RemarkOpts::name("MixedPrecision")
                                      .category("memopt-mixed-precision")
                                      .function(step.getName()))
        << remark::metric("NarrowProducts", casts.getProducts())
        << remark::metric("Casts", casts.getCasts());
  }
};
} // namespace
