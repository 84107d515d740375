//===- PackageCompilation.h - several programs into one package -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each program is compiled as if it were alone up to its kernel graph. Then all know all variables
// (memopt/Package/SharedState.h), and each is planned above them.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_PACKAGECOMPILATION_H
#define MEMOPT_TOOLS_COMPILE_PACKAGECOMPILATION_H

#include "Compilation.h"
#include "Programs.h"

#include "memopt/Package/SharedState.h"

namespace memopt::tool {

class PackageCompilation {
public:
  PackageCompilation(mlir::MLIRContext &context, CompileRequest &request)
      : context(context), request(request), errors(context) {}

  int run();

private:
  StatusCode compile();
  StatusCode prepare();
  StatusCode prepareProgram(size_t number);
  std::vector<size_t> getOrder() const;
  mlir::ModuleOp findPlacedState();
  StatusCode readState();
  void chooseUnits();
  StatusCode plan();
  StatusCode write();
  StatusCode writeSides();
  std::string describe();
  std::string drawPage();
  void summarize();
  mlir::memopt::StateProgram describeState(size_t number);
  std::vector<mlir::memopt::StateProgram> listStates();
  StatusCode blame(const ProgramRequest &program, StatusCode code);
  size_t findLargest();

  mlir::MLIRContext &context;
  CompileRequest &request;
  ErrorCollector errors;
  std::vector<std::unique_ptr<Compilation>> compilations; ///< by program
  mlir::OwningOpRef<mlir::ModuleOp> state;                ///< that is given
  std::string report, page;                               ///< of what is planned
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_PACKAGECOMPILATION_H
