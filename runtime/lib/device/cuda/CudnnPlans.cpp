//===- CudnnPlans.cpp - plans of cuDNN from a description -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudnnPlans.h"
#include "CudnnGraph.h"
#include "memopt-runtime/device/cuda/CudaContext.h"
#include "memopt-runtime/device/cuda/CudaDevice.h"
#include <algorithm>
#include <nlohmann/json.hpp>

using namespace memopt;
using namespace memopt::cuda;

CudnnPlanner::CudnnPlanner(std::unique_ptr<Cudnn> library, std::string properties)
    : library(std::move(library)), properties(std::move(properties)) {}
CudnnPlanner::~CudnnPlanner() {
  if (handle)
    (void)library->destroy(handle);
}

void CudnnPlanner::openDevice() {
  StatusOr<std::unique_ptr<CudaContext>> found = CudaContext::open();
  if (!found.isOk() || (*found)->isEmulated())
    return;
  StatusOr<std::string> description = describeCudaDevice(**found);
  if (!description.isOk() ||
      nlohmann::json::parse(*description)["properties"] != nlohmann::json::parse(properties))
    return;
  if ((*found)->makeCurrent().isOk() && library->create(&handle) == 0)
    context = *std::move(found);
}

StatusOr<std::unique_ptr<CudnnPlanner>> CudnnPlanner::open(const std::string &library,
                                                           std::string properties) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Cudnn> loaded, Cudnn::load(library));
  std::unique_ptr<CudnnPlanner> planner(new CudnnPlanner(std::move(loaded), std::move(properties)));
  planner->openDevice();
  return planner;
}

const std::string &CudnnPlanner::getVersion() const { return library->getVersion(); }

//===----------------------------------------------------------------------===//
// Engines
//===----------------------------------------------------------------------===//

