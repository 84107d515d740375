//===- NarrowActivations.cpp - few bits between the passes ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whatever is computed stays f32; what an activation waits in for the backward pass is bf16, or
// codes of 8 bits: it is rounded behind its producer and widened in front of its readers, once for
// all that stand close to each other. Forms of activations compressed between the passes: Gist
// (Jain et al., ISCA 2018), ActNN (Chen et al., ICML 2021), COAT (Xi et al., ICLR 2025).
//
// Input:  a step of linalg.generic, views and library ops, behind recompute-elementwise, so that
//         all of forward that backward still reads is kept for it.
// Chosen: results of products, convolutions and attention, pointwise ones, and what loops leave of
//         each turn, that follow from the step's inputs. What statistics and sums give stays f32
//         (means, deviations, the logarithms that attention and losses keep): few bytes, on which
//         every element depends.
//         All of these, or those whose numbers a plan has chosen (BudgetSearch), which sees the
//         numbers on the ops.
// Codes:  random words follow from the run's seed and the step's number, where the program has
// these. Bits:   of forward values and of the loss of a step never change.
//
//===----------------------------------------------------------------------===//

#include "BackwardReaders.h"
#include "memopt/Transforms/Kernels/ActivationCodes.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_NARROWACTIVATIONSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// Bytes below which two more kernels cost more than they free.
static constexpr int64_t kLeastNarrowedBytes = 4096;

/// The results that are activations: made element by element, as products, or turn by turn.
static ResultRange getActivations(Operation *op) {
  if (auto scan = dyn_cast<ScanOp>(op))
    return scan.getStacked();
  auto generic = dyn_cast<linalg::GenericOp>(op);
  bool isMadeSo =
      generic ? generic.getNumReductionLoops() == 0 : op->hasTrait<OpTrait::ComputedByLibrary>();
  return op->getResults().take_front(isMadeSo && op->getNumResults() ? 1 : 0);
}

/// Whether the form has fewer bits.
static bool isLargeAndWide(Value value, ActivationForm form) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() > 0 && getTensorBytes(type) >= kLeastNarrowedBytes &&
         isWide(type.getElementType(), form);
}

namespace {
/// Narrows what one block of the program keeps, or numbers it.
class Narrower {
public:
  Narrower(Block &block, ActivationForm form, int64_t firstNumber)
      : block(block), form(form), firstNumber(firstNumber), readers(block) {
    findReached();
    for (Operation &op : block)
      if (!isAfterForward(&op) && reached.contains(&op))
        for (OpResult result : getActivations(&op))
          if (SmallVector<BackwardReaders::Group> groups = getGroups(result); !groups.empty())
            candidates.push_back({result, std::move(groups)});
  }

  /// The activations of a program have numbers from 0; this block's go up to this one.
  int64_t getEndOfNumbers() const { return firstNumber + static_cast<int64_t>(candidates.size()); }

  /// Narrows the activations whose numbers are `chosen`, all of them where none is.
  void narrow(ArrayRef<int64_t> chosen) {
    for (auto [number, candidate] : llvm::enumerate(candidates))
      if (int64_t all = firstNumber + static_cast<int64_t>(number);
          chosen.empty() || llvm::is_contained(chosen, all))
        narrow(candidate, all);
  }

  /// Notes the numbers on the ops.
  void mark() {
    Builder b(block.getParentOp()->getContext());
    llvm::MapVector<Operation *, SmallVector<int64_t>> numbers; // by result; -1 for none
    for (auto [number, candidate] : llvm::enumerate(candidates)) {
      auto all = numbers.try_emplace(candidate.wide.getOwner(),
                                     candidate.wide.getOwner()->getNumResults(), -1);
      all.first->second[candidate.wide.getResultNumber()] =
          firstNumber + static_cast<int64_t>(number);
    }
    for (auto &[op, ofResults] : numbers)
      op->setDiscardableAttr(MemoptDialect::kActivationsAttr, b.getDenseI64ArrayAttr(ofResults));
  }

  int64_t getValues() const { return values; }
  int64_t getBytesBefore() const { return bytesBefore; }
  int64_t getBytesAfter() const { return bytesAfter; }

private:
  struct Candidate {
    OpResult wide;
    SmallVector<BackwardReaders::Group> groups; ///< not empty
  };

  void findReached();
  SmallVector<BackwardReaders::Group> getGroups(OpResult wide);
  void narrow(const Candidate &candidate, int64_t number);
  void readWords();
  Value readWord(ImplicitLocOpBuilder &b, StringRef name);

  Block &block;
  ActivationForm form;
  int64_t firstNumber;
  RoundingWords words = {}; ///< seed and step once they are read
  BackwardReaders readers;
  DenseSet<Operation *> reached; ///< ops that follow from inputs of the block
  SmallVector<Candidate> candidates;
  int64_t values = 0, bytesBefore = 0, bytesAfter = 0;
};
} // namespace

void Narrower::findReached() {
  auto isReached = [&](Value value) {
    Operation *maker = value.getDefiningOp();
    return maker ? reached.contains(maker) : isa<RankedTensorType>(value.getType());
  };
  for (Operation &op : block)
    if (llvm::any_of(getTensorsRead(&op), isReached))
      reached.insert(&op);
}

