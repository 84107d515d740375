//===- NarrowFrozen.cpp - frozen weights in few bits ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Adapters train a few numbers beside many that are frozen. The variables of these become codes
// and scales by block (Dettmers et al., QLoRA, 2023), and each read of one is followed by
// elementwise code that widens it: what later passes make again in the backward pass rather than
// keep it, and order right in front of its readers, so that a few widened weights are alive at a
// time. A product reads its weight in parts along what it sums over, and adds up in place. An
// element that data looks up, a row of a table of embeddings say, is widened alone.
//
// Input:  a step of linalg.generic, views and library ops.
// Output: the same; which variables hold codes they say themselves (FrozenVariable.h).
// Joined: an evaluation that reads a training's codes says of each variable which.
// Refused: words that are no form; parameters that ranks share out, whose pieces cut blocks.
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Optimizers/Update.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_NARROWFROZENPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
using ::memopt::codeBlock;
using ::memopt::scaleBlock;

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

static Value createIndex(ImplicitLocOpBuilder &b, int64_t value) {
  return createIntConstant(b, b.getIndexType(), value);
}

/// What a code stands for before it is scaled; `half` says which four bits of a byte.
static Value createElement(ImplicitLocOpBuilder &b, BlockCode code, Value byte, Value half,
                           Value table) {
  if (code == BlockCode::Int8)
    return arith::SIToFPOp::create(b, b.getF32Type(), byte);
  Type integer = b.getI32Type();
  Value bits = arith::ExtUIOp::create(b, integer, byte);
  Value shift =
      arith::MulIOp::create(b, convertTo(b, half, integer), createIntConstant(b, integer, 4));
  bits = arith::AndIOp::create(b, arith::ShRUIOp::create(b, bits, shift),
                               createIntConstant(b, integer, 15));
  Value index = arith::IndexCastOp::create(b, b.getIndexType(), bits);
  return tensor::ExtractOp::create(b, table, index);
}

