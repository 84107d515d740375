//===- PlanReport.cpp - a plan for programs and for people -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/PlanReport.h"

#include "memopt/Analysis/CostModel.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Package/Manifest.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::memopt;
namespace json = llvm::json;

namespace {
/// What is alive at the moment of the highest load, and totals over the program.
struct PlanFacts {
  PlannedAttr planned;
  int64_t load = 0, peakTime = 0;
  int64_t kernels = 0, libraryCalls = 0, clones = 0, flops = 0, cloneFlops = 0;
  double seconds = 0;  ///< of a step, by the cost model
  std::string machine; ///< that seconds are predicted for
  llvm::MapVector<StringRef, int64_t> byKind;
  std::vector<std::pair<int64_t, std::string>> largest;
  std::string at;
};
} // namespace

json::Object mlir::memopt::bySpace(ArrayRef<int64_t> bytes) {
  json::Object object;
  for (auto [space, number] : llvm::enumerate(bytes))
    object[stringifySpace(static_cast<Space>(space))] = number;
  return object;
}

static StringRef kindOf(const Buffer &buffer) {
  switch (buffer.kind) {
  case Buffer::Kind::Variable:
    return stringifyRole(VariableOp(buffer.variable).getRole());
  case Buffer::Kind::Input:
    return "input";
  case Buffer::Kind::Result:
    return "activation";
  case Buffer::Kind::Workspace:
    return "workspace";
  }
  return "";
}

static void findPeak(const KernelGraph &graph, PlanFacts &facts) {
  for (auto [time, live] : llvm::enumerate(graph.getLiveBytes(Space::Device)))
    if (live > facts.load) {
      facts.load = live;
      facts.peakTime = static_cast<int64_t>(time);
    }
}

/// How often a step runs an instruction: as often as the loops around it turn.
static int64_t getRuns(Operation *op) {
  int64_t runs = 1;
  while (auto loop = op->getParentOfType<InstructionOpInterface>()) {
    runs *= loop.getRepeatCount();
    op = loop;
  }
  return runs;
}

static PlanFacts collectFacts(ModuleOp module) {
  KernelGraph graph(StepModel::create(module)->getFunction());
  CostModel costs(module);
  PlanFacts facts;
  facts.machine = getTarget(module).describeMachine();
  facts.planned = module->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr);
  for (Operation *op : graph.getInstructions()) {
    if (!cast<InstructionOpInterface>(op).getBodies().empty())
      continue; // what a loop holds is counted by itself
    bool clone = cast<InstructionOpInterface>(op).getClone() != 0;
    int64_t runs = getRuns(op),
            flops = multiplyCounts({cast<CostOpInterface>(op).getFlops(), runs});
    facts.kernels += isa<KernelOp>(op);
    facts.libraryCalls += isa<LibraryCallOp>(op);
    facts.clones += clone;
    facts.flops = addCounts(facts.flops, flops);
    facts.seconds += costs.getSeconds(op) * static_cast<double>(runs);
    facts.cloneFlops = addCounts(facts.cloneFlops, clone ? flops : 0);
  }
  findPeak(graph, facts);
  for (const Buffer &buffer : graph.getBuffers()) {
    if (buffer.space != Space::Device || buffer.bytes == 0 || buffer.begin > facts.peakTime ||
        buffer.end <= facts.peakTime)
      continue;
    facts.byKind[kindOf(buffer)] += buffer.bytes;
    facts.largest.emplace_back(buffer.bytes, buffer.describe());
  }
  llvm::sort(facts.largest, [](const auto &a, const auto &b) {
    return std::tie(b.first, a.second) < std::tie(a.first, b.second);
  });
  facts.largest.resize(std::min<size_t>(facts.largest.size(), 10));
  if (facts.peakTime >= 1 && facts.peakTime < graph.getExitTime())
    facts.at = getModulePath(graph.getInstructions()[facts.peakTime - 1]->getLoc()).str();
  return facts;
}

//===----------------------------------------------------------------------===//
// Batch norms fused into convolutions
//===----------------------------------------------------------------------===//

static DictionaryAttr getConvBnEval(ModuleOp module) {
  return module->getAttrOfType<DictionaryAttr>(MemoptDialect::kEfficientConvBnEvalAttr);
}

std::optional<json::Value> mlir::memopt::describeConvBnEval(ModuleOp module) {
  DictionaryAttr report = getConvBnEval(module);
  return report ? std::optional(attributeToJson(report)) : std::nullopt;
}

