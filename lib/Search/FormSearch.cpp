//===- FormSearch.cpp - what meets a budget -----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A form is planned as it would be compiled; nothing is estimated. So a search takes as many
// seconds as there are forms times those of one plan, less those that cannot win: what a form's
// instructions take if nothing is recomputed or waited for is known before it is planned.
//
//===----------------------------------------------------------------------===//

#include "memopt/Search/FormSearch.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <limits>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// The largest batch
//===----------------------------------------------------------------------===//

namespace {
/// The largest batch that fits and the least that does not; 0 for none.
struct Bound {
  StatusCode code = StatusCode::Ok;
  Trial fits, misses;
};
} // namespace

/// Doubles the batch until a plan is over the budget, and closes in between: a larger batch never
/// needs less. Micro-batches have whole samples.
static Bound bisectBatch(FormPlanner &planner, Form form, int64_t most,
                         llvm::raw_ostream &progress) {
  int64_t unit = form.microBatches, fits = 0, misses = most + 1, size = 1;
  Bound bound;
  while (fits + 1 < misses) {
    form.batch = size * unit;
    Trial trial = planner.tryForm(form);
    if (trial.isRefused()) {
      bound.code = trial.code;
      bound.misses = std::move(trial);
      return bound;
    }
    bool isFine = trial.code == StatusCode::Ok;
    progress << "batch of " << form.batch << (isFine ? " fits\n" : " does not fit\n");
    (isFine ? fits : misses) = size;
    (isFine ? bound.fits : bound.misses) = std::move(trial);
    size = misses > most ? std::min(2 * fits, most) : fits + (misses - fits) / 2;
  }
  bound.code = fits ? StatusCode::Ok : StatusCode::DoesNotFit;
  return bound;
}

SearchResult mlir::memopt::findLargestBatch(FormPlanner &planner, llvm::raw_ostream &progress) {
  constexpr int64_t most = 1 << 20;
  Bound bound = bisectBatch(planner, planner.getForm(), most, progress);
  SearchResult result;
  result.code = bound.code;
  if (bound.code != StatusCode::Ok) {
    result.message = bound.misses.message;
    result.smallestBytes = bound.misses.bytes;
    result.remarks = std::move(bound.misses.remarks);
    return result;
  }
  result.remark = "the largest batch is " + std::to_string(bound.fits.form.batch);
  if (!bound.misses.message.empty())
    result.remark +=
        "; with " + std::to_string(bound.misses.form.batch) + " samples: " + bound.misses.message;
  result.best = std::move(bound.fits);
  return result;
}

//===----------------------------------------------------------------------===//
// The cheapest form
//===----------------------------------------------------------------------===//

/// A form is worth its planning where it may take less than this of the best one's time.
static constexpr double kWorthwhile = 0.99, kAnyTime = std::numeric_limits<double>::infinity();

static std::string describe(const Trial &trial) {
  return llvm::formatv("{0} bytes and {1:f3} ms a step", trial.bytes, trial.seconds * 1e3).str();
}

namespace {
/// The forms that the command line allows, planned.
class FormSearch {
public:
  FormSearch(FormPlanner &planner, const FormChoices &allowed, llvm::raw_ostream &progress)
      : planner(planner), allowed(allowed), progress(progress), given(planner.getForm()) {}

  SearchResult run() {
    SearchResult result;
    result.code = search();
    if (result.code == StatusCode::Ok) {
      result.remark = explain();
      result.best = std::move(*best);
      return result;
    }
    bool isMisfit = result.code == StatusCode::DoesNotFit;
    result.message = isMisfit ? smallest.message + getForbidden() : failure;
    if (isMisfit) {
      result.smallestBytes = smallest.bytes;
      result.remarks = smallest.remarks;
    }
    return result;
  }

private:
  StatusCode search() {
    for (const std::string &precision : getPrecisions())
      for (const std::string &activations : getActivations())
        for (const Form &placed : getPlacements())
          for (bool tilesLayers : getTiles())
            if (StatusCode code = tryCuts(placed, precision, activations, tilesLayers);
                code != StatusCode::Ok)
              return code;
    if (allowed.activations && best && paysForBytes(*best))
      if (StatusCode code = narrowChosen(); code != StatusCode::Ok)
        return code;
    if (!best && allowed.batch)
      if (StatusCode code = lowerBatch(); code != StatusCode::Ok)
        return code;
    return best ? StatusCode::Ok : StatusCode::DoesNotFit;
  }