static Value createScale(ImplicitLocOpBuilder &b, Value byte, Value unit) {
  Value bits = arith::ExtUIOp::create(b, b.getI32Type(), byte);
  return arith::MulFOp::create(b, arith::SIToFPOp::create(b, b.getF32Type(), bits), unit);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

namespace {
/// Widens what one read of codes gives.
class Widener {
public:
  Widener(const FrozenVariable &frozen, Value codes, Value scales, Value units)
      : frozen(frozen), codes(codes), scales(scales), units(units) {}

  /// All of it.
  Value widen(ImplicitLocOpBuilder &b) {
    if (frozen.code == BlockCode::BF16)
      return widenNumbers(b, codes);
    Value rows = reshapeTo(b, codes, {getBlocks(), getBlockBytes()});
    Value blocks = widenBlocks(b, rows, widenScales(b));
    return reshapeTo(b, cut(b, blocks, frozen.wholeType.getNumElements()),
                     frozen.wholeType.getShape());
  }

  /// Whether a dimension of a matrix can be cut into so many parts without cutting blocks.
  bool hasParts(int64_t dim, int64_t parts) const {
    int64_t size = frozen.wholeType.getDimSize(dim), columns = frozen.wholeType.getDimSize(1);
    if (size % parts != 0)
      return false;
    int64_t part = size / parts;
    return frozen.code == BlockCode::BF16 ||
           (dim == 0 ? part * columns % codeBlock == 0
                     : columns % codeBlock == 0 && part % codeBlock == 0);
  }

  /// Places [begin, begin + size) of a dimension of a matrix.
  Value widenPart(ImplicitLocOpBuilder &b, int64_t dim, int64_t begin, int64_t size) {
    if (frozen.code == BlockCode::BF16)
      return widenNumbers(b, slice(b, codes, dim, begin, size));
    SmallVector<int64_t> shape(frozen.wholeType.getShape()), blocks{getBlocks()};
    if (dim == 1)
      blocks = {shape[0], shape[1] / codeBlock};
    int64_t first = dim == 1 ? begin : begin * shape[1], count = dim == 1 ? size : size * shape[1];
    SmallVector<int64_t> rowShape(blocks);
    rowShape.push_back(getBlockBytes());
    Value rows = slice(b, reshapeTo(b, codes, rowShape), dim, first / codeBlock, count / codeBlock);
    Value scale =
        slice(b, reshapeTo(b, widenScales(b), blocks), dim, first / codeBlock, count / codeBlock);
    shape[dim] = size;
    return reshapeTo(b, widenBlocks(b, rows, scale), shape);
  }

  /// The element at a place.
  Value widenOne(ImplicitLocOpBuilder &b, ValueRange place) {
    if (frozen.code == BlockCode::BF16)
      return convertTo(b, tensor::ExtractOp::create(b, codes, place), b.getF32Type());
    Value number = createIndex(b, 0);
    for (auto [index, size] : llvm::zip_equal(place, frozen.wholeType.getShape()))
      number =
          arith::AddIOp::create(b, arith::MulIOp::create(b, number, createIndex(b, size)), index);
    Value block = arith::DivUIOp::create(b, number, createIndex(b, codeBlock));
    Value within = arith::RemUIOp::create(b, number, createIndex(b, codeBlock)), half, at = number;
    if (frozen.code == BlockCode::NF4) {
      Value bytes = createIndex(b, codeBlock / 2);
      half = arith::DivUIOp::create(b, within, bytes);
      at = arith::AddIOp::create(b, arith::MulIOp::create(b, block, bytes),
                                 arith::RemUIOp::create(b, within, bytes));
    }
    Value byte = tensor::ExtractOp::create(b, codes, at);
    Value scale = tensor::ExtractOp::create(b, scales, block);
    if (units) {
      Value unit = arith::DivUIOp::create(b, block, createIndex(b, scaleBlock));
      scale = createScale(b, scale, tensor::ExtractOp::create(b, units, unit));
    }
    return arith::MulFOp::create(b, createElement(b, frozen.code, byte, half, outerTable()), scale);
  }

  static Value slice(ImplicitLocOpBuilder &b, Value value, int64_t dim, int64_t begin,
                     int64_t size) {
    SmallVector<OpFoldResult> offsets, sizes, strides;
    for (int64_t whole : tensorType(value).getShape()) {
      offsets.push_back(b.getIndexAttr(0));
      sizes.push_back(b.getIndexAttr(whole));
      strides.push_back(b.getIndexAttr(1));
    }
    offsets[dim] = b.getIndexAttr(begin);
    sizes[dim] = b.getIndexAttr(size);
    return tensor::ExtractSliceOp::create(b, value, offsets, sizes, strides);
  }

private:
  static Read readAll(ImplicitLocOpBuilder &b, Value value) {
    return {value, b.getMultiDimIdentityMap(tensorType(value).getRank())};
  }
  int64_t getBlocks() const { return ::memopt::getBlockCount(frozen.wholeType.getNumElements()); }

  int64_t getBlockBytes() const { return ::memopt::getCodeBytes(frozen.code, codeBlock); }

  static Value widenNumbers(ImplicitLocOpBuilder &b, Value narrow) {
    return createPointwise(b, tensorType(narrow).getShape(), readAll(b, narrow), b.getF32Type(),
                           [](ImplicitLocOpBuilder &inner, ValueRange x) {
                             return SmallVector<Value>{convertTo(inner, x[0], inner.getF32Type())};
                           })[0];
  }

  /// `rows` have a block in their last dimension, and the others are those of `scale`.
  Value widenBlocks(ImplicitLocOpBuilder &b, Value rows, Value scale) {
    SmallVector<int64_t> domain(tensorType(scale).getShape());
    auto blockDims = static_cast<int64_t>(domain.size());
    bool isHalved = frozen.code == BlockCode::NF4;
    if (isHalved)
      domain.push_back(2);
    domain.push_back(getBlockBytes());
    SmallVector<int64_t> ofBlock = llvm::to_vector(llvm::seq<int64_t>(0, blockDims));
    SmallVector<int64_t> ofByte(ofBlock);
    ofByte.push_back(static_cast<int64_t>(domain.size()) - 1);
    MLIRContext *context = b.getContext();
    Value values = isHalved ? createTable(b) : Value();
    auto body = [&](ImplicitLocOpBuilder &inner, ValueRange x) {
      Value half = isHalved ? Value(linalg::IndexOp::create(inner, blockDims)) : Value();
      Value element = createElement(inner, frozen.code, x[0], half, values);
      return SmallVector<Value>{arith::MulFOp::create(inner, element, x[1])};
    };
    return createPointwise(b, domain,
                           {{rows, selectDims(context, domain.size(), ofByte)},
                            {scale, selectDims(context, domain.size(), ofBlock)}},
                           ArrayRef<Type>{b.getF32Type()}, body)[0];
  }

  static Value createTable(ImplicitLocOpBuilder &b) {
    auto type = RankedTensorType::get({16}, b.getF32Type());
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(type, ArrayRef<float>(::memopt::nf4Values)));
  }
  /// Beside the codes, outside of whatever looks an element up.
  Value outerTable() {
    if (frozen.code != BlockCode::NF4)
      return {};
    if (!table) {
      ImplicitLocOpBuilder b(codes.getLoc(), codes.getContext());
      b.setInsertionPointAfterValue(codes);
      table = createTable(b);
    }
    return table;
  }

  /// The first elements, without what fills up the last block.
  static Value cut(ImplicitLocOpBuilder &b, Value value, int64_t elements) {
    int64_t size = tensorType(value).getNumElements();
    Value vector = reshapeTo(b, value, {size});
    if (size == elements)
      return vector;
    SmallVector<OpFoldResult> offset{b.getIndexAttr(0)}, length{b.getIndexAttr(elements)},
        stride{b.getIndexAttr(1)};
    return tensor::ExtractSliceOp::create(b, vector, offset, length, stride);
  }

  /// Scales as f32, one for each block.
  Value widenScales(ImplicitLocOpBuilder &b) {
    if (!units)
      return scales;
    int64_t bytes = tensorType(scales).getNumElements(), count = tensorType(units).getNumElements();
    MLIRContext *context = b.getContext();
    Value rows = reshapeTo(b, scales, {count, bytes / count});
    Value wide = createPointwise(
        b, {count, bytes / count}, {readAll(b, rows), {units, selectDims(context, 2, {0})}},
        ArrayRef<Type>{b.getF32Type()}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
          return SmallVector<Value>{createScale(inner, x[0], x[1])};
        })[0];
    return cut(b, wide, getBlocks());
  }

  const FrozenVariable &frozen;
  Value codes, scales, units; ///< units: of scales that are bytes, else null
  Value table;
};
} // namespace

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Bytes of a widened weight that is worth parts, and of one that is worth many.
static constexpr int64_t kLeastBytes = 32 << 10, kManyBytes = 32 << 20;

