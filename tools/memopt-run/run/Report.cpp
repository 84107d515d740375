//===- Report.cpp - what a run tells --------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/run/Report.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/Files.h"
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <sys/ioctl.h>
#include <tuple>
#include <unistd.h>

using namespace memopt;
using nlohmann::ordered_json;

/// The one whose line on the terminal is not ended, if any.
static Progress *drawing = nullptr;

void memopt::notice(const std::string &text) {
  if (drawing)
    drawing->finish();
  std::fprintf(stderr, "memopt-run: %s\n", text.c_str());
}

static int64_t getResidentBytes() {
  long long size = 0, resident = 0;
  if (FILE *file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%lld %lld", &size, &resident) != 2)
      resident = 0;
    std::fclose(file);
  }
  return resident * ::sysconf(_SC_PAGESIZE);
}

static bool hasOwnMemory(const Session &session) {
  return !session.getManifest().target.image.empty();
}

Status RunReport::measureOverhead(const ProgramSet &set) {
  const Session &session = set.first();
  overheadBytes = std::max<int64_t>(0, getResidentBytes() - session.getResidentArenaBytes());
  MEMOPT_ASSIGN_OR_RETURN(deviceOverhead, set.measureDeviceOverhead());
  int64_t planned = session.getManifest().target.overheadBytes, total = deviceOverhead.getTotal();
  if (planned && total > planned)
    notice("note: the device holds " + std::to_string(total) + " bytes beside the arena, " +
           std::to_string(planned) +
           " were planned; say so in the device's description, as \"overhead_bytes\"");
  return Status::ok();
}

/// On the cpu the heap is the device's memory.
static BytesBySpace getUsedBytesOfOne(const Session &session) {
  BytesBySpace used = session.getUsedPeakBytes();
  used[hasOwnMemory(session) ? MEMOPT_SPACE_HOST : MEMOPT_SPACE_DEVICE] +=
      session.getAllocations().bytes;
  return used;
}

static void raise(BytesBySpace &bytes, const BytesBySpace &others) {
  for (size_t space = 0; space < bytes.size(); ++space)
    bytes[space] = std::max(bytes[space], others[space]);
}

BytesBySpace RunReport::getUsedPeakBytes(const Session &session) const {
  BytesBySpace used = getUsedBytesOfOne(session);
  for (const ProgramFacts &program : programs)
    raise(used, program.usedPeakBytes);
  used[MEMOPT_SPACE_DEVICE] += std::max<int64_t>(0, deviceOverhead.steps);
  return used;
}

void RunReport::notePrograms(const ProgramSet &set) {
  if (set.first().getManifest().programs.empty())
    return;
  for (size_t number = 0; number < set.count(); ++number) {
    const Session &session = set[number];
    const Manifest &manifest = session.getManifest();
    ProgramFacts facts{session.getPackage().getName(),
                       manifest.mode,
                       {},
                       manifest.predictedPeakBytes,
                       getUsedBytesOfOne(session),
                       stepsOf[&session],
                       session.getAllocations().count.load()};
    for (const InputSpec &input : manifest.inputs)
      facts.shapes.emplace_back(input.name, input.shape);
    programs.push_back(std::move(facts));
  }
}

BytesBySpace RunReport::getPredictedPeakBytes(const Session &session) const {
  BytesBySpace predicted = session.getManifest().predictedPeakBytes;
  for (const ProgramFacts &program : programs)
    raise(predicted, program.predictedPeakBytes);
  return predicted;
}

int64_t RunReport::countAllocations(const Session &session) const {
  int64_t count = programs.empty() ? session.getAllocations().count.load() : 0;
  for (const ProgramFacts &program : programs)
    count += program.allocations;
  return count;
}

static ordered_json toJson(const DeviceOverhead &overhead) {
  return {{"context", overhead.context},
          {"modules", overhead.modules},
          {"library_calls", overhead.libraryCalls},
          {"ranks", overhead.ranks},
          {"graphs", overhead.graphs},
          {"steps", overhead.steps}};
}

/// "device memory beside the arena: context 3145728, modules 65536, ... bytes; 0 were planned"
static std::string describe(const DeviceOverhead &overhead, int64_t planned) {
  std::string text;
  ordered_json parts = toJson(overhead);
  for (const auto &[name, bytes] : parts.items())
    text += (text.empty() ? "" : ", ") + name + " " + bytes.dump();
  return "device memory beside the arena: " + text + "; " + std::to_string(overhead.getTotal()) +
         " bytes of " + std::to_string(planned) + " planned\n";
}

static ordered_json toJson(const BytesBySpace &bytes) {
  ordered_json result;
  for (int space = 0; space < countedSpaces; ++space)
    result[getSpaceName(space)] = bytes[size_t(space)];
  return result;
}

