//===- Calibrate.cpp - measures the machine ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Instructions are timed where they will run: inside steps, by the runtime's own timeline, after
// whatever came before them has filled the caches. The compiler stays free of the runtime;
// memopt-run is a process of its own. Of a device it gives the description as well, whose rates are
// replaced by those that were measured; times are the host's there, which waits for each
// instruction.
//
//===----------------------------------------------------------------------===//

#include "Calibrate.h"

#include "CalibrationGraphs.h"

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Conversion/Objects/ObjectEmission.h"
#include "memopt/Package/Package.h"
#include "memopt/Support/SiblingTool.h"
#include "memopt/Target/Cpu/ProfileFit.h"
#include "memopt/Target/Cuda/DeviceDescription.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"

#include <chrono>
#include <cstdlib>
#include <thread>

using namespace mlir;
using namespace mlir::memopt;
using namespace ::memopt::tool;

namespace {
using ::memopt::StatusCode;

/// A calibration graph, planned, with what its instructions do and what they took.
struct PlannedGraph {
  CalibrationGraph graph;
  std::string package;
  OwningOpRef<ModuleOp> module;
  std::vector<Work> work;
  std::vector<std::string> kinds;
  std::vector<std::vector<double>> seconds; ///< by instruction, of all rounds
  /// Of whole steps: of as many ranks as have processors of their own, and of all.
  std::vector<double> withoutTurns, withTurns;
};

class Calibration {
public:
  Calibration(MLIRContext &context, const CompileOptions &options, std::string &error)
      : context(context), options(options), error(error) {}

  StatusCode run(const char *program) {
    if (!findRunner(program) || !checkOutputs())
      return StatusCode::Environment;
    if (options.ranksAtOnce > 1) // of which each has its part of the threads
      setenv("OMP_NUM_THREADS", std::to_string(options.runThreads).c_str(), /*overwrite=*/1);
    if (options.isDeviceCalibrated && !describeDevice())
      return StatusCode::Environment;
    std::vector<PlannedGraph> graphs;
    for (CalibrationGraph &graph :
         device ? makeCalibrationGraphs(device->getSms()) : makeCalibrationGraphs()) {
      PlannedGraph &planned = graphs.emplace_back();
      planned.graph = std::move(graph);
      planned.package = pathOf("step." + std::to_string(graphs.size()) + ".memopt");
      if (StatusCode code = compile(planned); code != StatusCode::Ok) {
        fail("calibration graph '" + planned.graph.name + "' does not compile");
        return code;
      }
    }
    // A processor that others use, too, is fast and slow by turns of seconds to minutes, so no graph
    // is measured all at once.
    int rounds = device ? 1 : options.ranksAtOnce > 1 ? 3 : 2;
    for (int round = 0; round < rounds; ++round)
      for (PlannedGraph &planned : graphs)
        if (!measure(planned, rounds, /*withTurns=*/round % 2 == 0))
          return StatusCode::Environment;
    for (PlannedGraph &planned : graphs)
      conclude(planned);
    return writeProfile() ? StatusCode::Ok : StatusCode::Environment;
  }

private:
  bool fail(const llvm::Twine &message) {
    error = message.str();
    return false;
  }

  bool findRunner(const char *program);
  bool checkOutputs();
  bool describeDevice();
  /// Runs memopt-run, and says why when it fails.
  bool execute(ArrayRef<std::string> arguments);
  StatusCode compile(PlannedGraph &planned);
  Attribute getTarget() const;
  StatusCode writePackage(const PlannedGraph &planned);
  bool measure(PlannedGraph &planned, int rounds, bool withTurns);
  void conclude(PlannedGraph &planned);
  std::vector<std::string> getRunArguments(StringRef package, int64_t steps) const;
  bool runPackage(StringRef package, int steps);
  std::vector<::memopt::SiblingTool::Companion> startCompanions(StringRef package, int count,
                                                                int steps) const;
  bool runBeside(int others, int steps, const PlannedGraph &planned,
                 std::vector<std::vector<double>> &seconds);
  bool readTrace(size_t instructions, std::vector<std::vector<double>> &seconds);
  bool writeProfile();
  llvm::json::Object describe(const ProfileFit &fit) const;
  llvm::json::Object makeResult(const ProfileFit &fit);
  bool writeJson(const std::string &path, llvm::json::Object object);
  std::string pathOf(StringRef name) const { return runner->pathOf(name); }

