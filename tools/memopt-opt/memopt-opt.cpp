//===- memopt-opt.cpp - the pass driver -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"
#include "memopt/Pipelines/Pipelines.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/TilePasses.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "options/OptionTable.h"

#include "llvm/Support/CommandLine.h"

#ifdef MEMOPT_TEST_DIALECT
#include "TestDialect.h"
#endif

int main(int argc, char **argv) {
  llvm::cl::SetVersionPrinter(
      [](llvm::raw_ostream &out) { out << memopt::options::describeVersion("memopt-opt"); });
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::memopt::registerMemoptDialects(registry);
#ifdef MEMOPT_TEST_DIALECT
  memopt_test::registerTestDialect(registry);
#endif
  mlir::registerAllPasses();
  mlir::memopt::registerMemoptPasses();
  mlir::memopt::registerMemoptTilePasses();
  mlir::memopt::registerMemoptPipelines();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "memopt pass driver\n", registry));
}