/// `isExact`: products of f32 are those of f32, which tensor cores round.
static StatusOr<bool> isAcceptable(const CudnnObject &engine, bool isExact) {
  MEMOPT_ASSIGN_OR_RETURN(
      std::vector<int> numbers,
      engine.getEnumerators(cudnn::ENGINE_NUMERICAL_NOTES, cudnn::TYPE_NUMERICAL_NOTE));
  MEMOPT_ASSIGN_OR_RETURN(
      std::vector<int> behavior,
      engine.getEnumerators(cudnn::ENGINE_BEHAVIOR_NOTES, cudnn::TYPE_BEHAVIOR_NOTE));
  auto has = [](const std::vector<int> &notes, int note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  return !has(numbers, cudnn::NONDETERMINISTIC) && !has(numbers, cudnn::DOWN_CONVERT_INPUTS) &&
         !has(numbers, cudnn::REDUCED_PRECISION_REDUCTION) &&
         !(isExact && has(numbers, cudnn::TENSOR_CORE)) &&
         !has(behavior, cudnn::RUNTIME_COMPILATION);
}

/// "engine62(2=1,5=0)": its number and its knobs.
static StatusOr<std::string> nameEngine(const CudnnObject &config, const CudnnObject &engine) {
  MEMOPT_ASSIGN_OR_RETURN(int64_t index, engine.getInteger(cudnn::ENGINE_INDEX));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<CudnnObject> knobs,
                          config.getObjects(cudnn::CONFIG_KNOBS, cudnn::KNOB_CHOICE));
  std::string name = "engine" + std::to_string(index);
  for (size_t i = 0; i < knobs.size(); ++i) {
    MEMOPT_ASSIGN_OR_RETURN(std::vector<int> type,
                            knobs[i].getEnumerators(cudnn::KNOB_TYPE, cudnn::TYPE_KNOB_TYPE));
    MEMOPT_ASSIGN_OR_RETURN(int64_t value, knobs[i].getInteger(cudnn::KNOB_VALUE));
    name +=
        (i ? "," : "(") + std::to_string(type.empty() ? -1 : type[0]) + "=" + std::to_string(value);
  }
  return knobs.empty() ? name : name + ")";
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// The configurations that a heuristic of cuDNN's proposes, the fastest first.
static StatusOr<std::vector<CudnnObject>> findConfigs(const Cudnn &library,
                                                      const CudnnObject &graph,
                                                      const CudnnObject &device,
                                                      cudnn::HeuristicsMode mode) {
  CudnnObject heuristics(library, cudnn::HEURISTICS);
  heuristics.link(cudnn::HEURISTICS_GRAPH, graph)
      .set(cudnn::HEURISTICS_MODE, cudnn::TYPE_HEURISTICS_MODE, mode)
      .link(cudnn::HEURISTICS_DEVICE, device);
  MEMOPT_RETURN_IF_ERROR(heuristics.finish("heuristics"));
  return heuristics.getObjects(cudnn::HEURISTICS_RESULTS, cudnn::ENGINE_CONFIG);
}

StatusOr<CudnnObject> memopt::loadCudnnPlan(const Cudnn &library, CudnnHandle handle,
                                            const std::string &text) {
  CudnnObject plan(library, cudnn::EXECUTION_PLAN);
  plan.set(cudnn::PLAN_HANDLE, cudnn::TYPE_HANDLE, 1, static_cast<const void *>(&handle))
      .set(cudnn::PLAN_JSON, text);
  MEMOPT_RETURN_IF_ERROR(plan.finish("plan of the package"));
  return plan;
}

/// What a plan needs on the device of the handle; less than 0 where the device refuses the plan.
static StatusOr<int64_t> getLoadedWorkspace(const Cudnn &library, CudnnHandle handle,
                                            const std::string &text) {
  StatusOr<CudnnObject> loaded = loadCudnnPlan(library, handle, text);
  return loaded.isOk() ? loaded->getInteger(cudnn::PLAN_WORKSPACE) : StatusOr<int64_t>(-1);
}

/// Adds the plan of a configuration to `plans` where it is acceptable, possible, and takes less
/// workspace than those before.
static Status addPlan(const Cudnn &library, const CudnnObject &config, bool isExact,
                      CudnnHandle handle, std::vector<CudnnPlan> &plans) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<CudnnObject> engines,
                          config.getObjects(cudnn::CONFIG_ENGINE, cudnn::ENGINE));
  if (engines.empty())
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(bool acceptable, isAcceptable(engines[0], isExact));
  if (!acceptable)
    return Status::ok();
  CudnnObject plan(library, cudnn::EXECUTION_PLAN);
  plan.link(cudnn::PLAN_CONFIG, config);
  if (!plan.finish("plan").isOk())
    return Status::ok(); // heuristics propose what an engine then refuses
  MEMOPT_ASSIGN_OR_RETURN(std::string text, plan.getText(cudnn::PLAN_JSON));
  MEMOPT_ASSIGN_OR_RETURN(int64_t bytes, plan.getInteger(cudnn::PLAN_WORKSPACE));
  if (handle) {
    MEMOPT_ASSIGN_OR_RETURN(bytes, getLoadedWorkspace(library, handle, text));
  }
  if (bytes < 0 || (!plans.empty() && bytes >= plans.back().workspaceBytes))
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(std::string name, nameEngine(config, engines[0]));
  plans.push_back({std::move(name), bytes, std::move(text)});
  return Status::ok();
}

StatusOr<std::vector<CudnnPlan>> memopt::planWithCudnn(const Cudnn &library,
                                                       const std::string &properties,
                                                       const nlohmann::json &descriptor,
                                                       CudnnHandle handle) {
  CudnnObject device(library, cudnn::DEVICE_PROPERTIES);
  device.set(cudnn::DEVICE_JSON, properties);
  MEMOPT_RETURN_IF_ERROR(device.finish("properties of the device"));
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<CudnnGraph> graph,
                          CudnnGraph::create(library, descriptor));
  std::vector<CudnnPlan> plans;
  bool isExact = descriptor.value("precision", "high") == "highest";
  for (cudnn::HeuristicsMode mode : {cudnn::MODE_A, cudnn::FALLBACK}) {
    // What one heuristic does not know another may; without any there are no plans.
    StatusOr<std::vector<CudnnObject>> configs = findConfigs(library, graph->get(), device, mode);
    if (!configs.isOk())
      continue;
    for (const CudnnObject &config : *configs)
      MEMOPT_RETURN_IF_ERROR(addPlan(library, config, isExact, handle, plans));
  }
  if (plans.empty())
    return environmentError("cuDNN " + library.getVersion() +
                            " has no deterministic engine for this call" +
                            (isExact ? " that makes products of f32" : ""));
  return plans;
}

StatusOr<std::vector<CudnnPlan>> CudnnPlanner::plan(const nlohmann::json &descriptor) const {
  return planWithCudnn(*library, properties, descriptor, handle);
}
