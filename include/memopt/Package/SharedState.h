//===- SharedState.h - several programs over the same variables -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A package may hold several programs: steps of several shapes, an evaluation, steps of several
// optimizers. Their state (parameters, buffers, optimizer state) lies in one arena, and is placed
// once. So every program declares all of it, in the same order and in front of its other variables:
// the planner then puts it at the same offsets in each, and what the program makes above.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PACKAGE_SHAREDSTATE_H
#define MEMOPT_PACKAGE_SHAREDSTATE_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/JSON.h"

#include <string>
#include <vector>

namespace mlir::memopt {

/// A kernel graph that is to be one of several programs.
struct StateProgram {
  std::string name;
  ModuleOp module;
  /// Whose state its optimizer has: programs of one name share it. Empty: that of no name.
  std::string optimizer;
  /// Processes that run it together (countRanks); of a program of one, what ranks have parts of is
  /// so many bytes.
  int64_t ranks = 1;
  /// Names of variables in the module, and what they are called among all programs.
  std::vector<std::pair<std::string, std::string>> names;
};

/// Names the program's variables as they are called among all programs. Once for each program, with
/// its kernel graph.
void nameState(const StateProgram &program);

/// Lets an evaluation, as imported, read the averages that the `states` keep in the place of
/// parameters: adds their names. Refused where there is none.
LogicalResult readAverages(StateProgram &evaluation, ArrayRef<ModuleOp> states);

/// Says of each variable of an evaluation, as imported, in which form (StateForm.h, FrozenForm) the `states`
/// keep it: modules whose variables have the names of all programs.
void adoptForms(const StateProgram &evaluation, ArrayRef<ModuleOp> states);

/// Says of each variable of an evaluation, which has all of the state, where the plan of a training
/// or a package has put it.
void adoptSpaces(ModuleOp evaluation, ModuleOp planned);

/// The ranks over which the module's variables are shared out; 1 where none is.
int64_t countRanks(ModuleOp module);

/// Gives all programs the variables of all. Variables of one name are one, and have to be of one
/// type; those whose first values differ are refused, but for constants, which each program then
/// has for itself. With `given`, the state of a package that is there, nothing is added to it.
LogicalResult shareState(ArrayRef<StateProgram> programs, ModuleOp given = nullptr);

/// The state of a package, from its manifest, as declarations with offsets.
llvm::Expected<OwningOpRef<ModuleOp>> readState(MLIRContext &context,
                                                const llvm::json::Object &manifest);

/// Refuses programs whose plans have put a variable of the state at different places.
LogicalResult verifySharedPlaces(ArrayRef<StateProgram> programs, ModuleOp given = nullptr);

} // namespace mlir::memopt

#endif // MEMOPT_PACKAGE_SHAREDSTATE_H
