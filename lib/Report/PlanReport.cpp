//===- PlanReport.cpp - a plan for programs and for people -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Report/PlanReport.h"

#include "memopt/Analysis/CostModel.h"
#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Package/Manifest.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>

using namespace mlir;
using namespace mlir::memopt;
namespace json = llvm::json;

namespace {
/// What is alive in a space at the moment of its highest load.
struct SpacePeak {
  int64_t load = 0, time = 0;
  llvm::MapVector<StringRef, int64_t> byKind;
  std::vector<std::pair<int64_t, std::string>> largest;
  std::string at;
};

/// Library calls of one kind that run in one way.
struct CallFacts {
  int64_t calls = 0, flops = 0;
};

/// Peaks, and totals over the program.
struct PlanFacts {
  PlannedAttr planned;
  SpacePeak device, host, disk;
  int64_t kernels = 0, libraryCalls = 0, clones = 0, flops = 0, cloneFlops = 0;
  int64_t hostKernels = 0, transferBytes = 0, diskBytes = 0; ///< that are sent; of or to the disk
  int64_t packedMasks = 0, packedBytes = 0;                  ///< booleans kept as bits
  int64_t invariants = 0, invariantBytes = 0; ///< read by loops, made in front of them
  double seconds = 0;                         ///< of a step, by the cost model
  std::string machine;                        ///< that seconds are predicted for
  /// By kind and implementation.
  std::map<std::pair<std::string, std::string>, CallFacts> calls;
};
} // namespace

StringRef mlir::memopt::getKindName(const Buffer &buffer) {
  switch (buffer.kind) {
  case Buffer::Kind::Variable:
    if (FrozenVariable::get(buffer.variable) || isFrozenScale(buffer.variable))
      return "frozen";
    return stringifyRole(VariableOp(buffer.variable).getRole());
  case Buffer::Kind::Input:
    return "input";
  case Buffer::Kind::Result:
    return isa<TransferWaitOp>(buffer.op) ? "sent" : "activation";
  case Buffer::Kind::Workspace:
    return "workspace";
  }
  return "";
}

static SpacePeak findPeak(const KernelGraph &graph, Space space) {
  SpacePeak peak;
  for (auto [time, live] : llvm::enumerate(graph.getLiveBytes(space)))
    if (live > peak.load) {
      peak.load = live;
      peak.time = static_cast<int64_t>(time);
    }
  for (const Buffer &buffer : graph.getBuffers()) {
    if (buffer.space != space || buffer.bytes == 0 || buffer.begin > peak.time ||
        buffer.end <= peak.time)
      continue;
    peak.byKind[getKindName(buffer)] += buffer.bytes;
    peak.largest.emplace_back(buffer.bytes, buffer.describe());
  }
  llvm::sort(peak.largest, [](const auto &a, const auto &b) {
    return std::tie(b.first, a.second) < std::tie(a.first, b.second);
  });
  peak.largest.resize(std::min<size_t>(peak.largest.size(), 10));
  if (peak.time >= 1 && peak.time < graph.getExitTime())
    peak.at = getModulePath(graph.getInstructions()[peak.time - 1]->getLoc()).str();
  return peak;
}

namespace {
/// The time of a step: what computes runs in turn, what is started runs beside it, in the order of
/// the starts on one resource, and a wait holds the step up until then. All ranks send in one order:
/// a collective that the step stands still for begins when those in flight have ended.
class StepClock {
public:
  explicit StepClock(const CostModel &costs) : costs(costs) {}

  double run(Block &block) {
    for (auto op : block.getOps<InstructionOpInterface>())
      runInstruction(op);
    return now;
  }

private:
  void runInstruction(InstructionOpInterface op) {
    double &free = busy[static_cast<size_t>(op.getResource())];
    if (llvm::any_of(op->getResultTypes(), llvm::IsaPred<TokenType>)) {
      arrivals[op] = free = std::max(now, free) + costs.getSeconds(op);
      return;
    }
    if (Operation *start = getStart(op))
      now = std::max(now, arrivals.lookup(start));
    double before = now;
    for (Block *body : op.getBodies())
      run(*body);
    now += (now - before) * static_cast<double>(op.getRepeatCount() - 1);
    bool sends = isCollective(op);
    double &link = busy[static_cast<size_t>(Resource::Network)];
    if (sends)
      now = std::max(now, link);
    if (op.getBodies().empty())
      now += costs.getSeconds(op);
    if (sends)
      link = now;
  }

  static bool isCollective(Operation *op) {
    auto collective = dyn_cast<CollectiveOp>(op);
    return collective && collective.getKind() != CollectiveKind::OwnShard;
  }

  const CostModel &costs;
  double now = 0, busy[getMaxEnumValForResource() + 1] = {};
  DenseMap<Operation *, double> arrivals;
};
} // namespace

