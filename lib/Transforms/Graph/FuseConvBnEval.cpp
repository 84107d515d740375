//===- FuseConvBnEval.cpp - convolution and evaluated batch norm as one -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A batch norm by running statistics scales each channel of a convolution's result by a number s
// and shifts it. Scaling the filter gives the same function, and can be trained through (You et
// al., Efficient ConvBN Blocks for Transfer Learning and Beyond, ICLR 2024, "tune mode"):
//
//   y = conv(x, W) [+ b] ; z = y s + t    ->    z = conv(x, W s) + (t + b s)
//
// The gradient of s takes y in the first form, which must be kept, and in the second W and the
// gradient of W s, which has the filter's size. All of it follows by autodiff, which comes later.
//
// The same with a transposed convolution, whose filter has its output channels in dimension 1, and
// anew in every group; and with a linear layer, whose filter is the second matrix.
//
// Refused, by norm: statistics of the batch; a producer that is none of these; another axis than
// the producer's channels; a second reader of the producer's result, which would then be computed
// twice; weights that depend on the batch, for they may be larger than what is saved.
//
// Results change by rounding only: the factor goes into the products instead of their sum.
//
//===----------------------------------------------------------------------===//

#include "BatchNormUses.h"
#include "memopt/Transforms/Utils/ModulePatterns.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

#include <variant>

namespace mlir::memopt {
#define GEN_PASS_DEF_FUSECONVBNEVALPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// What a norm follows
//===----------------------------------------------------------------------===//

namespace {
/// A convolution or matrix product: the dimension of its result along which it has channels, and
/// which operand has a part for each of them.
struct Producer {
  Operation *op = nullptr;
  int64_t axis = 0;
  static constexpr unsigned kFilter = 1;