static void explainConvBnEval(ModuleOp module, raw_ostream &out) {
  DictionaryAttr report = getConvBnEval(module);
  if (!report)
    return;
  auto refused = report.getAs<DictionaryAttr>("refused");
  out << llvm::formatv(
      "Batch norms fused into the convolutions before them: {0}. {1} bytes of convolution results "
      "are not needed for the backward pass; the scaled filters have {2} bytes.\n",
      report.getAs<ArrayAttr>("fused").size(), report.getAs<IntegerAttr>("result_bytes").getInt(),
      report.getAs<IntegerAttr>("filter_bytes").getInt());
  for (NamedAttribute entry : refused)
    out << llvm::formatv("  {0} stays as it is: {1}.\n", entry.getName().getValue(),
                         cast<StringAttr>(entry.getValue()).getValue());
}

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

static json::Array describeLargest(const PlanFacts &facts) {
  json::Array largest;
  for (auto &[bytes, text] : facts.largest)
    largest.push_back(json::Object{{"bytes", bytes}, {"what", text}});
  return largest;
}

json::Object mlir::memopt::describeMisfit(ModuleOp module, int64_t budget, int64_t smallest) {
  json::Object report{{"format", "memopt-plan-report"},
                      {"version", 1},
                      {"fits", false},
                      {"budget_bytes", bySpace(budget)},
                      {"smallest_budget_bytes", bySpace(smallest)}};
  if (!module->hasAttr(MemoptDialect::kPlannedAttr))
    return report;
  PlanFacts facts = collectFacts(module);
  report["lower_bound_bytes"] = bySpace(facts.planned.getLowerBoundBytes());
  report["largest_at_peak"] = describeLargest(facts);
  return report;
}

json::Object mlir::memopt::describePlan(ModuleOp planned) {
  PlanFacts facts = collectFacts(planned);
  json::Object kinds;
  for (auto [kind, bytes] : facts.byKind)
    kinds[kind] = bytes;
  json::Object report{{"format", "memopt-plan-report"},
                      {"version", 1},
                      {"fits", true},
                      {"predicted_peak_bytes", bySpace(facts.planned.getArenaBytes())},
                      {"lower_bound_bytes", bySpace(facts.planned.getLowerBoundBytes())},
                      {"predicted_seconds", facts.seconds},
                      {"machine", facts.machine},
                      {"kernels", facts.kernels},
                      {"library_calls", facts.libraryCalls},
                      {"recomputed_instructions", facts.clones},
                      {"flops", facts.flops},
                      {"recomputed_flops", facts.cloneFlops},
                      {"peak_at", facts.at},
                      {"peak_bytes_by_kind", std::move(kinds)},
                      {"largest_at_peak", describeLargest(facts)}};
  if (std::optional<json::Value> fusion = describeConvBnEval(planned))
    report["efficient_conv_bn_eval"] = std::move(*fusion);
  return report;
}

std::string mlir::memopt::explainPlan(ModuleOp planned) {
  PlanFacts facts = collectFacts(planned);
  std::string text;
  llvm::raw_string_ostream out(text);
  int64_t arena = facts.planned.getArenaBytesOf(Space::Device);
  int64_t bound = facts.planned.getLowerBoundOf(Space::Device);
  out << llvm::formatv(
      "The step needs {0} bytes of device memory; no layout of this order needs less than {1} "
      "({2:P1} above).\n",
      arena, bound, bound ? double(arena) / double(bound) - 1 : 0.0);
  out << llvm::formatv(
      "It runs {0} kernels and {1} library calls, {2} of them recomputations ({3:P1} of the "
      "operations).\n",
      facts.kernels, facts.libraryCalls, facts.clones,
      facts.flops ? double(facts.cloneFlops) / facts.flops : 0.0);
  out << llvm::formatv(
      "By the profile of {0} a step takes {1:F3} ms, to be held against other plans.\n",
      facts.machine, facts.seconds * 1e3);
  explainConvBnEval(planned, out);
  out << llvm::formatv("At the peak{0} {1} bytes are alive:\n",
                       facts.at.empty() ? "" : " in " + facts.at, facts.load);
  for (auto [kind, bytes] : facts.byKind)
    out << llvm::formatv("  {0,14} bytes  {1}\n", bytes, kind);
  out << "Largest among them:\n";
  for (auto &[bytes, what] : facts.largest)
    out << llvm::formatv("  {0,14} bytes  {1}\n", bytes, what);
  return text;
}