Status RunReport::gather(const Session &session, Communicator *communicator) {
  if (!communicator)
    return Status::ok();
  RankFacts mine{getPredictedPeakBytes(session), getUsedPeakBytes(session),
                 countAllocations(session)};
  ranks.resize(size_t(communicator->getRanks()));
  return communicator->exchange(&mine, sizeof mine, ranks.data());
}

static ordered_json toJson(const RankFacts &rank, bool isMemoryChecked) {
  ordered_json result = {{"predicted_peak_bytes", toJson(rank.predictedPeakBytes)}};
  if (isMemoryChecked)
    result["used_peak_bytes"] = toJson(rank.usedPeakBytes);
  result["hot_path_allocations"] = rank.allocations;
  return result;
}

static ordered_json toJson(const ProgramFacts &program, bool isMemoryChecked) {
  ordered_json shapes = ordered_json::object();
  for (const auto &[name, shape] : program.shapes)
    shapes[name] = shape;
  ordered_json result = {{"name", program.name},
                         {"kind", program.kind},
                         {"shapes", shapes},
                         {"predicted_peak_bytes", toJson(program.predictedPeakBytes)},
                         {"steps", program.steps}};
  if (isMemoryChecked)
    result["used_peak_bytes"] = toJson(program.usedPeakBytes);
  return result;
}

Status RunReport::write(const std::string &path, const Session &session,
                        bool isMemoryChecked) const {
  const Manifest &manifest = session.getManifest();
  ordered_json report = {{"format", "memopt-run-report"},
                         {"version", 1},
                         {"losses", losses}, // a loss that is not finite becomes null
                         {"step_seconds", stepSeconds},
                         {"data_seconds", dataSeconds},
                         {"compile_seconds", compileSeconds},
                         {"predicted_peak_bytes", toJson(getPredictedPeakBytes(session))}};
  if (isMemoryChecked)
    report["used_peak_bytes"] = toJson(getUsedPeakBytes(session));
  report["hot_path_allocations"] = countAllocations(session);
  report["overhead_bytes"] = {{"device", deviceOverhead.getTotal()}, {"host", overheadBytes}};
  if (hasOwnMemory(session))
    report["device_overhead_bytes"] = toJson(deviceOverhead);
  for (const ProgramFacts &program : programs)
    report["programs"].push_back(toJson(program, isMemoryChecked));
  for (const RankFacts &rank : ranks)
    report["per_rank"].push_back(toJson(rank, isMemoryChecked));
  if (const std::optional<ConvBnEvalSpec> &fusion = manifest.convBnEval) {
    ordered_json refused = ordered_json::object();
    for (const auto &[module, reason] : fusion->refused)
      refused[module] = reason;
    report["efficient_conv_bn_eval"] = {{"fused", fusion->fused}, {"refused", refused}};
  }
  if (manifest.mode == "train")
    report["learning_rates"] = learningRates;
  if (manifest.findGradientNorm())
    report["gradient_norms"] = gradientNorms;
  if (manifest.findLossScale()) {
    report["loss_scales"] = lossScales;
    report["skipped_steps"] = skippedSteps;
  }
  for (const Evaluation &evaluation : evaluations) {
    ordered_json entry = {{"step", evaluation.step}, {"samples", evaluation.samples}};
    entry["outputs"] = evaluation.averages;
    report["evaluations"].push_back(std::move(entry));
  }
  if (manifest.mode == "eval") {
    report["samples"] = samples;
    report["outputs"] = averages;
  }
  return writeFileAtomically(path, report.dump(1) + "\n").withContext("--report");
}

std::string Evaluation::describe() const {
  std::string text;
  for (const auto &[name, value] : averages) {
    char number[40];
    std::snprintf(number, sizeof number, " %.6g", value);
    text += (text.empty() ? "" : ", ") + name + number;
  }
  return text + " over " + std::to_string(samples) + " samples";
}

std::string RunReport::summarize(const Session &session, bool isMemoryChecked) const {
  char line[256];
  std::string text;
  const Manifest &manifest = session.getManifest();
  if (manifest.mode == "train" && !losses.empty()) {
    auto steps = double(losses.size());
    double data = std::accumulate(dataSeconds.begin(), dataSeconds.end(), 0.0) / steps,
           own = std::accumulate(stepSeconds.begin(), stepSeconds.end(), 0.0) / steps;
    std::snprintf(line, sizeof line,
                  "%zu steps, loss %.6g at first and %.6g at last, %.4g s a step, of which %.4g s "
                  "wait for data\n",
                  losses.size(), losses.front(), losses.back(), own + data, data);
    text += line;
  }
  for (const auto &[name, value] : averages) {
    std::snprintf(line, sizeof line, "%s %.6g over %" PRId64 " samples\n", name.c_str(), value,
                  samples);
    text += line;
  }
  text += "memory: predicted " +
          std::to_string(getPredictedPeakBytes(session)[MEMOPT_SPACE_DEVICE]) + " bytes";
  if (isMemoryChecked)
    text += ", used " + std::to_string(getUsedPeakBytes(session)[MEMOPT_SPACE_DEVICE]) + " bytes";
  text += "; " + std::to_string(countAllocations(session)) +
          " allocations during steps; beside the arena " + std::to_string(overheadBytes >> 20) +
          " MiB\n";
  return hasOwnMemory(session) ? text + describe(deviceOverhead, manifest.target.overheadBytes)
                               : text;
}

