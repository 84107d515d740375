//===- GraphImporter.h - from the schema's graph to a module -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_GRAPH_GRAPHIMPORTER_H
#define MEMOPT_IMPORT_GRAPH_GRAPHIMPORTER_H

#include "memopt/Import/Archive/Weights.h"
#include "memopt/Import/Graph/OpContext.h"
#include "memopt/Import/Graph/Pt2.h"
#include "memopt/Import/Graph/Refusals.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSet.h"

#include <map>

namespace memopt::pt2 {

class GraphImporter {
public:
  GraphImporter(mlir::MLIRContext &context, const ExportedProgram &program, const Weights &weights,
                llvm::StringRef file, const ImportOptions &options);

  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> run();

  // For OpContext.
  const ImportOptions &getOptions() const { return options; }
  /// Whether layers are to do what they do in evaluation, whatever the graph says: a graph that was
  /// traced in evaluation mode says it itself.
  bool overridesTraining() const { return options.evaluate && !program.tracedInEvaluation; }
  int64_t newIdentity() { return nextIdentity++; }
  /// One that shares its storage with no other; what is in it is the caller's to say.
  Tensor newTensor(DType dtype, llvm::ArrayRef<int64_t> sizes);
  llvm::Expected<Tensor> lookup(llvm::StringRef name) const;
  bool isUsedLater(llvm::StringRef name) const;
  RandomState nextRandomState(mlir::ImplicitLocOpBuilder &b);
  /// Gives every name of this very tensor the value `to`: what an in-place operator does.
  llvm::Error mutate(const Tensor &from, Tensor to);
  /// What a variable without data starts from, if `tensor` is one: a norm's scale from 1, say.
  void suggestInitial(const Tensor &tensor, double value);
  /// The same elements, which no gradient flows through.
  Tensor stopGradient(Tensor tensor);
  /// The name of a trainable parameter that the tensor depends on, empty when there is none.
  llvm::StringRef findTrainable(const Tensor &tensor) const;
  llvm::Error error(const llvm::Twine &message) const;

private:
  /// The names of one graph. Graphs nest in higher-order operators, which are inlined.
  struct Scope {
    const Graph *graph;
    llvm::StringMap<Tensor> values;
    llvm::StringMap<size_t>
        lastUse; ///< index of the last node that reads a name; outputs count as one more
    llvm::StringSet<> needed;   ///< names that more than an assertion depends on
    llvm::StringSet<> standIns; ///< names whose values are made up, for something was refused
    /// Results that are another value under a new name, for dropout is off.
    llvm::StringMap<std::string> forwarded;
    size_t position = 0;
    /// Names in `values` by storage, without those that nothing reads any more.
    llvm::DenseMap<int64_t, llvm::SmallVector<llvm::StringRef, 2>> namesOf;

    bool add(llvm::StringRef name, Tensor tensor) {
      int64_t storage = tensor.storage;
      auto [entry, isNew] = values.try_emplace(name, std::move(tensor));
      if (isNew)
        namesOf[storage].push_back(entry->first());
      return isNew;
    }
  };
  struct Variable {
    mlir::memopt::VariableOp declaration;
    std::vector<std::string> names; ///< in a checkpoint
    Tensor initial;                 ///< the value that the step reads
    bool isBuffer = false;
  };

  // Interface: arguments, variables, results (Interface.cpp).
  llvm::Error createInputs();
  llvm::Error createEmpty(const InputSpec &spec, const TensorMeta &meta);
  llvm::Error createUserInput(const InputSpec &spec, const TensorMeta &meta);
  llvm::Error createVariable(size_t index, const TensorMeta &meta);
  llvm::Expected<bool> foldBuffer(const InputSpec &spec, const TensorMeta &meta);
  llvm::Expected<mlir::ElementsAttr> loadInitial(llvm::StringRef name, const TensorMeta &meta);
  llvm::Expected<mlir::memopt::VariableOp>
  declareVariable(const InputSpec &spec, llvm::StringRef name, const TensorMeta &meta);
  std::string chooseSymbol(llvm::StringRef target);
  void readInitial(const TensorMeta &meta, Variable &variable);
  void findTies();
  bool isMutatedAtOutput(llvm::StringRef target) const;
  void annotateBatch();
  llvm::Error createOutputs();
  llvm::Error createWrites(OpContext &op);
  llvm::Expected<size_t> chooseLoss(llvm::ArrayRef<const OutputSpec *> outputs) const;

  // Nodes (GraphImporter.cpp).
  void importNodes(Scope &scope);
  llvm::Error importNode(const Node &node);
  llvm::Error importOperator(const Node &node);
  /// An operator whose source the archive has (OwnOperators.cpp); false for others.
  llvm::Expected<bool> importOwnOperator(const Node &node);
  llvm::Error inlineGraph(const Node &node);
  llvm::Error define(llvm::StringRef name, Tensor tensor);
  void countUses(Scope &scope) const;
  bool readsStandIn(const Node &node) const;
  bool isNumberForAssertion(const Node &node) const;
  void defineStandIns(const Node &node);
  mlir::Location getLocation(const Node &node) const;

  llvm::Error finish();

  mlir::MLIRContext &context;
  const ExportedProgram &program;
  const Weights &weights;
  std::string file;
  const ImportOptions &options;

  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
  mlir::ImplicitLocOpBuilder builder;
  std::vector<Scope *> scopes;
  Scope root;
  Refusals refusals;
  std::map<std::string, Variable> variables;       ///< by target of the first name
  llvm::StringMap<std::string> variableOf;         ///< any target to the first one
  llvm::DenseMap<int64_t, std::string> folded;     ///< storage of a constant buffer to its target
  llvm::DenseMap<int64_t, std::string> variableAt; ///< storage of a variable to its target
  llvm::StringMap<std::string> renamed;            ///< symbols that are no target to their target
  llvm::StringMap<llvm::StringRef> classes;        ///< of modules by their paths
  llvm::StringSet<> inputs;                        ///< names of the graph's inputs
  int64_t nextIdentity = 0;
  int64_t nextRandom = 0;
  uint64_t foldedBytes = 0; ///< held by results that are known
  mlir::Value seed, step;
  Node outputNode; ///< stands for the function's end where a node is asked for
};

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_GRAPH_GRAPHIMPORTER_H
