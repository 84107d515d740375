//===- FormSearchTest.cpp - searches over forms, with invented plans ------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Search/FormSearch.h"

#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// A step of 8 samples. A sample takes 100 bytes in f32 and 60 in bf16, divided by the number of
/// micro-batches, 20 less in tiles, beside 50 bytes of state, which the host can take. Each sample
/// takes a second, each cut half a second more, state on the host a quarter, tiles two.
class InventedPlanner final : public FormPlanner {
public:
  explicit InventedPlanner(int64_t budget) : budget(budget) {
    options.precision = options.activationDtype = "f32";
  }

  Form getForm() const override { return Form::of(options); }
  const PipelineOptions &getPipelineOptions() const override { return options; }
  FailureOr<int64_t> getExportedBatch() override { return int64_t(8); }

  Trial tryForm(const Form &form, double worthSeconds) override {
    ++trials;
    int64_t samples = form.batch ? form.batch : 8;
    int64_t each = (form.precision == "bf16" ? 60 : 100) - (form.tilesLayers ? 20 : 0);
    bool isOnHost = form.offloadOptimizer == OffloadTier::Host;
    Trial trial;
    trial.form = form;
    trial.bytes = samples * each / form.microBatches + (isOnHost ? 0 : 50);
    trial.seconds = trial.leastSeconds = double(samples) + 0.5 * double(form.microBatches - 1) +
                                         (isOnHost ? 0.25 : 0) + (form.tilesLayers ? 2 : 0);
    trial.isHopeless = trial.leastSeconds >= worthSeconds;
    if (!trial.isHopeless && trial.bytes > budget) {
      trial.code = StatusCode::DoesNotFit;
      trial.message = "needs " + std::to_string(trial.bytes);
      trial.remarks = "note: of " + std::to_string(trial.bytes) + "\n";
    }
    if (form.microBatches > mostCuts) {
      trial.code = StatusCode::BadInput;
      trial.message = "mixes samples";
    }
    return trial;
  }

  Trial tryOptions(llvm::function_ref<void(PipelineOptions &)>, double) override { return {}; }

  PipelineOptions options;
  int64_t budget, mostCuts = 8;
  int trials = 0;
};

SearchResult choose(InventedPlanner &planner, const FormChoices &choices) {
  return chooseForm(planner, choices, llvm::nulls());
}

TEST(FormSearchTest, WhatFitsAsItIsIsTaken) {
  InventedPlanner planner(850);
  SearchResult result = choose(planner, {});
  ASSERT_EQ(result.code, StatusCode::Ok);
  EXPECT_EQ(result.best.form.microBatches, 1);
  EXPECT_EQ(planner.trials, 1);
  EXPECT_NE(result.remark.find("chose nothing more: 850 bytes"), std::string::npos)
      << result.remark;
}

TEST(FormSearchTest, TheFewestCutsThatFitAreTaken) {
  InventedPlanner planner(849);
  FormChoices choices;
  choices.accumulate = true;
  SearchResult result = choose(planner, choices);
  ASSERT_EQ(result.code, StatusCode::Ok);
  EXPECT_EQ(result.best.form.microBatches, 2);
  EXPECT_EQ(result.best.bytes, 450);
}

TEST(FormSearchTest, AMoreExpensiveFormIsNotPlannedOnceACheaperOneFits) {
  // On the host the step is 8.25 s long, in two parts 8.5 s: the latter cannot win.
  InventedPlanner planner(800);
  FormChoices choices;
  choices.accumulate = choices.offload = choices.searchesPlacements = choices.hasHost = true;
  SearchResult result = choose(planner, choices);
  ASSERT_EQ(result.code, StatusCode::Ok);
  EXPECT_EQ(result.best.form.offloadOptimizer, OffloadTier::Host);
  EXPECT_EQ(result.best.form.microBatches, 1);
}

TEST(FormSearchTest, LayersAreTiledWhereThatIsWhatFits) {
  InventedPlanner planner(690);
  FormChoices choices;
  choices.tile = true;
  SearchResult result = choose(planner, choices);
  ASSERT_EQ(result.code, StatusCode::Ok);
  EXPECT_TRUE(result.best.form.tilesLayers);
  EXPECT_NE(result.remark.find("chose --tile=all:1024: 690 bytes"), std::string::npos)
      << result.remark;
  PipelineOptions options;
  result.best.form.apply(options);
  EXPECT_TRUE(Form::of(options).tilesLayers);

  InventedPlanner roomy(850);
  EXPECT_FALSE(choose(roomy, choices).best.form.tilesLayers);
}

/// The largest two of four activations of 100 bytes are what a plan would narrow; recomputing each
/// byte above the budget takes 10 ms, narrowing an activation 0.1 s and halves it.
class NarrowingPlanner final : public FormPlanner {
public:
  explicit NarrowingPlanner(int64_t budget) : budget(budget) {
    options.precision = options.activationDtype = "f32";
  }

