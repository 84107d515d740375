//===- Frontier.cpp - the curve of time against bytes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Frontier.h"

#include "OrderProblem.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::memopt;

FailureOr<Frontier> Frontier::compute(ModuleOp module, const BudgetOptions &options, int points) {
  FailureOr<StepModel> step = createOrderableStep(module);
  if (failed(step))
    return failure();
  BudgetSearch search(*step, options);
  FailureOr<BudgetPlan> given = search.getGivenPlan();
  if (failed(given))
    return failure();
  FailureOr<BudgetPlan> smallest = search.findPlan(1);
  if (failed(smallest))
    return failure();
  std::vector<BudgetPlan> found{*smallest, *given};
  for (int point = 1; point + 1 < points; ++point) {
    int64_t budget = smallest->bytes + (given->bytes - smallest->bytes) * point / (points - 1);
    FailureOr<BudgetPlan> plan = search.findPlan(budget);
    if (failed(plan))
      return failure();
    found.push_back(std::move(*plan));
  }
  llvm::sort(found, [](const BudgetPlan &a, const BudgetPlan &b) {
    return std::tie(a.bytes, a.nanoseconds) < std::tie(b.bytes, b.nanoseconds);
  });
  Frontier frontier;
  for (BudgetPlan &plan : found)
    if (frontier.plans.empty() || plan.nanoseconds < frontier.plans.back().nanoseconds)
      frontier.plans.push_back(std::move(plan));
  return frontier;
}

static double overheadOf(const BudgetPlan &plan, ArrayRef<BudgetPlan> plans) {
  return static_cast<double>(plan.nanoseconds) / static_cast<double>(plans.back().nanoseconds) - 1;
}

llvm::json::Object Frontier::toJson() const {
  llvm::json::Array points;
  for (const BudgetPlan &plan : plans)
    points.push_back(llvm::json::Object{{"bytes", plan.bytes},
                                        {"seconds", static_cast<double>(plan.nanoseconds) * 1e-9},
                                        {"recomputed", plan.clones},
                                        {"overhead", overheadOf(plan, plans)}});
  return llvm::json::Object{
      {"format", "memopt-frontier"}, {"version", 1}, {"points", std::move(points)}};
}

std::string Frontier::toText() const {
  std::string text = llvm::formatv("{0,16} {1,14} {2,10} {3,10}\n", "bytes", "ms predicted",
                                   "overhead", "recomputed")
                         .str();
  for (const BudgetPlan &plan : plans)
    text += llvm::formatv("{0,16} {1,14:F3} {2,10:P2} {3,10}\n", plan.bytes,
                          static_cast<double>(plan.nanoseconds) * 1e-6, overheadOf(plan, plans),
                          plan.clones)
                .str();
  return text;
}

std::string Frontier::toSvg() const {
  constexpr double kWidth = 640, kHeight = 400, kMargin = 60;
  double lowBytes = static_cast<double>(plans.front().bytes),
         highBytes = static_cast<double>(plans.back().bytes);
  double lowTime = static_cast<double>(plans.back().nanoseconds),
         highTime = static_cast<double>(plans.front().nanoseconds);
  auto x = [&](const BudgetPlan &plan) {
    return kMargin + (kWidth - 2 * kMargin) * (static_cast<double>(plan.bytes) - lowBytes) /
                         std::max(1.0, highBytes - lowBytes);
  };
  auto y = [&](const BudgetPlan &plan) {
    return kHeight - kMargin -
           (kHeight - 2 * kMargin) * (static_cast<double>(plan.nanoseconds) - lowTime) /
               std::max(1.0, highTime - lowTime);
  };
  std::string line, dots;
  for (const BudgetPlan &plan : plans) {
    line += llvm::formatv("{0:F1},{1:F1} ", x(plan), y(plan)).str();
    dots +=
        llvm::formatv("<circle cx=\"{0:F1}\" cy=\"{1:F1}\" r=\"3\"><title>{2} bytes, {3:F3} "
                      "ms</title></circle>\n",
                      x(plan), y(plan), plan.bytes, static_cast<double>(plan.nanoseconds) * 1e-6)
            .str();
  }
  return llvm::formatv(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
             "font-family=\"sans-serif\" "
             "font-size=\"12\">\n<polyline fill=\"none\" stroke=\"black\" points=\"{2}\"/>\n{3}"
             "<text x=\"{4}\" y=\"{5}\">{6:F2} to {7:F2} MiB of device memory</text>\n"
             "<text x=\"{4}\" y=\"20\">{8:F3} to {9:F3} ms a step, predicted</text>\n</svg>\n",
             kWidth, kHeight, line, dots, kMargin, kHeight - 20, lowBytes / 1048576,
             highBytes / 1048576, lowTime * 1e-6, highTime * 1e-6)
      .str();
}