  llvm::SmallVector<std::string> getPrecisions() const {
    if (allowed.precision)
      return {given.precision, "bf16"};
    return {given.precision};
  }

  /// Types of kept activations.
  llvm::SmallVector<std::string> getActivations() const {
    if (allowed.activations)
      return {given.activationDtype, allowed.activationDtype};
    return {given.activationDtype};
  }

  /// Whether wide layers run tile by tile: their inner values are made twice then.
  llvm::SmallVector<bool> getTiles() const {
    if (allowed.tile && !given.tilesLayers)
      return {false, true};
    return {given.tilesLayers};
  }

  /// The form at hand, and with optimizer state, and parameters too, on the host or on disk, as far
  /// as there is room. What takes longer comes later.
  llvm::SmallVector<Form> getPlacements() const {
    llvm::SmallVector<Form> forms = {given};
    if (!allowed.searchesPlacements)
      return forms;
    auto add = [&](OffloadTier optimizer, OffloadTier parameters) {
      forms.push_back(given);
      forms.back().offloadOptimizer = optimizer;
      forms.back().offloadParam = parameters;
    };
    bool hasHost = allowed.hasHost || !allowed.hasDisk;
    for (OffloadTier parameters : {OffloadTier::None, OffloadTier::Host})
      if (hasHost)
        add(OffloadTier::Host, parameters);
    for (OffloadTier parameters : {OffloadTier::None, OffloadTier::Host, OffloadTier::Disk})
      if (allowed.hasDisk && (hasHost || parameters != OffloadTier::Host))
        add(OffloadTier::Disk, parameters);
    return forms;
  }

  /// Numbers of micro-batches with whole samples, the least first.
  llvm::SmallVector<int64_t> getCuts() {
    llvm::SmallVector<int64_t> cuts = {given.microBatches};
    if (!allowed.accumulate)
      return cuts;
    FailureOr<int64_t> batch =
        given.batch ? FailureOr<int64_t>(given.batch) : planner.getExportedBatch();
    for (int64_t parts = 2; llvm::succeeded(batch) && parts <= *batch; ++parts)
      if (*batch % parts == 0)
        cuts.push_back(parts);
    return cuts;
  }

  /// More micro-batches need fewer bytes and more time: the first that fit without saving time are
  /// the last that are tried.
  StatusCode tryCuts(Form form, const std::string &precision, const std::string &activations,
                     bool tilesLayers) {
    form.precision = precision;
    form.activationDtype = activations;
    form.tilesLayers = tilesLayers;
    for (int64_t parts : getCuts()) {
      form.microBatches = parts;
      Trial trial = planner.tryForm(form, best ? kWorthwhile * best->seconds : kAnyTime);
      if (trial.isHopeless) {
        hopeless.push_back(std::move(trial.form));
        return StatusCode::Ok;
      }
      if (trial.code == StatusCode::BadInput && parts > 1) {
        refusal = trial.message; // this model's batch cannot be cut
        return StatusCode::Ok;
      }
      if (trial.isRefused()) {
        failure = trial.message;
        return trial.code;
      }
      bool isBetter = note(std::move(trial));
      if (trials.back().code == StatusCode::Ok && !isBetter)
        return StatusCode::Ok;
    }
    return StatusCode::Ok;
  }

  /// Whether narrowing some activations could make the best form faster: it narrows all of them, or
  /// recomputes.
  bool paysForBytes(const Trial &trial) const {
    return trial.form.activationDtype != given.activationDtype ||
           trial.leastSeconds < kWorthwhile * trial.seconds;
  }

  /// Narrows the activations of the best form that a plan would narrow beside what it recomputes:
  /// the others need no casts, and their gradients round nothing. The plan of what comes of it may
  /// narrow more.
  StatusCode narrowChosen() {
    constexpr int mostRounds = 3;
    Form form = best->form;
    form.activationDtype = given.activationDtype;
    auto known = llvm::find_if(trials, [&](const Trial &trial) { return trial.form == form; });
    Trial trial = known == trials.end() ? planner.tryForm(form) : *known;
    for (int round = 0; round < mostRounds && !trial.chosenActivations.empty(); ++round) {
      form.activationDtype = allowed.activationDtype;
      llvm::append_range(form.activations, trial.chosenActivations);
      llvm::sort(form.activations);
      trial = planner.tryForm(form, best->seconds);
      if (trial.isHopeless)
        return StatusCode::Ok;
      if (!trial.isRefused())
        note(trial);
    }
    if (trial.isRefused())
      failure = trial.message;
    return trial.isRefused() ? trial.code : StatusCode::Ok;
  }