int64_t mlir::memopt::getRuns(Operation *op) {
  int64_t runs = 1;
  while (auto loop = op->getParentOfType<InstructionOpInterface>()) {
    runs *= loop.getRepeatCount();
    op = loop;
  }
  return runs;
}

double mlir::memopt::getLeastSeconds(ModuleOp module) {
  StepModel step = *StepModel::create(module);
  CostModel costs(module);
  double inTurn = 0, loads[getMaxEnumValForResource() + 1] = {};
  step.getFunction().walk([&](InstructionOpInterface op) {
    if (!op.getBodies().empty())
      return;
    double seconds = costs.getSeconds(op) * static_cast<double>(getRuns(op));
    loads[static_cast<size_t>(op.getResource())] += seconds;
    if (llvm::none_of(op->getResultTypes(), llvm::IsaPred<TokenType>))
      inTurn += seconds;
  });
  return std::max(inTurn, *llvm::max_element(loads));
}

static void addCall(PlanFacts &facts, LibraryCallOp call, int64_t flops) {
  CallFacts &same = facts.calls[{call.getCall().getKindName().str(),
                                 call.getImplementation().value_or("the library").str()}];
  ++same.calls;
  same.flops = addCounts(same.flops, flops);
}

/// Masks that wait for the backward pass; of a clone there is another one.
static void addPackedMasks(PlanFacts &facts, KernelOp kernel) {
  if (kernel.getClone() != 0)
    return;
  for (auto [result, value] :
       llvm::zip_equal(kernel.getResults(), kernel.getYield()->getOperands()))
    if (value.getDefiningOp<PackBitsOp>()) {
      ++facts.packedMasks;
      facts.packedBytes += getTensorBytes(result.getType());
    }
}

/// What a loop over micro-batches reads in each iteration and instructions in front of it made once.
static void addInvariants(PlanFacts &facts, RepeatOp loop) {
  llvm::SmallDenseSet<Value> seen;
  for (Value operand : loop->getOperands())
    if (isa_and_nonnull<KernelOp, LibraryCallOp>(operand.getDefiningOp()) &&
        seen.insert(operand).second) {
      ++facts.invariants;
      facts.invariantBytes += getTensorBytes(operand.getType());
    }
}

/// What the instructions compute and move.
static PlanFacts countWork(const KernelGraph &graph) {
  PlanFacts facts;
  for (Operation *op : graph.getInstructions()) {
    if (!cast<InstructionOpInterface>(op).getBodies().empty()) {
      if (auto loop = dyn_cast<RepeatOp>(op))
        addInvariants(facts, loop);
      continue; // what a loop holds is counted by itself
    }
    bool clone = cast<InstructionOpInterface>(op).getClone() != 0;
    int64_t runs = getRuns(op),
            flops = multiplyCounts({cast<CostOpInterface>(op).getFlops(), runs});
    facts.kernels += isa<KernelOp>(op);
    facts.libraryCalls += isa<LibraryCallOp>(op);
    facts.hostKernels += cast<InstructionOpInterface>(op).getResource() == Resource::Host;
    if (auto transfer = dyn_cast<TransferStartOp>(op)) {
      int64_t bytes = multiplyCounts({transfer.getBytesMoved(), runs});
      int64_t &sum =
          transfer.getResource() == Resource::Disk ? facts.diskBytes : facts.transferBytes;
      sum = addCounts(sum, bytes);
    }
    if (auto call = dyn_cast<LibraryCallOp>(op))
      addCall(facts, call, flops);
    if (auto kernel = dyn_cast<KernelOp>(op))
      addPackedMasks(facts, kernel);
    facts.clones += clone;
    facts.flops = addCounts(facts.flops, flops);
    facts.cloneFlops = addCounts(facts.cloneFlops, clone ? flops : 0);
  }
  return facts;
}

static PlanFacts collectFacts(ModuleOp module) {
  StepModel step = *StepModel::create(module);
  KernelGraph graph(step.getFunction());
  CostModel costs(module);
  PlanFacts facts = countWork(graph);
  facts.machine = getTarget(module).describeMachine();
  facts.planned = module->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr);
  facts.seconds = StepClock(costs).run(step.getBody());
  facts.device = findPeak(graph, Space::Device);
  facts.host = findPeak(graph, Space::Host);
  facts.disk = findPeak(graph, Space::Disk);
  return facts;
}

//===----------------------------------------------------------------------===//
// Batch norms fused into convolutions
//===----------------------------------------------------------------------===//

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
  for (auto &[bytes, text] : facts.device.largest)
    largest.push_back(json::Object{{"bytes", bytes}, {"what", text}});
  return largest;
}

static json::Array describeCalls(const PlanFacts &facts) {
  json::Array list;
  for (const auto &[name, calls] : facts.calls)
    list.push_back(json::Object{{"kind", name.first},
                                {"implementation", name.second},
                                {"calls", calls.calls},
                                {"flops", calls.flops}});
  return list;
}