  MLIRContext &context;
  const CompileOptions &options;
  std::string &error;
  std::optional<::memopt::SiblingTool> runner;
  std::optional<DeviceDescription> device; ///< none: a processor
  llvm::json::Object description;          ///< of the device, as a file has it
  std::vector<MeasuredInstruction> measured;
  std::vector<std::string> names; ///< by measured instruction: its graph and its kind
  /// Of long steps: of as many ranks as have processors of their own, and of all.
  double secondsWithoutTurns = 0, secondsWithTurns = 0;
};
} // namespace

bool Calibration::findRunner(const char *program) {
  llvm::Expected<::memopt::SiblingTool> found = ::memopt::SiblingTool::find(program, "memopt-run");
  if (!found)
    return fail("--calibrate: " + llvm::toString(found.takeError()));
  runner.emplace(std::move(*found));
  return true;
}

/// Before minutes of measuring.
bool Calibration::checkOutputs() {
  for (const std::string *path : {&options.calibrationPath, &options.reportPath})
    if (!path->empty())
      if (::memopt::Status status = ::memopt::checkWritable(*path); !status.isOk())
        return fail("--calibrate: " + status.getMessage());
  return true;
}

bool Calibration::execute(ArrayRef<std::string> arguments) {
  constexpr unsigned kSecondsToWait = 300;
  ::memopt::SiblingTool::Outcome outcome = runner->run(arguments, kSecondsToWait);
  return outcome.code == 0 || fail(runner->getPath() + " failed with code " +
                                   llvm::Twine(outcome.code) + ": " + outcome.reason);
}

/// The device at hand, as memopt-run describes it.
bool Calibration::describeDevice() {
  std::string path = pathOf("device.json"), option = "--describe-device=" + path;
  if (!execute({"--device=cuda", option}))
    return false;
  auto text = llvm::MemoryBuffer::getFile(path);
  if (!text)
    return fail(path + ": " + text.getError().message());
  llvm::Expected<llvm::json::Value> value = llvm::json::parse((*text)->getBuffer());
  llvm::Expected<DeviceDescription> read =
      value ? DeviceDescription::fromJson(*value) : value.takeError();
  if (!read)
    return fail("the description by memopt-run: " + llvm::toString(read.takeError()));
  description = *value->getAsObject();
  device = std::move(*read);
  return true;
}

//===----------------------------------------------------------------------===//
// One graph
//===----------------------------------------------------------------------===//

Attribute Calibration::getTarget() const {
  if (device)
    return device->toAttribute(&context);
  return CpuAttr::get(&context, options.targetFeatures, options.runThreads, false, {});
}

StatusCode Calibration::compile(PlannedGraph &planned) {
  const CalibrationGraph &graph = planned.graph;
  planned.module = parseSourceString<ModuleOp>(graph.text, &context, graph.name);
  if (planned.module)
    (*planned.module)->setAttr(MemoptDialect::kTargetAttr, getTarget());
  PassManager manager(&context);
  PipelineOptions pipeline;
  pipeline.optimizer = "optimizer=" + graph.optimizer;
  pipeline.precision = graph.precision;
  buildGraphPipeline(manager, pipeline); // attention is written out for some targets
  buildJointPipeline(manager, pipeline);
  buildKernelPipeline(manager, pipeline);
  buildSchedulePipeline(manager, pipeline);
  buildPlanPipeline(manager, pipeline);
  if (!planned.module || failed(manager.run(*planned.module)))
    return StatusCode::BadInput;
  if (StatusCode code = writePackage(planned); code != StatusCode::Ok)
    return code;
  KernelGraph kernels(StepModel::create(*planned.module)->getFunction());
  for (Operation *op : kernels.getInstructions()) {
    auto instruction = cast<InstructionOpInterface>(op);
    planned.work.push_back(instruction.getWork());
    planned.kinds.push_back(instruction.getKindName());
  }
  return StatusCode::Ok;
}

StatusCode Calibration::writePackage(const PlannedGraph &planned) {
  ProgramOptions program;
  program.threads = options.compilerThreads;
  ManifestOptions manifest;
  FailureOr<std::string> machine = device ? FailureOr<std::string>(device->name)
                                          : resolveProcessor(options.targetFeatures, error);
  if (failed(machine))
    return StatusCode::BadInput;
  manifest.mode = "train";
  manifest.targetFeatures = *machine;
  return mlir::memopt::writePackage(*planned.module, manifest, program, planned.package);
}

/// A learning rate of zero keeps all values as they were, so that no step is unlike the others.
std::vector<std::string> Calibration::getRunArguments(StringRef package, int64_t steps) const {
  return {package.str(),
          device ? "--device=cuda" : "--device=cpu",
          "--init=random",
          "--lr=0",
          "--stop-on-nan=off",
          "--quiet",
          "--steps=" + std::to_string(steps)};
}

