//===- OpTable.cpp - the operators that the importer knows -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpTable.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace memopt::pt2;

const OpTable &OpTable::get() {
  static const OpTable table = [] {
    OpTable result;
    registerActivations(result);
    registerAttention(result);
    registerBesselFunctions(result);
    registerClamps(result);
    registerClassLosses(result);
    registerComparisons(result);
    registerCounting(result);
    registerComplexMatrices(result);
    registerConvolutions(result);
    registerDerivedAlgebra(result);
    registerDivisions(result);
    registerEinsum(result);
    registerDropout(result);
    registerElimination(result);
    registerEmbeddingBag(result);
    registerExperts(result);
    registerExponents(result);
    registerExtremes(result);
    registerFactors(result);
    registerGridSample(result);
    registerLosses(result);
    registerMatmuls(result);
    registerNormalizations(result);
    registerNorms(result);
    registerOrthogonalPolynomials(result);
    registerPointwise(result);
    registerPooling(result);
    registerRandom(result);
    registerRecurrent(result);
    registerReductions(result);
    registerReflections(result);
    registerResizing(result);
    registerRotations(result);
    registerScans(result);
    registerScatters(result);
    registerSeries(result);
    registerSorting(result);
    registerSpecialFunctions(result);
    registerTransforms(result);
    registerTriangularSolves(result);
    // These move elements or make them: any type will do.
    result.setKeepsHalves(true);
    registerCasts(result);
    registerCreation(result);
    registerGradients(result);
    registerIndexing(result);
    registerLists(result);
    registerPadding(result);
    registerRearrangements(result);
    registerSlices(result);
    registerStrides(result);
    registerWindows(result);
    registerViews(result);
    return result;
  }();
  return table;
}

void OpTable::add(StringLiteral name, StringLiteral parameters, Lowering lower) {
  bool inserted = rows.try_emplace(name, OpRow{parameters, lower, keepsHalves}).second;
  (void)inserted;
  assert(inserted && "an operator has one row");
}

const OpRow *OpTable::lookup(StringRef target, bool &inPlace) const {
  inPlace = false;
  auto it = rows.find(target);
  if (it != rows.end())
    return &it->second;
  // "aten.add_.Tensor" is "aten.add.Tensor" that writes over its first argument.
  auto [base, overload] = target.rsplit('.');
  if (!base.consume_back("_") || base.ends_with("_"))
    return nullptr;
  it = rows.find((base + "." + overload).str());
  inPlace = it != rows.end();
  return inPlace ? &it->second : nullptr;
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// The text after "=": None, True, False, a number, [a, b] or 'text'.
static Argument parseDefault(StringRef text, Parameter::Type type) {
  Argument value;
  auto toInt = [](StringRef number) {
    int64_t result = 0;
    [[maybe_unused]] bool failed = number.trim().getAsInteger(10, result);
    assert(!failed && "default is not an integer");
    return result;
  };
  if (text == "None")
    return value;
  if (text == "True" || text == "False") {
    value.kind = Argument::Kind::Bool;
    value.ints.push_back(text == "True");
  } else if (text.consume_front("[")) {
    value.kind = Argument::Kind::Ints;
    SmallVector<StringRef> parts;
    text.drop_back().split(parts, ' ', -1, /*KeepEmpty=*/false);
    for (StringRef part : parts)
      value.ints.push_back(toInt(part));
  } else if (text.consume_front("'")) {
    value.kind = Argument::Kind::String;
    value.text = text.drop_back().str();
  } else if (type == Parameter::Type::Ints) {
    value.kind = Argument::Kind::Ints;
    value.ints.push_back(toInt(text));
  } else if (text.find_first_of(".e") != StringRef::npos || type == Parameter::Type::Float) {
    value.kind = Argument::Kind::Float;
    value.floats.push_back(0);
    [[maybe_unused]] bool failed = text.getAsDouble(value.floats.back());
    assert(!failed && "default is not a number");
  } else {
    value.kind = Argument::Kind::Int;
    value.ints.push_back(toInt(text));
  }
  return value;
}

static Parameter parseParameter(StringRef text) {
  using Type = Parameter::Type;
  Parameter result;
  auto [type, rest] = text.split(' ');
  auto [name, value] = rest.split('=');
  result.name = name.str();
  if (type.consume_back("?"))
    result.optional = true;
  result.type = StringSwitch<Type>(type)
                    .Case("Tensor", Type::Tensor)
                    .Case("Tensor[]", Type::Tensors)
                    .Case("Tensor?[]", Type::OptionalTensors)
                    .Case("int", Type::Int)
                    .Case("int[]", Type::Ints)
                    .Case("float", Type::Float)
                    .Case("float[]", Type::Floats)
                    .Case("Scalar", Type::Scalar)
                    .Case("bool", Type::Bool)
                    .Case("str", Type::String)
                    .Case("dtype", Type::DType)
                    .Case("Tensor|Scalar", Type::TensorOrScalar)
                    .Case("ignored", Type::Ignored)
                    .Default(Type::Ignored);
  assert((result.type != Type::Ignored || type == "ignored") && "unknown parameter type");
  if (!value.empty())
    result.defaultValue = parseDefault(value, result.type);
  else if (result.type == Type::Ignored)
    result.defaultValue = Argument();
  return result;
}

std::vector<Parameter> memopt::pt2::parseParameters(StringRef text) {
  std::vector<Parameter> result;
  SmallVector<StringRef> parts;
  text.split(parts, ',', -1, /*KeepEmpty=*/false);
  for (StringRef part : parts)
    result.push_back(parseParameter(part.trim()));
  return result;
}
