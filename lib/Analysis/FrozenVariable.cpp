//===- FrozenVariable.cpp - parameters in few bits --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/FrozenVariable.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::memopt;

static constexpr StringLiteral kFrozenAttr = "memopt.frozen";
static constexpr StringLiteral kFrozenScaleAttr = "memopt.frozen_scale";
static constexpr StringLiteral kStateCodeAttr = "memopt.state_code";
/// Below it scales and padding of blocks would cost more than codes save.
static constexpr int64_t kLeastElements = 4096;

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

FailureOr<std::optional<FrozenForm>>
FrozenForm::parse(StringRef code, StringRef scales,
                  llvm::function_ref<InFlightDiagnostic()> emitError) {
  if (scales != "f32" && scales != "int8")
    return emitError() << "expected f32 or int8 as the type of scales, found '" << scales << "'";
  std::optional<BlockCode> parsed = ::memopt::parseBlockCode(code.str());
  if (!parsed && code != "f32")
    return emitError() << "expected f32, bf16, int8 or nf4 as the form of frozen weights, found '"
                       << code << "'";
  if (scales == "int8" && parsed != BlockCode::NF4)
    return emitError() << "scales in int8 are those of nf4, found '" << code << "'";
  if (!parsed)
    return std::optional<FrozenForm>();
  return std::optional<FrozenForm>({*parsed, scales == "int8"});
}

bool FrozenForm::suits(VariableOp variable) const {
  RankedTensorType type = variable.getTensorType();
  if (variable.getRole() != Role::Parameter || variable.getTrainable() ||
      !type.getElementType().isF32())
    return false;
  return code == BlockCode::BF16 ||
         (type.getRank() >= 2 && type.getNumElements() >= kLeastElements);
}

int64_t FrozenForm::getBytes(int64_t elements) const {
  if (code == BlockCode::BF16)
    return 2 * elements;
  int64_t scales = ::memopt::getBlockCount(elements);
  int64_t scaleBytes =
      hasNarrowScales ? ::memopt::getScaleBytes(scales) + 4 * ::memopt::getScaleBlockCount(scales)
                      : 4 * scales;
  return ::memopt::getCodeBytes(code, elements) + scaleBytes;
}

std::optional<FrozenForm> FrozenForm::getOfState(VariableOp variable) {
  auto facts = variable->getAttrOfType<DictionaryAttr>(kStateCodeAttr);
  auto code = facts ? facts.getAs<StringAttr>("code") : StringAttr();
  std::optional<BlockCode> parsed;
  if (code)
    parsed = ::memopt::parseBlockCode(code.str());
  if (!parsed)
    return std::nullopt;
  return FrozenForm{*parsed, facts.contains("narrow_scales")};
}

void FrozenForm::attachOfState(VariableOp variable) const {
  Builder b(variable.getContext());
  SmallVector<NamedAttribute> facts{
      b.getNamedAttr("code", b.getStringAttr(::memopt::getName(code)))};
  if (hasNarrowScales)
    facts.push_back(b.getNamedAttr("narrow_scales", b.getUnitAttr()));
  variable->setDiscardableAttr(kStateCodeAttr, b.getDictionaryAttr(facts));
}

void FrozenForm::removeOfState(VariableOp variable) {
  variable->removeDiscardableAttr(kStateCodeAttr);
}

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

std::optional<FrozenVariable> FrozenVariable::get(VariableOp variable) {
  auto facts = variable->getAttrOfType<DictionaryAttr>(kFrozenAttr);
  auto code = facts ? facts.getAs<StringAttr>("code") : StringAttr();
  auto shape = facts ? facts.getAs<DenseI64ArrayAttr>("shape") : DenseI64ArrayAttr();
  std::optional<BlockCode> parsed;
  if (code)
    parsed = ::memopt::parseBlockCode(code.str());
  if (!parsed || !shape || llvm::any_of(shape.asArrayRef(), [](int64_t size) { return size < 0; }))
    return std::nullopt;
  auto type = RankedTensorType::get(shape.asArrayRef(), Float32Type::get(variable.getContext()));
  auto getName = [&](StringRef key) {
    auto name = facts.getAs<StringAttr>(key);
    return name ? name.str() : std::string();
  };
  auto initial = facts.getAs<ElementsAttr>("initial");
  if (initial && initial.getShapedType() != type)
    return std::nullopt;
  return FrozenVariable{*parsed, type, getName("scales"), getName("scale_scales"), initial};
}

void FrozenVariable::attachTo(VariableOp variable) const {
  Builder b(variable.getContext());
  SmallVector<NamedAttribute> facts{
      b.getNamedAttr("code", b.getStringAttr(::memopt::getName(code))),
      b.getNamedAttr("shape", b.getDenseI64ArrayAttr(wholeType.getShape()))};
  if (!scales.empty())
    facts.push_back(b.getNamedAttr("scales", b.getStringAttr(scales)));
  if (!scaleScales.empty())
    facts.push_back(b.getNamedAttr("scale_scales", b.getStringAttr(scaleScales)));
  if (initial)
    facts.push_back(b.getNamedAttr("initial", initial));
  variable->setDiscardableAttr(kFrozenAttr, b.getDictionaryAttr(facts));
}

RankedTensorType mlir::memopt::getKeptType(VariableOp variable) {
  std::optional<FrozenVariable> frozen = FrozenVariable::get(variable);
  return frozen ? frozen->wholeType : variable.getWholeType();
}

bool mlir::memopt::isFrozenScale(VariableOp variable) {
  return variable->hasAttr(kFrozenScaleAttr);
}

void mlir::memopt::markFrozenScale(VariableOp variable) {
  variable->setDiscardableAttr(kFrozenScaleAttr, UnitAttr::get(variable.getContext()));
}
