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

/// Notes and remarks go out as they come, or are kept where it is not known yet whether what they
/// say will be so; the error itself is kept for the last line.
class ErrorCollector {
public:
  explicit ErrorCollector(mlir::MLIRContext &context)
      : handler(&context, [this](mlir::Diagnostic &diagnostic) { return take(diagnostic); }) {}

  std::string last;
  bool isQuiet = false; ///< nothing is printed
  std::string remarks;  ///< what would have been printed since somebody took it

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
    std::string text;
    llvm::raw_string_ostream out(text);
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
      out << describePlace(diagnostic.getLocation());
    out << diagnostic;
    std::string shown;
    llvm::raw_string_ostream lines(shown);
    for (mlir::Diagnostic &note : diagnostic.getNotes())
      lines << "note: " << note << "\n";
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Warning)
      lines << "warning: " << text << "\n";
    else if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error)
      lines << "remark: " << text << "\n";
    else if (!isQuiet && !last.empty())
      lines << "error: " << last << "\n";
    if (isQuiet)
      remarks += shown;
    else
      llvm::errs() << shown;
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
      last = text;
    return llvm::success();
  }

  mlir::ScopedDiagnosticHandler handler;
};

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_ERRORCOLLECTOR_H