/// Parts that the dimension which a product sums over is cut into; 1 where it is not.
static int64_t countParts(const Widener &widener, RankedTensorType weight, int64_t dim) {
  int64_t bytes = getTensorBytes(weight);
  for (int64_t parts : {16, 14, 12, 10, 8, 7, 6, 4, 5, 3, 2})
    if (bytes >= (parts > 5 ? kManyBytes : kLeastBytes) && widener.hasParts(dim, parts))
      return parts;
  return 1;
}

static Value addParts(ImplicitLocOpBuilder &b, Value sum, Value part) {
  AffineMap identity = b.getMultiDimIdentityMap(tensorType(sum).getRank());
  Value made =
      createPointwise(b, tensorType(sum).getShape(), {{sum, identity}, {part, identity}},
                      ArrayRef<Type>{tensorType(sum).getElementType()},
                      [](ImplicitLocOpBuilder &inner, ValueRange x) {
                        return SmallVector<Value>{arith::AddFOp::create(inner, x[0], x[1])};
                      })[0];
  made.getDefiningOp()->setDiscardableAttr(kSumOfPartsAttr, b.getUnitAttr());
  return made;
}

/// A product with a frozen weight as the sum of products with parts of it, each widened for itself:
///
///   x w  ->  x[:, part 0] w[part 0, :] + x[:, part 1] w[part 1, :] + ...
///
/// The parts follow from shapes alone, so bits do not depend on a budget.
static bool widenInParts(MatmulOp product, OpOperand &use, Widener &widener) {
  RankedTensorType left = tensorType(product.getA()), weight = tensorType(product.getResult());
  if (&use != &product.getBMutable() || product.getA() == product.getB() || left.getRank() != 2 ||
      weight.getRank() != 2)
    return false;
  int64_t leftDim = product.getTransposeA() ? 0 : 1, dim = product.getTransposeB() ? 1 : 0;
  int64_t size = left.getDimSize(leftDim), other = weight.getDimSize(1);
  auto type = RankedTensorType::get(dim == 0 ? ArrayRef<int64_t>{size, other}
                                             : ArrayRef<int64_t>{other, size},
                                    weight.getElementType());
  int64_t parts = countParts(widener, type, dim), part = size / parts;
  if (parts == 1)
    return false;
  ImplicitLocOpBuilder b(product.getLoc(), product);
  Operation *before = product->getPrevNode();
  Value sum;
  for (int64_t begin = 0; begin < size; begin += part) {
    Value weights = widener.widenPart(b, dim, begin, part);
    Value numbers = Widener::slice(b, product.getA(), leftDim, begin, part);
    Value made = MatmulOp::create(b, weight, numbers, weights, product.getTransposeAAttr(),
                                  product.getTransposeBAttr());
    sum = sum ? addParts(b, sum, made) : made;
  }
  for (Operation *made = product->getPrevNode(); made && made != before; made = made->getPrevNode())
    for (NamedAttribute attribute : product->getDiscardableAttrs())
      made->setDiscardableAttr(attribute.getName(), attribute.getValue());
  product.getResult().replaceAllUsesWith(sum);
  product->erase();
  return true;
}

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

