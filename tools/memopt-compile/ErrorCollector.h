//===- ErrorCollector.h - diagnostics for people -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_ERRORCOLLECTOR_H
#define MEMOPT_TOOLS_COMPILE_ERRORCOLLECTOR_H

#include "memopt/Analysis/StepModel.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace memopt::tool {

/// Notes and remarks go out as they come; the error itself is kept for the last line.
class ErrorCollector {
public:
  explicit ErrorCollector(mlir::MLIRContext &context)
      : handler(&context, [this](mlir::Diagnostic &diagnostic) { return take(diagnostic); }) {}

  std::string last;
  bool isQuiet = false; ///< only errors are kept, nothing is printed

private:
  /// "FILE:LINE:COLUMN: ", or the name of the model's module, or nothing.
  static std::string describePlace(mlir::Location location) {
    if (auto place = location->findInstanceOf<mlir::FileLineColLoc>())
      return llvm::formatv("{0}:{1}:{2}: ", place.getFilename().getValue(), place.getLine(),
                           place.getColumn());
    llvm::StringRef module = mlir::memopt::getModulePath(location);
    return module.empty() ? "" : (module + ": ").str();
  }

  llvm::LogicalResult take(mlir::Diagnostic &diagnostic) {
    if (isQuiet && diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error)
      return llvm::success();
    std::string text;
    llvm::raw_string_ostream out(text);
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
      out << describePlace(diagnostic.getLocation());
    out << diagnostic;
    if (isQuiet) {
      last = text;
      return llvm::success();
    }
    for (mlir::Diagnostic &note : diagnostic.getNotes())
      llvm::errs() << "note: " << note << "\n";
    if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error) {
      llvm::errs() << (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Warning ? "warning: "
                                                                                     : "remark: ")
                   << text << "\n";
      return llvm::success();
    }
    if (!last.empty())
      llvm::errs() << "error: " << last << "\n";
    last = text;
    return llvm::success();
  }

  mlir::ScopedDiagnosticHandler handler;
};

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_ERRORCOLLECTOR_H