//===----------------------------------------------------------------------===//
// Progress
//===----------------------------------------------------------------------===//

Progress::Progress(const RunOptions &options, int64_t bytes)
    : lines(options.isQuiet                ? Lines::None
            : ::isatty(STDOUT_FILENO) == 1 ? Lines::Overwritten
            : options.isShownByEpoch       ? Lines::EachEpoch
                                           : Lines::EachStep),
      bytes(bytes) {}

Progress::~Progress() { finish(); }

void Progress::finish() {
  if (std::exchange(hasOpenLine, false))
    std::fputc('\n', stdout);
  if (drawing == this)
    drawing = nullptr;
  std::fflush(stdout);
}

/// "1:02:03" or "2:03"
static std::string formatDuration(double seconds) {
  auto whole = int64_t(std::min(seconds, 1e9));
  char text[40];
  if (whole < 3600)
    std::snprintf(text, sizeof text, "%" PRId64 ":%02" PRId64, whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%" PRId64 ":%02" PRId64 ":%02" PRId64, whole / 3600,
                  whole / 60 % 60, whole % 60);
  return text;
}

/// The columns of the terminal; many where it does not say.
static size_t getColumns() {
  winsize size{};
  bool isKnown = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return isKnown ? size.ws_col : 240;
}

/// "step 7/100  loss 0.25  1000.0 samples/s  16.0 MiB  epoch 0.07  lr 0.1  norm 2.5"
static std::string describeStep(const StepFacts &facts, int64_t lastStep, int64_t bytes) {
  char text[240];
  int length = std::snprintf(
      text, sizeof text, "step %" PRId64 "/%" PRId64 "  loss %.6g  %.1f samples/s  %.1f MiB",
      facts.step, lastStep, facts.loss, facts.samplesPerSecond, double(bytes) / (1 << 20));
  if (facts.learningRate)
    length += std::snprintf(text + length, sizeof text - size_t(length), "  epoch %.2f  lr %.4g",
                            facts.epoch, *facts.learningRate);
  if (facts.gradientNorm)
    std::snprintf(text + length, sizeof text - size_t(length), "  norm %.4g", *facts.gradientNorm);
  return text;
}

bool Progress::isDue(const StepFacts &facts, int64_t lastStep, double now) const {
  if (facts.step == lastStep)
    return true;
  // Ten times a second at most.
  return lines == Lines::Overwritten ? now - lastShown >= 0.1 : int64_t(facts.epoch) > shownEpoch;
}

std::string Progress::describeMeans(const StepFacts &facts, int64_t lastStep, double now) const {
  StepFacts mean = facts;
  mean.loss = losses / double(steps);
  mean.samplesPerSecond = samples / std::max(seconds, 1e-9);
  std::string text = describeStep(mean, lastStep, bytes);
  int64_t shown = facts.step - firstStep, left = lastStep - facts.step;
  if (shown > 0 && left > 0)
    text += "  left " + formatDuration((now - firstTime) / double(shown) * double(left));
  return text;
}

void Progress::show(const StepFacts &facts, int64_t lastStep) {
  if (lines == Lines::None)
    return;
  if (lines == Lines::EachStep) {
    std::printf("%s\n", describeStep(facts, lastStep, bytes).c_str());
    std::fflush(stdout);
    return;
  }
  double now = double(getTime()) * 1e-9;
  if (firstStep < 0) {
    std::tie(firstStep, firstTime) = std::pair(facts.step, now);
    shownEpoch = int64_t(std::ceil(facts.epoch)) - 1;
  }
  ++steps;
  losses += facts.loss;
  samples += facts.samplesPerSecond * facts.seconds;
  seconds += facts.seconds;
  if (!isDue(facts, lastStep, now))
    return;
  std::string text = describeMeans(facts, lastStep, now);
  hasOpenLine = lines == Lines::Overwritten;
  // A line that is broken could not be drawn over.
  if (hasOpenLine)
    drawing = this;
  if (hasOpenLine)
    std::printf("\r\033[K%s", text.substr(0, getColumns() - 1).c_str());
  else
    std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  lastShown = now;
  shownEpoch = int64_t(facts.epoch);
  losses = samples = seconds = 0;
  steps = 0;
}