bool Calibration::runPackage(StringRef package, int steps) {
  std::vector<std::string> arguments = getRunArguments(package, steps);
  arguments.push_back("--trace=" + pathOf("trace.json"));
  return execute(arguments);
}

/// What other ranks of the host compute meanwhile: the same, until they are ended. So many steps
/// are more than those that are measured, however short steps are, and yet not without an end:
/// nobody may be left to end them.
std::vector<::memopt::SiblingTool::Companion>
Calibration::startCompanions(StringRef package, int count, int steps) const {
  std::vector<::memopt::SiblingTool::Companion> companions;
  for (int i = 0; i < count; ++i)
    companions.push_back(runner->start(getRunArguments(package, int64_t(10) * steps * steps)));
  if (count > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(500)); // until they have begun
  return companions;
}

/// Seconds by instruction and step. The timeline has every instruction of every step in order.
bool Calibration::readTrace(size_t instructions, std::vector<std::vector<double>> &seconds) {
  auto text = llvm::MemoryBuffer::getFile(pathOf("trace.json"));
  if (!text)
    return fail(pathOf("trace.json") + ": " + text.getError().message());
  llvm::Expected<llvm::json::Value> value = llvm::json::parse((*text)->getBuffer());
  if (!value)
    return fail("the timeline of memopt-run: " + llvm::toString(value.takeError()));
  const llvm::json::Object *object = value->getAsObject();
  const llvm::json::Array *events = object ? object->getArray("traceEvents") : nullptr;
  size_t count = 0;
  seconds.assign(instructions, {});
  if (events && instructions > 0)
    for (const llvm::json::Value &entry : *events) {
      const llvm::json::Object *event = entry.getAsObject();
      std::optional<double> duration = event ? event->getNumber("dur") : std::nullopt;
      if (duration && event->getString("ph") == StringRef("X"))
        seconds[count++ % instructions].push_back(*duration * 1e-6);
    }
  return (count > 0 && count % instructions == 0) ||
         fail("the timeline of memopt-run has " + llvm::Twine(count) +
              " instructions, expected a multiple of " + llvm::Twine(instructions));
}

/// Runs the package beside so many others of its kind. Libraries make up their minds in the first
/// step, which is left out.
bool Calibration::runBeside(int others, int steps, const PlannedGraph &planned,
                            std::vector<std::vector<double>> &seconds) {
  std::vector<::memopt::SiblingTool::Companion> companions =
      startCompanions(planned.package, others, steps);
  if (!runPackage(planned.package, steps + 1) || !readTrace(planned.work.size(), seconds))
    return false;
  for (std::vector<double> &times : seconds)
    times.erase(times.begin());
  return true;
}

/// What all instructions of a step take together, by step.
static void appendSteps(const std::vector<std::vector<double>> &seconds,
                        std::vector<double> &steps) {
  size_t first = steps.size();
  steps.resize(first + seconds.front().size());
  for (const std::vector<double> &times : seconds)
    for (auto [index, time] : llvm::enumerate(times))
      steps[first + index] += time;
}

/// One of the rounds, each of which has its part of the steps.
bool Calibration::measure(PlannedGraph &planned, int rounds, bool withTurns) {
  std::vector<std::vector<double>> seconds;
  int steps = (planned.graph.steps + rounds - 1) / rounds;
  int atOnce = std::clamp(::memopt::countProcessors() / options.runThreads, 1, options.ranksAtOnce);
  if (!runBeside(atOnce - 1, steps, planned, seconds))
    return false;
  planned.seconds.resize(seconds.size());
  for (auto [all, times] : llvm::zip_equal(planned.seconds, seconds))
    llvm::append_range(all, times);
  appendSteps(seconds, planned.withoutTurns);
  // Where ranks take turns on a processor, turns are long beside an instruction, but not beside
  // some steps.
  constexpr double kManyTurns = 0.05;
  if (withTurns && atOnce < options.ranksAtOnce &&
      getUndisturbed(planned.withoutTurns) > kManyTurns) {
    if (!runBeside(options.ranksAtOnce - 1, steps, planned, seconds))
      return false;
    appendSteps(seconds, planned.withTurns);
  }
  return true;
}

