//===- CompilationOutput.cpp - what a compilation says and writes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Compilation.h"

#include "memopt-runtime/base/Files.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Report/PlanPage.h"
#include "memopt/Report/PlanReport.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace ::memopt::tool;
using ::memopt::StatusCode;

StatusCode Compilation::print() {
  OpPrintingFlags flags;
  flags.elideLargeElementsAttrs(16).elideLargeResourceString(16).enableDebugInfo(false);
  module->print(llvm::outs(), flags);
  llvm::outs() << "\n";
  return finishOutput();
}

/// What was printed must have arrived.
StatusCode Compilation::finishOutput() {
  llvm::outs().flush();
  if (!llvm::outs().has_error())
    return StatusCode::Ok;
  errors.last = "standard output: " + llvm::outs().error().message();
  llvm::outs().clear_error();
  return StatusCode::Environment;
}

/// One line: what lies where, and what it is. By the last name alone: memopt-run has the package
/// made in a hidden folder.
void Compilation::summarize() {
  llvm::json::Object facts = mlir::memopt::describePlan(*module);
  auto number = [&](StringRef key) { return *facts.getInteger(key); };
  std::string spaces;
  for (auto &[space, bytes] : *facts.getObject("predicted_peak_bytes"))
    if (int64_t count = *bytes.getAsInteger())
      spaces += llvm::formatv("{0}{1} bytes of {2} memory", spaces.empty() ? "" : " and ", count,
                              StringRef(space))
                    .str();
  llvm::errs() << llvm::formatv(
      "{0}: {1}; {2} kernels and {3} library calls, {4} of them run again; {5:F3} ms a step "
      "predicted; compiled in {6:F1} s\n",
      llvm::sys::path::filename(StringRef(options.output).rtrim('/')), spaces, number("kernels"),
      number("library_calls"), number("recomputed_instructions"),
      *facts.getNumber("predicted_seconds") * 1e3,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - beginTime).count());
}

void Compilation::addTechniques(llvm::json::Object &facts) const {
  if (techniques)
    facts["techniques"] = llvm::json::Array(*techniques);
}

void Compilation::report() {
  if (options.explain)
    llvm::errs() << mlir::memopt::explainPlan(*module);
  if (!options.reportPath.empty()) {
    llvm::json::Object facts = mlir::memopt::describePlan(*module);
    addTechniques(facts);
    sides.emplace_back(options.reportPath,
                       llvm::formatv("{0:2}\n", llvm::json::Value(std::move(facts))).str());
  }
  if (!options.pagePath.empty())
    sides.emplace_back(options.pagePath, makePage(std::nullopt));
}

/// A full disk says nothing against the package, which is there by now.
StatusCode Compilation::writeSides() {
  StatusCode result = StatusCode::Ok;
  std::string first;
  for (const auto &[path, text] : sides) {
    StatusCode code = writeText(path, text);
    if (result != StatusCode::Ok || code == StatusCode::Ok)
      continue;
    result = code;
    first = errors.last;
  }
  if (result != StatusCode::Ok)
    errors.last = std::move(first);
  return result;
}

/// Of the module as it is planned.
std::string Compilation::makePage(std::optional<llvm::json::Object> frontier) {
  mlir::memopt::PlanPageOptions page = describePage();
  page.frontier = std::move(frontier);
  return mlir::memopt::makePlanPage(mlir::memopt::PlanPageProgram{"", *module, std::move(page)});
}

mlir::memopt::PlanPageOptions Compilation::describePage() const {
  mlir::memopt::PlanPageOptions page;
  page.title = llvm::sys::path::filename(options.input).str();
  page.budgets = {options.deviceBudget, options.hostBudget, options.diskBudget};
  page.microBatches = options.pipeline.microBatches;
  page.techniques = techniques;
  return page;
}

/// What a message on a plan that does not fit leaves open: the budget of the arena is less.
void Compilation::explainOverhead(int64_t overhead) {
  errors.last +=
      llvm::formatv("; of --device-memory {0} bytes are kept for context, code and libraries "
                    "(overhead_bytes of the device's description)",
                    overhead);
  if (smallestBytes > options.deviceBudget)
    errors.last += llvm::formatv(": --device-memory={0} would do", smallestBytes + overhead);
}

/// In the message, and for programs, which cannot read it, in the report: in bytes of the options.
StatusCode Compilation::reportMisfit() {
  using namespace mlir::memopt;
  if (auto planned = (*module)->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr))
    smallestBytes = planned.getArenaBytesOf(Space::Device);
  int64_t overhead =
      options.device && options.deviceBudget >= 0 ? options.device->overheadBytes : 0;
  if (overhead > 0)
    explainOverhead(overhead);
  if (options.reportPath.empty())
    return StatusCode::DoesNotFit;
  SmallVector<int64_t> budgets{options.givenDeviceBudget}, smallest{smallestBytes + overhead};
  auto add = [&](Space space, int64_t budget) {
    auto planned = (*module)->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr);
    budgets.push_back(budget);
    smallest.push_back(planned ? planned.getArenaBytesOf(space) : 0);
  };
  if (options.hostBudget >= 0 || options.diskBudget >= 0)
    add(Space::Host, options.hostBudget); // -1: no limit
  if (options.diskBudget >= 0)
    add(Space::Disk, options.diskBudget);
  llvm::json::Value facts(describeMisfit(*module, budgets, smallest));
  std::string message = std::exchange(errors.last, "");
  StatusCode code = writeText(options.reportPath, llvm::formatv("{0:2}\n", facts).str());
  if (code != StatusCode::Ok)
    return code;
  errors.last = std::move(message);
  return StatusCode::DoesNotFit;
}

StatusCode Compilation::writeText(const std::string &path, StringRef text) {
  llvm::outs().flush(); // the path may be that of the same file
  ::memopt::Status status = ::memopt::writeFileAtomically(path, text);
  if (!status.isOk())
    errors.last = status.getMessage();
  return status.getCode();
}