static std::string declareScales(VariableOp parameter, SymbolTable &symbols, const Twine &name,
                                 int64_t elements, Type type) {
  OpBuilder b(parameter.getContext());
  OperationState state(parameter.getLoc(), VariableOp::getOperationName());
  VariableOp::build(b, state, name.str(), RankedTensorType::get({elements}, type), Role::Buffer);
  auto variable = cast<VariableOp>(Operation::create(state));
  variable.setTransient(true);
  variable.setNamesAttr(b.getStrArrayAttr({}));
  markFrozenScale(variable);
  symbols.insert(variable, std::next(parameter->getIterator()));
  return variable.getSymName().str();
}

/// Gives the variable the type of codes, and its scales variables of their own.
static FrozenVariable encode(VariableOp variable, const FrozenForm &form, SymbolTable &symbols) {
  RankedTensorType type = variable.getTensorType();
  FrozenVariable frozen{form.code, type, "", "", variable.getInitialAttr()};
  int64_t elements = type.getNumElements();
  Builder b(variable.getContext());
  RankedTensorType codes = type.clone(b.getBF16Type());
  if (form.code != BlockCode::BF16) {
    codes = RankedTensorType::get({::memopt::getCodeBytes(form.code, elements)}, b.getI8Type());
    int64_t scales = ::memopt::getBlockCount(elements);
    if (form.hasNarrowScales)
      frozen.scaleScales =
          declareScales(variable, symbols, "frozen.scale_scale." + variable.getSymName(),
                        ::memopt::getScaleBlockCount(scales), b.getF32Type());
    frozen.scales =
        declareScales(variable, symbols, "frozen.scale." + variable.getSymName(),
                      form.hasNarrowScales ? ::memopt::getScaleBytes(scales) : scales,
                      form.hasNarrowScales ? Type(b.getI8Type()) : Type(b.getF32Type()));
  }
  variable.removeInitialAttr();
  variable.setTypeAttr(TypeAttr::get(codes));
  frozen.attachTo(variable);
  return frozen;
}

