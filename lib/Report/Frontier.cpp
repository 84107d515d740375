//===- Frontier.cpp - the curve of time against bytes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Report/Frontier.h"

#include "memopt/Transforms/Memory/OrderProblem.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;

FailureOr<Frontier> Frontier::compute(ModuleOp module, const BudgetOptions &options, int points) {
  FailureOr<StepModel> step = createPlannableStep(module);
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

namespace {
/// Values from `low` to `high` on a straight line of a picture, from one place to another.
struct Axis {
  double low, high, from, to;

  double place(double value) const {
    return from + (to - from) * (value - low) / std::max(high - low, 1e-12);
  }

  /// About five round values: 1, 2 or 5 times a power of ten apart.
  SmallVector<double> getTicks() const {
    double rough = std::max(high - low, 1e-12) / 5,
           step = std::pow(10, std::floor(std::log10(rough)));
    for (double factor : {2.0, 5.0, 10.0})
      if (step < rough)
        step = factor * std::pow(10, std::floor(std::log10(rough)));
    SmallVector<double> ticks;
    for (double tick = std::ceil(low / step) * step; tick <= high + step * 1e-9; tick += step)
      ticks.push_back(tick);
    return ticks;
  }
};
} // namespace

static constexpr double kWidth = 680, kHeight = 420, kLeft = 80, kRight = 30, kTop = 40,
                        kBottom = 60;

static std::string printTick(double tick) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.6g", tick);
  return text;
}

static std::string drawAxes(const Axis &mebibytes, const Axis &milliseconds) {
  std::string text;
  for (double tick : mebibytes.getTicks())
    text += llvm::formatv("<path stroke=\"#ddd\" d=\"M{0:F1} {1}V{2}\"/><text x=\"{0:F1}\" "
                          "y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
                          mebibytes.place(tick), kTop, kHeight - kBottom, kHeight - kBottom + 18,
                          printTick(tick))
                .str();
  for (double tick : milliseconds.getTicks())
    text += llvm::formatv("<path stroke=\"#ddd\" d=\"M{0} {1:F1}H{2}\"/><text x=\"{3}\" "
                          "y=\"{4:F1}\" text-anchor=\"end\">{5}</text>\n",
                          kLeft, milliseconds.place(tick), kWidth - kRight, kLeft - 6,
                          milliseconds.place(tick) + 4, printTick(tick))
                .str();
  return text;
}

std::string Frontier::toSvg() const {
  auto mebibytesOf = [](const BudgetPlan &plan) { return double(plan.bytes) / 1048576; };
  auto millisecondsOf = [](const BudgetPlan &plan) { return double(plan.nanoseconds) * 1e-6; };
  Axis x{mebibytesOf(plans.front()), mebibytesOf(plans.back()), kLeft + 10, kWidth - kRight - 10};
  Axis y{millisecondsOf(plans.back()), millisecondsOf(plans.front()), kHeight - kBottom - 10,
         kTop + 10};
  std::string line, dots;
  for (const BudgetPlan &plan : plans) {
    double right = x.place(mebibytesOf(plan)), down = y.place(millisecondsOf(plan));
    line += llvm::formatv("{0:F1},{1:F1} ", right, down).str();
    dots += llvm::formatv("<circle cx=\"{0:F1}\" cy=\"{1:F1}\" r=\"4\" fill=\"#4878a8\"><title>{2} "
                          "bytes, {3:F3} ms, {4} instructions run again</title></circle>\n",
                          right, down, plan.bytes, millisecondsOf(plan), plan.clones)
                .str();
  }
  return llvm::formatv(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" "
             "fill=\"white\"/>\n<text x=\"{2}\" y=\"22\" font-size=\"15\">Predicted step time "
             "against device memory</text>\n{3}<polyline fill=\"none\" stroke=\"#4878a8\" "
             "stroke-width=\"2\" points=\"{4}\"/>\n{5}<text x=\"{6}\" y=\"{7}\" "
             "text-anchor=\"middle\">MiB</text>\n<text x=\"{8}\" y=\"{9}\">ms a "
             "step</text>\n</svg>\n",
             kWidth, kHeight, kLeft, drawAxes(x, y), line, dots, (kLeft + kWidth - kRight) / 2,
             kHeight - 18, 14, kTop - 4)
      .str();
}
