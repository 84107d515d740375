//===- PlanPage.cpp - a plan as a page for browsers -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The page is plan-page.html with the facts of one plan or several in the place of one word. It
// draws what it is given; what a plan's numbers mean is decided here.
//
//===----------------------------------------------------------------------===//

#include "memopt/Report/PlanPage.h"

#include "memopt/Analysis/CostModel.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Report/PlanReport.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::memopt;
namespace json = llvm::json;

static constexpr llvm::StringLiteral kPage =
#include "PlanPage.inc"
    ;
static constexpr llvm::StringLiteral kPlace = "/*PLAN*/null";

/// Offsets of an instruction are those of its tensors, then those of its workspaces.
static std::optional<int64_t> getOffset(const KernelGraph &graph, Buffer buffer) {
  if (buffer.kind == Buffer::Kind::Variable)
    return buffer.variable.getOffset();
  if (buffer.kind == Buffer::Kind::Workspace) {
    auto instruction = cast<InstructionOpInterface>(buffer.op);
    ArrayRef<int64_t> offsets = instruction.getOffsetsAttr().asArrayRef();
    return offsets.take_back(instruction.getWorkspaces().size())[buffer.number];
  }
  FailureOr<int64_t> offset = graph.getOffset(buffer.value);
  return succeeded(offset) ? std::optional(*offset) : std::nullopt;
}

static StringRef getModule(Buffer buffer) {
  if (buffer.kind == Buffer::Kind::Variable)
    return buffer.variable.getOf().value_or(buffer.variable.getSymName());
  return buffer.op ? getModulePath(buffer.op->getLoc()) : StringRef();
}

/// A result that takes over another's bytes counts from where that one ends, for both are alive
/// while they change hands.
static json::Array describeBuffers(const KernelGraph &graph) {
  json::Array buffers;
  ArrayRef<int32_t> taken = graph.getBuffersInPlace();
  for (auto [index, buffer] : llvm::enumerate(graph.getBuffers())) {
    json::Object object{
        {"what", buffer.describe()},
        {"kind", getKindName(buffer)},
        {"module", getModule(buffer)},
        {"space", stringifySpace(buffer.space)},
        {"bytes", buffer.bytes},
        {"begin", buffer.begin},
        {"counted_from", taken[index] < 0 ? buffer.begin : graph.getBuffers()[taken[index]].end},
        {"end", buffer.end}};
    if (std::optional<int64_t> offset = getOffset(graph, buffer))
      object["offset"] = *offset;
    buffers.push_back(std::move(object));
  }
  return buffers;
}

static json::Array describeInstructions(const KernelGraph &graph, const CostModel &costs) {
  json::Array instructions;
  for (auto [index, op] : llvm::enumerate(graph.getInstructions())) {
    auto instruction = cast<InstructionOpInterface>(op);
    instructions.push_back(
        json::Object{{"name", instruction.getKindName() + "." + std::to_string(index)},
                     {"kind", instruction.getKindName()},
                     {"module", getModulePath(op->getLoc())},
                     {"phase", stringifyPhase(instruction.getPhase())},
                     {"clone", instruction.getClone() != 0},
                     {"runs", getRuns(op)},
                     {"flops", instruction.getFlops()},
                     {"seconds", costs.getSeconds(op)}});
  }
  return instructions;
}

/// Operations a second of matrix products so large that nothing else counts.
static double getMatmulRate(ModuleOp module) {
  Work work;
  work.workClass = WorkClass::Matmul;
  work.operations = 1e18;
  return work.operations / getTarget(module).getCostFunction()(work);
}

static json::Object describeBudgets(const PlanPageOptions &options) {
  json::Object budgets;
  for (auto [space, bytes] : llvm::enumerate(options.budgets))
    if (bytes >= 0)
      budgets[stringifySpace(static_cast<Space>(space))] = bytes;
  return budgets;
}

/// JSON inside of a script: a '<' stands in texts alone, and would begin markup there.
static std::string toScript(json::Object facts) {
  std::string script;
  for (char c : llvm::formatv("{0}", json::Value(std::move(facts))).str())
    c == '<' ? script += "\\u003c" : script += c;
  return script;
}

static json::Object describeProgram(ModuleOp planned, const PlanPageOptions &options) {
  StepModel step = *StepModel::create(planned);
  KernelGraph graph(step.getFunction());
  json::Object facts{{"title", options.title},
                     {"report", describePlan(planned)},
                     {"budgets", describeBudgets(options)},
                     {"micro_batches", options.microBatches},
                     {"matmul_rate", getMatmulRate(planned)},
                     {"instructions", describeInstructions(graph, CostModel(planned))},
                     {"buffers", describeBuffers(graph)}};
  if (options.frontier)
    facts["frontier"] = json::Object(*options.frontier);
  if (options.techniques)
    facts["techniques"] = json::Array(*options.techniques);
  return facts;
}

std::string mlir::memopt::makePlanPage(ArrayRef<PlanPageProgram> programs) {
  json::Array plans;
  for (const PlanPageProgram &program : programs) {
    json::Object facts = describeProgram(program.planned, program.options);
    facts["name"] = program.name;
    plans.push_back(std::move(facts));
  }
  auto [before, after] = kPage.split(kPlace);
  return (before + toScript(json::Object{{"programs", std::move(plans)}}) + after).str();
}
