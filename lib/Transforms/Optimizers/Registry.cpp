//===- Registry.cpp - the list of optimizers ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DynamicCodes.h"
#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

static std::vector<const Optimizer *> &getRegistry() {
  static std::vector<const Optimizer *> all = {
      &getSgd(),    &getAdam(),  &getAdamW(),    &getRmsprop(), &getAdagrad(),    &getAdadelta(),
      &getAdamax(), &getNadam(), &getRadam(),    &getAsgd(),    &getAdafactor(),  &getMuon(),
      &getLion(),   &getSm3(),   &getAdamMini(), &getApollo(),  &getApolloMini(), &getRprop()};
  return all;
}

ArrayRef<const Optimizer *> mlir::memopt::getOptimizers() { return getRegistry(); }

void mlir::memopt::registerOptimizer(const Optimizer &optimizer) {
  assert(!findOptimizer(optimizer.getName()) && "two optimizers of one name");
  getRegistry().push_back(&optimizer);
}

const Optimizer *mlir::memopt::findOptimizer(StringRef name) {
  ArrayRef<const Optimizer *> all = getOptimizers();
  const auto *found =
      llvm::find_if(all, [&](const Optimizer *entry) { return entry->getName() == name; });
  if (found == all.end())
    return name == kAverageName ? &getAverage() : nullptr;
  return *found;
}

//===----------------------------------------------------------------------===//
// What many of them have
//===----------------------------------------------------------------------===//

OptimizerOption mlir::memopt::options::learningRate(double initial) {
  return {"lr",
          "X",
          "learning rate to start from; a run may change it",
          OptimizerOption::Number,
          {initial}};
}

OptimizerOption mlir::memopt::options::weightDecay(double initial) {
  return {"weight-decay", "X", "pull towards zero", OptimizerOption::Number, {initial}};
}

OptimizerOption mlir::memopt::options::betas(double first, double second) {
  return {"betas", "X,Y", "decay of the moments", OptimizerOption::Pair, {first, second}, 0,
          1,       true};
}

OptimizerOption mlir::memopt::options::eps(double initial) {
  return {"eps", "X", "added to denominators", OptimizerOption::Number, {initial}};
}

OptimizerOption mlir::memopt::options::momentum(double initial) {
  return {"momentum", "X", "momentum", OptimizerOption::Number, {initial}};
}

OptimizerOption mlir::memopt::options::decoupledWeightDecay() {
  return {"decoupled-weight-decay",
          "[on|off]",
          "decay parameters instead of adding to gradients",
          OptimizerOption::Flag,
          {0.0}};
}

StateSlot mlir::memopt::fullSlot(StringRef name, const ParameterInfo &parameter, double initial) {
  return {name.str(), llvm::to_vector(llvm::seq<int64_t>(0, parameter.type.getRank())), initial};
}

StateSlot mlir::memopt::scalarSlot(StringRef name, double initial) {
  return {name.str(), {}, initial, /*isScalar=*/true};
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

static SmallVector<int64_t> getShape(const StateSlot &slot, RankedTensorType parameter) {
  if (slot.shape)
    return *slot.shape;
  SmallVector<int64_t> shape;
  if (slot.isScalar)
    return shape;
  for (auto [dim, size] : llvm::enumerate(parameter.getShape()))
    shape.push_back(llvm::is_contained(slot.dims, static_cast<int64_t>(dim)) ? size : 1);
  return shape;
}

SmallVector<StateTensor> mlir::memopt::getStateTensors(const Optimizer &optimizer,
                                                       const ParameterInfo &parameter,
                                                       const OptimizerSettings &settings,
                                                       unsigned bits) {
  Builder b(parameter.type.getContext());
  Type wide = parameter.type.getElementType().isF64() ? Type(b.getF64Type()) : b.getF32Type();
  SmallVector<StateTensor> tensors;
  for (const StateSlot &slot : optimizer.getState(parameter, settings)) {
    SmallVector<int64_t> shape = getShape(slot, parameter.type);
    bool isNarrow = !slot.isScalar && !slot.shape && ArrayRef(shape) == parameter.type.getShape();
    auto add = [&](StringRef name, ArrayRef<int64_t> sizes, Type element, double initial) {
      tensors.push_back({name.str(), RankedTensorType::get(sizes, element), initial});
    };
    if (isNarrow && bits <= 8) {
      int8_t one = getByteOfOne({bits, !optimizer.isNonNegative(slot.name)});
      int64_t blocks = llvm::divideCeil(parameter.type.getNumElements(), Update::getBlock(bits));
      if (bits == 4)
        shape.assign(1, blocks * Update::getBlockBytes(bits));
      add(slot.name, shape, b.getI8Type(), slot.initial == 0 ? 0 : one);
      add(slot.name + ".scale", {blocks}, wide, slot.initial);
    } else {
      Type narrow = isNarrow && bits == 16 ? Type(b.getBF16Type()) : wide;
      add(slot.name, shape, slot.isScalar ? Type(b.getF64Type()) : narrow, slot.initial);
    }
  }
  return tensors;
}