/// The readers of `wide` in the backward pass; none where something keeps it as it is.
SmallVector<BackwardReaders::Group> Narrower::getGroups(OpResult wide) {
  bool isReturned = llvm::any_of(wide.getUsers(), [](Operation *user) {
    return user->hasTrait<OpTrait::IsTerminator>() || isa<WriteOp>(user);
  });
  if (!isLargeAndWide(wide, form) || isReturned)
    return {};
  SmallVector<BackwardReaders::Group> groups = readers.getGroups(wide.getOwner());
  for (BackwardReaders::Group &group : groups)
    llvm::erase_if(group, [&](OpOperand *use) { return use->get() != wide; });
  llvm::erase_if(groups, [](const BackwardReaders::Group &group) { return group.empty(); });
  return groups;
}

/// The reshape behind `wide` where all of its uses are reshapes to one type with the same lines: in
/// that shape readers compute, and share kernels with what rounds and widens. Null for none.
static Operation *findCommonReshape(Value wide) {
  Operation *reshape = nullptr;
  for (Operation *user : wide.getUsers()) {
    if (!isReshape(user) || user->getBlock() != wide.getParentBlock())
      return nullptr;
    Type type = user->getResult(0).getType();
    if (tensorType(user->getResult(0)).getRank() == 0 ||
        tensorType(user->getResult(0)).getShape().back() != tensorType(wide).getShape().back() ||
        (reshape && reshape->getResult(0).getType() != type))
      return nullptr;
    if (!reshape || user->isBeforeInBlock(reshape))
      reshape = user;
  }
  return reshape && !isAfterForward(reshape) ? reshape : nullptr;
}

void Narrower::narrow(const Candidate &candidate, int64_t number) {
  Value wide = candidate.wide;
  ImplicitLocOpBuilder b(wide.getLoc(), wide.getContext());
  Operation *reshape = findCommonReshape(wide);
  if (reshape) {
    reshape->moveAfter(wide.getDefiningOp());
    wide = reshape->getResult(0);
  }
  b.setInsertionPointAfterValue(wide);
  readWords();
  words.id = kFirstActivationId + number;
  KeptActivation kept = narrowActivation(b, wide, form, words);
  for (Value part : {kept.codes, kept.scales})
    if (part)
      part.getDefiningOp()->setAttr(MemoptDialect::kNarrowedAttr, b.getUnitAttr());
  Type type = getElementTypeOrSelf(wide);
  for (const BackwardReaders::Group &group : candidate.groups) {
    b.setInsertionPoint(readers.getReader(*group.front()));
    Value again = widenActivation(b, kept, form, type);
    setPhase(again.getDefiningOp(), Phase::Backward);
    for (OpOperand *use : group) {
      if (reshape)
        use->getOwner()->getResult(0).replaceAllUsesWith(again);
      else
        use->set(again);
    }
  }
  ++values;
  bytesBefore += getTensorBytes(candidate.wide.getType());
  bytesAfter += kept.getBytes();
}

/// In front of the block, before the first activation that is rounded at random.
void Narrower::readWords() {
  if (words.seed || form == ActivationForm::BF16)
    return;
  ImplicitLocOpBuilder b(block.getParentOp()->getLoc(), block.getParentOp()->getContext());
  b.setInsertionPointToStart(&block);
  words.seed = readWord(b, "seed");
  words.step = readWord(b, "step");
}

/// What the runtime writes before each step; 0 in programs without it.
Value Narrower::readWord(ImplicitLocOpBuilder &b, StringRef name) {
  auto type = RankedTensorType::get({}, b.getI64Type());
  auto module = block.getParentOp()->getParentOfType<ModuleOp>();
  auto variable = module ? module.lookupSymbol<VariableOp>(name) : VariableOp();
  if (variable && variable.getRole() == Role::Hyperparameter && variable.getPlacedType() == type)
    return ReadOp::create(b, type, FlatSymbolRefAttr::get(variable));
  return arith::ConstantOp::create(b, DenseElementsAttr::get(type, int64_t(0)));
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct NarrowActivationsPass
    : mlir::memopt::impl::NarrowActivationsPassBase<NarrowActivationsPass> {
  using NarrowActivationsPassBase::NarrowActivationsPassBase;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    FailureOr<std::optional<ActivationForm>> asked = readActivationForm(func, type);
    FailureOr<std::optional<ActivationForm>> offered = readActivationForm(func, choice);
    if (failed(asked) || failed(offered) || failed(verifyTensorGraph(func)))
      return signalPassFailure();
    std::optional<ActivationForm> form = *asked, possible = form ? form : *offered;
    if (!possible || func.isExternal())
      return markAllAnalysesPreserved();
    int64_t numbers = 0, values = 0, before = 0, after = 0;
    for (Block *block : getProgramBlocks(func.getBody().front())) {
      Narrower narrower(*block, *possible, numbers);
      if (*offered)
        narrower.mark();
      if (form)
        narrower.narrow(llvm::to_vector(llvm::map_range(only, [](int64_t each) { return each; })));
      numbers = narrower.getEndOfNumbers();
      values += narrower.getValues();
      before += narrower.getBytesBefore();
      after += narrower.getBytesAfter();
    }
    for (int64_t number : only)
      if (number < 0 || number >= numbers) {
        func.emitError() << "expected numbers of the " << numbers
                         << " activations that may be narrowed, found " << number;
        return signalPassFailure();
      }
    if (form)
      emitRemark(func.getLoc()) << "keeps " << values << " activations in " << type << ": " << after
                                << " bytes instead of " << before;
  }
};
} // namespace