static void widenRead(ReadOp read, VariableOp variable, const FrozenVariable &frozen,
                      SymbolTable &symbols) {
  SmallVector<OpOperand *> uses =
      llvm::map_to_vector(read.getResult().getUses(), [](OpOperand &use) { return &use; });
  read.getResult().setType(variable.getPlacedType());
  ImplicitLocOpBuilder b(read.getLoc(), read.getContext());
  b.setInsertionPointAfter(read);
  auto readScales = [&](const std::string &name) -> Value {
    auto scales = name.empty() ? VariableOp() : symbols.lookup<VariableOp>(name);
    if (!scales)
      return {};
    auto made = ReadOp::create(b, scales.getPlacedType(), FlatSymbolRefAttr::get(scales));
    made->setDiscardableAttrs(read->getDiscardableAttrDictionary());
    return made;
  };
  Value scales = readScales(frozen.scales), units = readScales(frozen.scaleScales);
  Widener widener(frozen, read.getResult(), scales, units);
  Value wide;
  for (OpOperand *use : uses) {
    if (auto extract = dyn_cast<tensor::ExtractOp>(use->getOwner())) {
      ImplicitLocOpBuilder inner(extract.getLoc(), extract);
      extract.replaceAllUsesWith(widener.widenOne(inner, extract.getIndices()));
      extract.erase();
      continue;
    }
    if (auto product = dyn_cast<MatmulOp>(use->getOwner());
        product && widenInParts(product, *use, widener))
      continue;
    if (!wide) {
      Operation *before = b.getInsertionPoint()->getPrevNode();
      wide = widener.widen(b);
      for (Operation *made = wide.getDefiningOp(); made && made != before;
           made = made->getPrevNode())
        made->setDiscardableAttrs(read->getDiscardableAttrDictionary());
    }
    use->set(wide);
  }
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct NarrowFrozenPass : mlir::memopt::impl::NarrowFrozenPassBase<NarrowFrozenPass> {
  using NarrowFrozenPassBase::NarrowFrozenPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto form = FrozenForm::parse(code, scales, [&] { return module.emitError(); });
    if (failed(form))
      return signalPassFailure();
    SmallVector<std::pair<VariableOp, FrozenForm>> narrowed;
    for (auto variable : module.getOps<VariableOp>())
      if (std::optional<FrozenForm> own = chooseForm(variable, *form))
        narrowed.push_back({variable, *own});
    if (!*form && narrowed.empty())
      return markAllAnalysesPreserved();
    FailureOr<StepModel> step = StepModel::create(module);
    if (failed(step))
      return signalPassFailure();
    SymbolTable symbols(module);
    int64_t values = 0, before = 0, after = 0;
    for (auto [variable, own] : narrowed) {
      if (!step->getWrites(variable.getSymNameAttr()).empty())
        continue;
      if (variable.getShard()) {
        variable.emitOpError() << "is shared out over ranks, and kept in "
                               << ::memopt::getName(own.code) << ": blocks of codes are not cut";
        return signalPassFailure();
      }
      ArrayRef<ReadOp> reads = step->getReads(variable.getSymNameAttr());
      int64_t elements = variable.getTensorType().getNumElements();
      FrozenVariable frozen = encode(variable, own, symbols);
      for (ReadOp read : reads)
        widenRead(read, variable, frozen, symbols);
      ++values;
      before += 4 * elements;
      after += own.getBytes(elements);
    }
    if (*form)
      emitRemark(step->getFunction().getLoc())
          << "keeps " << values << " frozen parameters in " << code << ": " << after
          << " bytes instead of " << before;
  }

  /// What the state has that the program joins, or else what is asked for.
  static std::optional<FrozenForm> chooseForm(VariableOp variable,
                                              const std::optional<FrozenForm> &asked) {
    if (std::optional<FrozenForm> form = FrozenForm::getOfState(variable)) {
      FrozenForm::removeOfState(variable);
      return form;
    }
    return asked && asked->suits(variable) ? asked : std::nullopt;
  }
};
} // namespace