  Form getForm() const override { return Form::of(options); }
  const PipelineOptions &getPipelineOptions() const override { return options; }
  FailureOr<int64_t> getExportedBatch() override { return int64_t(8); }

  Trial tryForm(const Form &form, double worthSeconds) override {
    forms.push_back(form);
    bool isNarrow = form.activationDtype != "f32";
    auto narrowed =
        static_cast<int64_t>(isNarrow && form.activations.empty() ? 4 : form.activations.size());
    int64_t above = std::max<int64_t>(0, 400 - 50 * narrowed - budget);
    Trial trial;
    trial.form = form;
    trial.bytes = 400 - 50 * narrowed - above;
    trial.leastSeconds = 10 + 0.1 * double(narrowed);
    trial.seconds = trial.leastSeconds + 0.01 * double(above);
    trial.isHopeless = trial.leastSeconds >= worthSeconds;
    // Each plan has an eye for one activation at a time.
    if (above > 0 && narrowed < 4)
      trial.chosenActivations = {3 - narrowed};
    return trial;
  }
  Trial tryOptions(llvm::function_ref<void(PipelineOptions &)>, double) override { return {}; }

  PipelineOptions options;
  int64_t budget;
  std::vector<Form> forms;
};

TEST(FormSearchTest, SingleActivationsAreNarrowedThatAPlanChooses) {
  FormChoices choices;
  choices.activations = true;
  // 100 bytes too many: two activations do, which the plans name one after the other.
  NarrowingPlanner planner(300);
  SearchResult result = chooseForm(planner, choices, llvm::nulls());
  ASSERT_EQ(result.code, StatusCode::Ok);
  EXPECT_EQ(result.best.form.activationDtype, "bf16");
  EXPECT_EQ(result.best.form.activations, (std::vector<int64_t>{2, 3}));
  EXPECT_NE(result.remark.find("chose --activation-dtype=bf16 (2 chosen by the plan): 300 bytes"),
            std::string::npos)
      << result.remark;
  PipelineOptions options;
  result.best.form.apply(options);
  EXPECT_EQ(Form::of(options).activations, result.best.form.activations);
}

TEST(FormSearchTest, WhatFitsWideIsNotNarrowed) {
  FormChoices choices;
  choices.activations = true;
  NarrowingPlanner planner(400);
  SearchResult result = chooseForm(planner, choices, llvm::nulls());
  ASSERT_EQ(result.code, StatusCode::Ok);
  EXPECT_EQ(result.best.form.activationDtype, "f32");
  for (const Form &form : planner.forms)
    EXPECT_TRUE(form.activations.empty());
}

TEST(FormSearchTest, WhatIsNotAllowedIsSaidBesideTheSmallestPlan) {
  InventedPlanner planner(400);
  SearchResult result = choose(planner, {});
  EXPECT_EQ(result.code, StatusCode::DoesNotFit);
  EXPECT_EQ(result.smallestBytes, 850);
  EXPECT_EQ(result.remarks, "note: of 850\n");
  EXPECT_EQ(result.message,
            "needs 850; not allowed by --auto: accumulate, precision, batch, offload, tile");
}

TEST(FormSearchTest, ABatchThatCannotBeCutIsNoEndOfTheSearch) {
  InventedPlanner planner(600);
  planner.mostCuts = 1;
  FormChoices choices;
  choices.accumulate = choices.precision = true;
  SearchResult result = choose(planner, choices);
  ASSERT_EQ(result.code, StatusCode::Ok);
  EXPECT_EQ(result.best.form.precision, "bf16");
  EXPECT_NE(result.remark.find("not cut into micro-batches: mixes samples"), std::string::npos);
}

TEST(FormSearchTest, TheBatchIsLoweredLast) {
  InventedPlanner planner(400);
  FormChoices choices;
  choices.batch = true;
  SearchResult result = choose(planner, choices);
  ASSERT_EQ(result.code, StatusCode::Ok);
  EXPECT_EQ(result.best.form.batch, 3);
}

TEST(FormSearchTest, TheLargestBatchIsClosedInOn) {
  InventedPlanner planner(1000);
  std::string lines;
  llvm::raw_string_ostream progress(lines);
  SearchResult result = findLargestBatch(planner, progress);
  ASSERT_EQ(result.code, StatusCode::Ok);
  EXPECT_EQ(result.best.form.batch, 9);
  EXPECT_EQ(result.remark, "the largest batch is 9; with 10 samples: needs 1050");
  EXPECT_NE(lines.find("batch of 16 does not fit\n"), std::string::npos) << lines;
}

TEST(FormSearchTest, ASingleSampleThatDoesNotFitNamesTheSmallestBudget) {
  InventedPlanner planner(100);
  SearchResult result = findLargestBatch(planner, llvm::nulls());
  EXPECT_EQ(result.code, StatusCode::DoesNotFit);
  EXPECT_EQ(result.smallestBytes, 150);
}
} // namespace