  /// The last resort, for it changes what is trained: fewer samples a step, one at a time where
  /// accumulation is allowed.
  StatusCode lowerBatch() {
    FailureOr<int64_t> batch = planner.getExportedBatch();
    if (llvm::failed(batch))
      return StatusCode::Ok;
    Form form = getPlacements().back();
    form.precision = getPrecisions().back();
    form.activationDtype = getActivations().back();
    form.tilesLayers = getTiles().back();
    Bound bound = bisectBatch(planner, form, *batch, progress);
    if (bound.code == StatusCode::Ok)
      note(std::move(bound.fits));
    failure = bound.misses.message;
    return bound.code == StatusCode::DoesNotFit ? StatusCode::Ok : bound.code;
  }

  /// Whether the trial is the best so far.
  bool note(Trial trial) {
    trials.push_back(trial);
    trials.back().planned.reset(); // only the best is compiled
    if (smallest.message.empty() || trial.bytes < smallest.bytes)
      smallest = trials.back();
    if (trial.code != StatusCode::Ok || (best && best->seconds <= trial.seconds))
      return false;
    best = std::move(trial);
    return true;
  }

  std::string getForbidden() const {
    std::string text;
    for (auto [name, isAllowed] : {std::pair<const char *, bool>{"recompute", allowed.recompute},
                                   {"accumulate", allowed.accumulate},
                                   {"precision", allowed.precision},
                                   {"batch", allowed.batch},
                                   {"offload", allowed.offload},
                                   {"tile", allowed.tile}})
      if (!isAllowed)
        text += (text.empty() ? "; not allowed by --auto: " : ", ") + std::string(name);
    return text + (refusal.empty() ? "" : "; not cut into micro-batches: " + refusal);
  }

  /// The options that say what a form has more than the command line.
  std::string getChoice(const Form &form) const {
    std::string text;
    if (form.microBatches != given.microBatches)
      text += " --micro-batches=" + std::to_string(form.microBatches);
    if (form.tilesLayers != given.tilesLayers)
      text += llvm::formatv(" --tile={0}:{1}", kAllLayers, kMostParts).str();
    if (form.precision != given.precision)
      text += " --precision=" + form.precision;
    if (form.activationDtype != given.activationDtype)
      text += " --activation-dtype=" + form.activationDtype + getChosen(form);
    if (form.offloadOptimizer != given.offloadOptimizer)
      text += (" --offload-optimizer=" + stringifyOffloadTier(form.offloadOptimizer)).str();
    if (form.offloadParam != given.offloadParam)
      text += (" --offload-param=" + stringifyOffloadTier(form.offloadParam)).str();
    if (form.batch != given.batch)
      text += " --batch=" + std::to_string(form.batch);
    return text.empty() ? " nothing more" : text;
  }

  static std::string getChosen(const Form &form) {
    return form.activations.empty()
               ? ""
               : " (" + std::to_string(form.activations.size()) + " chosen by the plan)";
  }

  std::string explain() const {
    std::string text;
    llvm::raw_string_ostream out(text);
    out << "chose" << getChoice(best->form) << ": " << describe(*best);
    const Trial *next = nullptr;
    for (const Trial &trial : trials)
      if (trial.code == StatusCode::Ok && trial.bytes < best->bytes &&
          (!next || trial.seconds < next->seconds))
        next = &trial;
    if (next)
      out << "; fewer bytes:" << getChoice(next->form) << ", " << describe(*next);
    for (auto [number, form] : llvm::enumerate(hopeless))
      out << (number ? "," : "; not planned, for they cannot be 1 % faster:") << getChoice(form);
    out << getForbidden();
    return text;
  }

  FormPlanner &planner;
  const FormChoices &allowed;
  llvm::raw_ostream &progress;
  Form given;
  std::vector<Trial> trials;
  std::vector<Form> hopeless;
  std::optional<Trial> best;
  Trial smallest{};
  std::string refusal; ///< why the batch is not cut
  std::string failure; ///< what ended the search
};
} // namespace

SearchResult mlir::memopt::chooseForm(FormPlanner &planner, const FormChoices &choices,
                                      llvm::raw_ostream &progress) {
  return FormSearch(planner, choices, progress).run();
}