  OpOperand &getFilter() const { return op->getOpOperand(kFilter); }
  RankedTensorType getFilterType() const {
    return cast<RankedTensorType>(getFilter().get().getType());
  }
};

/// A norm that can join its producer.
struct Fusion {
  RunningNorm norm;
  Producer producer;
  Value bias; ///< by channel, or null
  bool hasTrainedFactor;
};
} // namespace

static Producer getProducer(Operation *op) {
  return llvm::TypeSwitch<Operation *, Producer>(op)
      .Case<ConvolutionOp, ConvolutionBackwardDataOp>([](auto convolution) -> Producer {
        auto type = cast<RankedTensorType>(convolution.getType());
        bool last = convolution.getLayout() == Layout::ChannelsLast;
        return {convolution, last ? type.getRank() - 1 : 1};
      })
      .Case([](MatmulOp product) -> Producer {
        return {product, cast<RankedTensorType>(product.getType()).getRank() - 1};
      })
      .Default([](Operation *) { return Producer(); });
}

/// Where an op stands, for people: "'tensor.concat' in 'features.denseblock1'".
static std::string describe(Operation *op) {
  StringRef path = getModulePath(op->getLoc());
  std::string text = ("'" + op->getName().getStringRef() + "'").str();
  return path.empty() ? text : text + (" in '" + path + "'").str();
}

namespace {
/// What a norm normalizes: the result of an op, a bias added, in another shape perhaps.
struct NormInput {
  Value made;        ///< by the op, before the bias
  Operation *reader; ///< of `made`, on the way to the norm
  Value bias;        ///< by channel, or null
  bool isReshaped;
};
} // namespace

static NormInput traceInput(const RunningNorm &norm) {
  Value root = getBufferRoot(norm.input);
  NormInput input{root, norm.scaled, {}, root != norm.input};
  auto sum = root.getDefiningOp<arith::AddFOp>();
  for (unsigned number = 0; sum && number < 2; ++number)
    if (std::optional<ChannelValue> bias = getChannelValue(sum->getOperand(number)))
      return {sum->getOperand(1 - number), sum, bias->numbers,
              input.isReshaped || bias->axis != norm.factor.axis};
  return input;
}

//===----------------------------------------------------------------------===//
// Deciding
//===----------------------------------------------------------------------===//

namespace {
/// What a value follows from, besides constants and fixed state.
struct Origins {
  bool hasBatch = false, hasTrained = false;
};
} // namespace

static Origins collectOrigins(Value value, const SymbolTable &symbols) {
  Origins origins;
  llvm::SetVector<Value> open;
  open.insert(value);
  for (size_t next = 0; next < open.size(); ++next) {
    Operation *op = open[next].getDefiningOp();
    if (!op) {
      origins.hasBatch = true;
      continue;
    }
    if (auto read = dyn_cast<ReadOp>(op)) {
      auto variable = symbols.lookup<VariableOp>(read.getVariable());
      origins.hasTrained |= variable && variable.getTrainable();
    }
    open.insert_range(op->getOperands());
  }
  return origins;
}

/// An op that reads `value` besides `known`, or null.
static Operation *findOtherReader(Value value, Operation *known) {
  auto other = llvm::find_if(value.getUsers(), [&](Operation *user) { return user != known; });
  return other == value.user_end() ? nullptr : *other;
}

/// The fusion, or in words why there is none.
static std::variant<Fusion, std::string> decide(const RunningNorm &norm,
                                                const SymbolTable &symbols) {
  Origins factor = collectOrigins(norm.factor.numbers, symbols);
  if (factor.hasBatch || collectOrigins(norm.shift.numbers, symbols).hasBatch)
    return "it normalizes by numbers that depend on the batch";
  NormInput input = traceInput(norm);
  Operation *maker = input.made.getDefiningOp();
  Producer producer = maker ? getProducer(maker) : Producer();
  if (!producer.op)
    return "it follows no convolution or linear layer, but " +
           (maker ? describe(maker) : "an input of the step");
  if (input.isReshaped || producer.axis != norm.factor.axis)
    return "it does not normalize the channels of " + describe(maker);
  Operation *reader = findOtherReader(norm.input, norm.scaled);
  if (!reader)
    reader = findOtherReader(input.made, input.reader);
  if (reader)
    return "what it normalizes is also read by " + describe(reader);
  if (collectOrigins(producer.getFilter().get(), symbols).hasBatch)
    return "the weights of " + describe(maker) + " depend on the batch";
  return Fusion{norm, producer, input.bias, factor.hasTrained};
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

/// A value by channel as a vector.
static Value toVector(OpBuilder &builder, Location loc, Value numbers) {
  auto type = cast<RankedTensorType>(numbers.getType());
  if (type.getRank() == 1)
    return numbers;
  ReassociationIndices all = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  return tensor::CollapseShapeOp::create(builder, loc, type.clone({type.getNumElements()}), numbers,
                                         ArrayRef<ReassociationIndices>(all));
}

/// `value` times `factor`, which has the dimensions `dimensions` of it.
static Value scaleAlong(OpBuilder &builder, Location loc, Value value, Value factor,
                        ArrayRef<int64_t> dimensions) {
  Value repeated = BroadcastOp::create(builder, loc, value.getType(), factor, dimensions);
  return arith::MulFOp::create(builder, loc, value, repeated);
}

/// A transposed convolution's filter is [inputs, outputs / groups, window...], and its inputs come
/// in groups too: seen as [groups, inputs / groups, outputs / groups, window...], each output
/// channel is one pair of the dimensions 0 and 2.
static Value scaleTransposed(OpBuilder &builder, Location loc, Value filter, Value factor,
                             int64_t groups) {
  if (groups == 1)
    return scaleAlong(builder, loc, filter, factor, 1);
  auto type = cast<RankedTensorType>(filter.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[0] /= groups;
  shape.insert(shape.begin(), groups);
  SmallVector<ReassociationIndices> split{{0, 1}};
  for (int64_t dimension = 2; dimension <= type.getRank(); ++dimension)
    split.push_back({dimension});
  auto grouped = tensor::ExpandShapeOp::create(builder, loc, type.clone(shape), filter, split);
  SmallVector<ReassociationIndices> pairs{{0, 1}};
  auto byGroup =
      tensor::ExpandShapeOp::create(builder, loc, type.clone({groups, shape[2]}), factor, pairs);
  Value scaled = scaleAlong(builder, loc, grouped, byGroup, {0, 2});
  return tensor::CollapseShapeOp::create(builder, loc, type, scaled, split);
}

static Value scaleFilter(OpBuilder &builder, Location loc, const Producer &producer, Value factor) {
  Value filter = producer.getFilter().get();
  return llvm::TypeSwitch<Operation *, Value>(producer.op)
      .Case([&](ConvolutionOp) { return scaleAlong(builder, loc, filter, factor, 0); })
      .Case([&](ConvolutionBackwardDataOp op) {
        return scaleTransposed(builder, loc, filter, factor, op.getGroupsAttr().getInt());
      })
      .Case([&](MatmulOp op) {
        int64_t last = producer.getFilterType().getRank() - 1;
        return scaleAlong(builder, loc, filter, factor, op.getTransposeB() ? last - 1 : last);
      });
}

static void eraseUnused(Operation *root) {
  llvm::SetVector<Operation *> open;
  open.insert(root);
  while (!open.empty()) {
    Operation *op = open.pop_back_val();
    if (!isOpTriviallyDead(op))
      continue;
    for (Value operand : op->getOperands())
      if (Operation *maker = operand.getDefiningOp())
        open.insert(maker);
    op->erase();
  }
}

/// Puts the fused form in front of the norm's last op and takes the old one away.
static void rewrite(const Fusion &fusion) {
  RunningNorm norm = fusion.norm;
  Location loc = norm.result.getLoc();
  OpBuilder builder(norm.result);
  Value factor = toVector(builder, loc, norm.factor.numbers);
  Value shift = toVector(builder, loc, norm.shift.numbers);
  if (fusion.bias) {
    Value bias = toVector(builder, fusion.producer.op->getLoc(), fusion.bias);
    shift = arith::AddFOp::create(builder, loc, shift,
                                  arith::MulFOp::create(builder, loc, bias, factor));
  }
  Value filter = scaleFilter(builder, loc, fusion.producer, factor);
  Operation *fused = builder.clone(*fusion.producer.op);
  fused->setOperand(Producer::kFilter, filter);
  Type type = norm.result.getType();
  Value repeated = BroadcastOp::create(builder, loc, type, shift, norm.factor.axis);
  Value sum = arith::AddFOp::create(builder, loc, fused->getResult(0), repeated);
  norm.result.getResult().replaceAllUsesWith(sum);
  eraseUnused(norm.result);
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
/// What became of the norms that were asked for, by the modules that they belong to.
class FusionReport {
public:
  void addFused(StringRef module, Operation *norm, const Fusion &fusion);
  void addRefused(StringRef module, Operation *norm, const std::string &reason);
  DictionaryAttr toAttribute(MLIRContext *context) const;

private:
  static remark::RemarkOpts options(Operation *op) {
    return remark::RemarkOpts::name("FuseConvBnEval")
        .category("memopt-fuse-conv-bn-eval")
        .function(op->getParentOfType<func::FuncOp>().getName());
  }

  /// A module may be called several times; it is fused when all of its calls are. Empty: fused.
  llvm::MapVector<StringRef, std::string> reasons;
  int64_t resultBytes = 0, filterBytes = 0;
};
} // namespace

void FusionReport::addFused(StringRef module, Operation *norm, const Fusion &fusion) {
  reasons.insert({module, ""});
  // Without a gradient of the factor nobody keeps the convolution's result in either form.
  int64_t result =
      fusion.hasTrainedFactor ? getTensorBytes(fusion.producer.op->getResult(0).getType()) : 0;
  int64_t filter = getTensorBytes(fusion.producer.getFilterType());
  resultBytes += result;
  filterBytes += filter;
  remark::passed(norm->getLoc(), options(norm))
      << remark::add("fused '{0}' into {1}", module, describe(fusion.producer.op))
      << remark::metric("ResultBytes", result) << remark::metric("FilterBytes", filter);
}

void FusionReport::addRefused(StringRef module, Operation *norm, const std::string &reason) {
  std::string &entry = reasons[module];
  if (entry.empty())
    entry = reason;
  remark::missed(norm->getLoc(), options(norm))
      << remark::add("left '{0}' alone", module) << remark::reason("{0}", reason);
}

DictionaryAttr FusionReport::toAttribute(MLIRContext *context) const {
  Builder b(context);
  SmallVector<Attribute> fused;
  SmallVector<NamedAttribute> refused;
  for (const auto &[module, reason] : reasons) {
    if (reason.empty())
      fused.push_back(b.getStringAttr(module));
    else
      refused.push_back(b.getNamedAttr(module, b.getStringAttr(reason)));
  }
  return b.getDictionaryAttr({b.getNamedAttr("fused", b.getArrayAttr(fused)),
                              b.getNamedAttr("refused", b.getDictionaryAttr(refused)),
                              b.getNamedAttr("result_bytes", b.getI64IntegerAttr(resultBytes)),
                              b.getNamedAttr("filter_bytes", b.getI64IntegerAttr(filterBytes))});
}

/// Why a norm by the statistics of the batch has them.
static std::string explainBatchStatistics(BatchNormOp norm) {
  return norm.getMean().use_empty()
             ? "it has no running statistics and normalizes by those of the batch"
             : "it is in training mode and normalizes by the statistics of the batch";
}

namespace {
struct FuseConvBnEvalPass : mlir::memopt::impl::FuseConvBnEvalPassBase<FuseConvBnEvalPass> {
  using FuseConvBnEvalPassBase::FuseConvBnEvalPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    bool all = llvm::is_contained(modules, "all");
    SmallVector<std::string> names = llvm::to_vector_of<std::string>(modules);
    if (all)
      names = {"*"};
    FailureOr<ModulePatterns> patterns = ModulePatterns::parse(names, module);
    FailureOr<StepModel> step = StepModel::create(module);
    if (failed(patterns) || failed(step))
      return signalPassFailure();
    FusionReport report;
    std::vector<Fusion> fusions = collect(*step, *patterns, report);
    if (std::optional<StringRef> unmet = patterns->getUnmet(); unmet && !all) {
      module.emitError() << "no batch norm lies in a module that matches '" << *unmet << "'"
                         << patterns->describeModules(*unmet);
      return signalPassFailure();
    }
    llvm::for_each(fusions, rewrite);
    module->setAttr(MemoptDialect::kEfficientConvBnEvalAttr, report.toAttribute(&getContext()));
  }

  /// Decides about all norms before any of them is rewritten.
  static std::vector<Fusion> collect(const StepModel &step, ModulePatterns &patterns,
                                     FusionReport &report) {
    std::vector<Fusion> fusions;
    SymbolTable symbols(step.getModule());
    for (Operation &op : step.getBody()) {
      auto byBatch = dyn_cast<BatchNormOp>(op);
      std::optional<RunningNorm> norm = matchRunningNorm(&op);
      StringRef path = getModulePath(op.getLoc());
      if ((!byBatch && !norm) || !patterns.match(path))
        continue;
      path = path.empty() ? "(unnamed)" : path;
      auto choice = norm ? decide(*norm, symbols) : explainBatchStatistics(byBatch);
      if (auto *reason = std::get_if<std::string>(&choice)) {
        report.addRefused(path, &op, *reason);
        continue;
      }
      fusions.push_back(std::get<Fusion>(choice));
      report.addFused(path, &op, fusions.back());
    }
    return fusions;
  }
};
} // namespace