void Calibration::conclude(PlannedGraph &planned) {
  double step = 0;
  for (auto [work, kind, times] : llvm::zip_equal(planned.work, planned.kinds, planned.seconds)) {
    names.push_back(planned.graph.name + ": " + kind);
    measured.push_back({work, getUndisturbed(times)});
    step += measured.back().seconds;
  }
  if (!planned.withTurns.empty()) {
    secondsWithoutTurns += getUndisturbed(planned.withoutTurns);
    secondsWithTurns += getUndisturbed(planned.withTurns);
  }
  // Steps are what is predicted: an instruction counts by its part of one.
  for (MeasuredInstruction &instruction : MutableArrayRef(measured).take_back(planned.work.size()))
    instruction.weight = static_cast<double>(planned.work.size()) * instruction.seconds / step;
  llvm::outs() << llvm::formatv("{0,-32} {1,4} instructions {2,10:F3} ms a step\n",
                                planned.graph.name, planned.work.size(), step * 1e3);
  llvm::outs().flush();
}

//===----------------------------------------------------------------------===//
// The profile
//===----------------------------------------------------------------------===//

static StringRef getName(Multiplication multiplication) {
  switch (multiplication) {
  case Multiplication::Full:
    return "full";
  case Multiplication::Narrow:
    return "narrow";
  case Multiplication::Converted:
    return "converted";
  }
  llvm_unreachable("all are listed");
}

/// What every instruction took and should have taken, to see where the model is wrong.
llvm::json::Object Calibration::describe(const ProfileFit &fit) const {
  llvm::json::Array instructions;
  for (auto [name, instruction] : llvm::zip_equal(names, measured))
    instructions.push_back(
        llvm::json::Object{{"name", name},
                           {"operations", instruction.work.operations},
                           {"functions", instruction.work.functions},
                           {"weights", instruction.work.weights},
                           {"multiplication", getName(instruction.work.multiplication)},
                           {"bytes", instruction.work.bytes},
                           {"measured_seconds", instruction.seconds},
                           {"predicted_seconds", fit.profile.getSeconds(instruction.work)}});
  return llvm::json::Object{{"format", "memopt-calibration-report"},
                            {"version", 1},
                            {"instructions", std::move(instructions)}};
}

bool Calibration::writeJson(const std::string &path, llvm::json::Object object) {
  ::memopt::Status status = ::memopt::writeFileAtomically(
      path, llvm::formatv("{0:2}\n", llvm::json::Value(std::move(object))).str());
  return status.isOk() || fail(status.getMessage());
}

/// A profile, or the device's description with the rates that were measured.
llvm::json::Object Calibration::makeResult(const ProfileFit &fit) {
  llvm::json::Object facts{{"instructions", static_cast<int64_t>(measured.size())},
                           {"typical_error", fit.typicalError},
                           {"total_ratio", fit.totalRatio}};
  if (!device) {
    llvm::json::Object profile = fit.profile.toJson();
    profile["fit"] = std::move(facts);
    return profile;
  }
  llvm::json::Object rates;
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    rates[rate.key] = fit.profile.*rate.field;
  description["rates"] = std::move(rates);
  description["origin"] = "properties as the driver gives them; rates measured on the device";
  description["fit"] = std::move(facts);
  return std::move(description);
}

bool Calibration::writeProfile() {
  MachineProfile start;
  start.machine = llvm::sys::getHostCPUName().str();
  start.threads = options.runThreads;
  if (device)
    start = device->profile;
  if (secondsWithoutTurns > 0) {
    double turns = secondsWithTurns / secondsWithoutTurns;
    for (MeasuredInstruction &instruction : measured)
      instruction.seconds *= turns;
    llvm::outs() << llvm::formatv("{0} ranks take {1:F2} times as long as ranks with processors of "
                                  "their own\n",
                                  options.ranksAtOnce, turns);
  }
  ProfileFit fit = fitProfile(measured, start);
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    llvm::outs() << llvm::formatv("{0,-44} {1:E3}\n", rate.key, fit.profile.*rate.field);
  llvm::outs() << llvm::formatv("{0} instructions: predictions are off by {1:P0} (median), all "
                                "together they are {2:P0} of the time\n",
                                measured.size(), fit.typicalError, fit.totalRatio);
  if (!writeJson(options.calibrationPath, makeResult(fit)) ||
      (!options.reportPath.empty() && !writeJson(options.reportPath, describe(fit))))
    return false;
  llvm::outs() << "wrote " << options.calibrationPath << "; compile with "
               << (device ? "--target=cuda --target-features=" : "--machine-profile=")
               << options.calibrationPath << (device ? "\n" : " or $MEMOPT_MACHINE_PROFILE\n");
  return true;
}

auto ::memopt::tool::calibrate(MLIRContext &context, const CompileOptions &options,
                               const char *program, std::string &error) -> StatusCode {
  return Calibration(context, options, error).run(program);
}
