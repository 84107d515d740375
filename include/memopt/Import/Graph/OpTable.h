//===- OpTable.h - the operators that the importer knows -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One row per operator overload: its parameters with their defaults, in the notation of PyTorch's
// own schemas, and the function that lowers it. torch.export leaves out arguments that have their
// default value, so the defaults are part of the meaning. Arguments are checked against the row
// before the lowering runs: a wrong kind, a missing one or an unknown one never reaches it.
//
// Rows come by family, one source file each; a new operator is a row and a function.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_GRAPH_OPTABLE_H
#define MEMOPT_IMPORT_GRAPH_OPTABLE_H

#include "memopt/Import/Archive/Schema.h"

#include "llvm/ADT/StringMap.h"

namespace memopt::pt2 {

class OpContext;
using Lowering = llvm::Error (*)(OpContext &);

/// One parameter: "Tensor self", "int? end=None", "int[2] stride=1", "Tensor|Scalar other".
struct Parameter {
  enum class Type {
    Tensor,
    Tensors,
    OptionalTensors,
    Int,
    Ints,
    Float,
    Floats,
    Scalar,
    Bool,
    String,
    DType,
    TensorOrScalar,
    Ignored
  };
  std::string name;
  Type type = Type::Tensor;
  bool optional = false; ///< may be None
  std::optional<Argument> defaultValue;
};

struct OpRow {
  llvm::StringLiteral parameters;
  Lowering lower;
  /// Takes tensors of half precision as they are. Others see f32 in their place, in which PyTorch
  /// computes too, and their results are rounded back.
  bool keepsHalves;
};

class OpTable {
public:
  /// All families.
  static const OpTable &get();

  void add(llvm::StringLiteral name, llvm::StringLiteral parameters, Lowering lower);
  /// What rows added from now on do with halves.
  void setKeepsHalves(bool keeps) { keepsHalves = keeps; }
  /// Null when unknown. In-place spellings ("aten.relu_.default") give the row of the functional
  /// one and set `inPlace`.
  const OpRow *lookup(llvm::StringRef target, bool &inPlace) const;
  auto begin() const { return rows.begin(); }
  auto end() const { return rows.end(); }

private:
  llvm::StringMap<OpRow> rows;
  bool keepsHalves = false;
};

/// Parses a row's parameters; asserts on notation that is not understood.
std::vector<Parameter> parseParameters(llvm::StringRef text);

void registerActivations(OpTable &table);
void registerAttention(OpTable &table);
void registerBesselFunctions(OpTable &table);
void registerCasts(OpTable &table);
void registerClamps(OpTable &table);
void registerClassLosses(OpTable &table);
void registerComparisons(OpTable &table);
void registerComplexMatrices(OpTable &table);
void registerConvolutions(OpTable &table);
void registerCounting(OpTable &table);
void registerCreation(OpTable &table);
void registerDerivedAlgebra(OpTable &table);
void registerDivisions(OpTable &table);
void registerEinsum(OpTable &table);
void registerDropout(OpTable &table);
void registerElimination(OpTable &table);
void registerEmbeddingBag(OpTable &table);
void registerFactors(OpTable &table);
void registerGradients(OpTable &table);
void registerGridSample(OpTable &table);
void registerExperts(OpTable &table);
void registerExponents(OpTable &table);
void registerExtremes(OpTable &table);
void registerIndexing(OpTable &table);
void registerLists(OpTable &table);
void registerLosses(OpTable &table);
void registerMatmuls(OpTable &table);
void registerNormalizations(OpTable &table);
void registerOrthogonalPolynomials(OpTable &table);
void registerPadding(OpTable &table);
void registerNorms(OpTable &table);
void registerPointwise(OpTable &table);
void registerPooling(OpTable &table);
void registerRandom(OpTable &table);
void registerRearrangements(OpTable &table);
void registerRecurrent(OpTable &table);
void registerReductions(OpTable &table);
void registerReflections(OpTable &table);
void registerResizing(OpTable &table);
void registerRotations(OpTable &table);
void registerScans(OpTable &table);
void registerScatters(OpTable &table);
void registerSeries(OpTable &table);
void registerSorting(OpTable &table);
void registerSlices(OpTable &table);
void registerWindows(OpTable &table);
void registerSpecialFunctions(OpTable &table);
void registerStrides(OpTable &table);
void registerTransforms(OpTable &table);
void registerTriangularSolves(OpTable &table);
void registerViews(OpTable &table);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_GRAPH_OPTABLE_H