static double getShare(const PlanFacts &facts, int64_t flops) {
  return facts.flops ? static_cast<double>(flops) / static_cast<double>(facts.flops) : 0;
}

static void explainCalls(const PlanFacts &facts, raw_ostream &out) {
  if (facts.calls.empty())
    return;
  out << "Library calls by kind, with what runs them and their part of the operations:\n";
  for (const auto &[name, calls] : facts.calls)
    out << llvm::formatv("  {0,5} {1}  {2}  {3:P1}\n", calls.calls, name.first, name.second,
                         getShare(facts, calls.flops));
}

static json::Object describeKinds(const SpacePeak &peak) {
  json::Object kinds;
  for (auto [kind, bytes] : peak.byKind)
    kinds[kind] = bytes;
  return kinds;
}

json::Object mlir::memopt::describeMisfit(ModuleOp module, ArrayRef<int64_t> budgets,
                                          ArrayRef<int64_t> smallest) {
  json::Object report{{"format", "memopt-plan-report"},
                      {"version", 1},
                      {"fits", false},
                      {"budget_bytes", bySpace(budgets)},
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
  json::Object report{{"format", "memopt-plan-report"},
                      {"version", 1},
                      {"fits", true},
                      {"predicted_peak_bytes", bySpace(facts.planned.getArenaBytes())},
                      {"lower_bound_bytes", bySpace(facts.planned.getLowerBoundBytes())},
                      {"predicted_seconds", facts.seconds},
                      {"machine", facts.machine},
                      {"kernels", facts.kernels},
                      {"library_calls", facts.libraryCalls},
                      {"implementations", describeCalls(facts)},
                      {"recomputed_instructions", facts.clones},
                      {"flops", facts.flops},
                      {"recomputed_flops", facts.cloneFlops},
                      {"packed_masks", facts.packedMasks},
                      {"packed_mask_bytes", facts.packedBytes},
                      {"loop_invariants", facts.invariants},
                      {"loop_invariant_bytes", facts.invariantBytes},
                      {"host_kernels", facts.hostKernels},
                      {"transfer_bytes", facts.transferBytes},
                      {"peak_at", facts.device.at},
                      {"peak_bytes_by_kind", describeKinds(facts.device)},
                      {"host_bytes_by_kind", describeKinds(facts.host)},
                      {"disk_bytes_by_kind", describeKinds(facts.disk)},
                      {"disk_transfer_bytes", facts.diskBytes},
                      {"largest_at_peak", describeLargest(facts)}};
  if (std::optional<json::Value> fusion = describeConvBnEval(planned))
    report["efficient_conv_bn_eval"] = std::move(*fusion);
  return report;
}

static void explainKinds(const SpacePeak &peak, raw_ostream &out) {
  for (auto [kind, bytes] : peak.byKind)
    out << llvm::formatv("  {0,14} bytes  {1}\n", bytes, kind);
}

static void explainHost(const PlanFacts &facts, raw_ostream &out) {
  int64_t arena = facts.planned.getArenaBytesOf(Space::Host);
  if (arena == 0)
    return;
  out << llvm::formatv(
      "It needs {0} bytes of host memory, too; {1} kernels run there, and {2} bytes "
      "are sent in a step. At the peak on the host {3} bytes are alive:\n",
      arena, facts.hostKernels, facts.transferBytes, facts.host.load);
  explainKinds(facts.host, out);
}

static void explainDisk(const PlanFacts &facts, raw_ostream &out) {
  int64_t arena = facts.planned.getArenaBytesOf(Space::Disk);
  if (arena == 0)
    return;
  out << llvm::formatv("It needs {0} bytes on disk; {1} are read and written there in a step, "
                       "through windows of the host. At the peak on disk {2} bytes are alive:\n",
                       arena, facts.diskBytes, facts.disk.load);
  explainKinds(facts.disk, out);
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
  explainCalls(facts, out);
  if (facts.packedMasks)
    out << llvm::formatv("Masks that are kept as bits for the backward pass: {0}, in {1} bytes.\n",
                         facts.packedMasks, facts.packedBytes);
  if (facts.invariants)
    out << llvm::formatv("Values made once in front of the loop over micro-batches, not in each: "
                         "{0}, in {1} bytes.\n",
                         facts.invariants, facts.invariantBytes);
  explainConvBnEval(planned, out);
  explainHost(facts, out);
  explainDisk(facts, out);
  out << llvm::formatv("At the peak{0} {1} bytes are alive:\n",
                       facts.device.at.empty() ? "" : " in " + facts.device.at, facts.device.load);
  explainKinds(facts.device, out);
  out << "Largest among them:\n";
  for (auto &[bytes, what] : facts.device.largest)
    out << llvm::formatv("  {0,14} bytes  {1}\n", bytes, what);
  return text;
}
