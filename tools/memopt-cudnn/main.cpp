//===- main.cpp - cuDNN's plans, in a process of their own ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler asks this program for plans, so that whatever cuDNN does to its process ends this
// one. Requests and answers are lines of JSON on standard input and output: first
//
//   {"library": FILE, "properties": {...}}   ->   {"version": "9.26.0", "device_at_hand": true}
//
// and then, for each library call as a package describes it (docs/LibraryCalls.md),
//
//   {"kind": "convolution_forward", ...}
//     ->   {"plans": [{"name": ..., "workspace_bytes": ..., "text": ...}, ...]}
//
// What cannot be done is {"error": TEXT}. It ends with its input.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/device/cuda/CudnnPlans.h"
#include "options/OptionTable.h"
#include <iostream>

using namespace memopt;
using nlohmann::json;

/// Descriptions nest no deeper.
static constexpr int maxDepth = 8;

static json answer(const StatusOr<json> &result) {
  return result.isOk() ? *result : json{{"error", result.getMessage()}};
}

static StatusOr<std::unique_ptr<CudnnPlanner>> open(const std::string &line) {
  MEMOPT_ASSIGN_OR_RETURN(json request, parseJson(line, maxDepth));
  JsonView view(request);
  MEMOPT_ASSIGN_OR_RETURN(std::string library, view.getString("library"));
  MEMOPT_ASSIGN_OR_RETURN(JsonView properties, view.get("properties"));
  return CudnnPlanner::open(library, properties.raw().dump());
}

static StatusOr<json> plan(const CudnnPlanner &planner, const std::string &line) {
  MEMOPT_ASSIGN_OR_RETURN(json descriptor, parseJson(line, maxDepth));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<CudnnPlan> plans, planner.plan(descriptor));
  json list = json::array();
  for (CudnnPlan &plan : plans)
    list.push_back({{"name", std::move(plan.name)},
                    {"workspace_bytes", plan.workspaceBytes},
                    {"text", std::move(plan.text)}});
  return json{{"plans", std::move(list)}};
}

int main(int argc, char **argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::cout << options::describeVersion("memopt-cudnn");
    return 0;
  }
  if (argc != 1) {
    std::cerr << "memopt-cudnn: takes no arguments; memopt-compile starts it\n";
    return 1;
  }
  auto write = [](const json &value) { std::cout << value.dump() << std::endl; };
  std::string line;
  if (!std::getline(std::cin, line))
    return 0;
  StatusOr<std::unique_ptr<CudnnPlanner>> planner = open(line);
  if (!planner.isOk()) {
    write({{"error", planner.getMessage()}});
    return 3;
  }
  write({{"version", (*planner)->getVersion()}, {"device_at_hand", (*planner)->hasDevice()}});
  while (std::getline(std::cin, line))
    write(answer(plan(**planner, line)));
  return 0;
}
