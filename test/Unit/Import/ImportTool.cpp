//===- ImportTool.cpp - prints what a .pt2 file becomes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A small driver for the lit tests of this room: it links the importer alone.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpTable.h"
#include "memopt/Import/Graph/Pt2.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

namespace cl = llvm::cl;

static cl::opt<std::string> input(cl::Positional, cl::desc("MODEL.pt2"));
static cl::opt<std::string> loss("loss", cl::desc("Name or index of the loss"));
static cl::opt<bool> evaluate("eval", cl::desc("Forward pass only"));
static cl::opt<bool> noDropout("no-dropout", cl::desc("Dropout is the identity"));
static cl::opt<bool> locations("locations", cl::desc("Print locations"));
static cl::opt<bool> elide("elide", cl::desc("Leave out large constants"), cl::init(true));
static cl::opt<bool> rows("rows", cl::desc("Print the operators that have a row in the table"));
static cl::opt<bool> quiet("quiet", cl::desc("Print nothing on success"));

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::ParseCommandLineOptions(argc, argv, "import a .pt2 file and print the module\n");
  if (rows) {
    for (const auto &row : memopt::pt2::OpTable::get())
      llvm::outs() << row.getKey() << "\n";
    return 0;
  }
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  memopt::pt2::ImportOptions options;
  options.loss = loss;
  options.evaluate = evaluate;
  options.dropout = !noDropout;
  auto module = memopt::pt2::importPt2(context, input, options);
  if (!module) {
    llvm::errs() << "error: " << llvm::toString(module.takeError()) << "\n";
    return 1;
  }
  if (quiet)
    return 0;
  mlir::OpPrintingFlags flags;
  if (elide)
    flags.elideLargeElementsAttrs(16);
  flags.elideLargeResourceString(16).enableDebugInfo(locations);
  (*module)->print(llvm::outs(), flags);
  llvm::outs() << "\n";
  return 0;
}
