//===- CudnnCall.cpp - convolutions of cuDNN's in streams -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"
#include "memopt-runtime/device/cuda/CudaDevice.h"
#include "memopt-runtime/device/cuda/CudaLibraries.h"
#include "memopt-runtime/device/cuda/CudaStream.h"
#include "memopt-runtime/device/cuda/CudnnPlans.h"

using namespace memopt;
using namespace memopt::cuda;

namespace {

class CudnnCall final : public DeviceCall {
public:
  CudnnCall(const CudaLibraries &libraries, CudnnObject plan, int64_t bytes, int64_t buffers)
      : libraries(libraries), plan(std::move(plan)), bytes(bytes), addresses(size_t(buffers)) {
    for (int64_t number = 0; number < buffers; ++number)
      numbers.push_back(number);
  }

  int64_t workspaceBytes() const override { return bytes; }

  Status start(ComputeStream &stream, void *const *buffers, ThreadPool &) override {
    const Cudnn &cudnn = libraries.getCudnn();
    MEMOPT_RETURN_IF_ERROR(libraries.getContext().makeCurrent());
    MEMOPT_RETURN_IF_ERROR(checkWorkspace(buffers[addresses.size()], bytes));
    if (!pack || !std::equal(addresses.begin(), addresses.end(), buffers) ||
        workspace != buffers[addresses.size()])
      MEMOPT_RETURN_IF_ERROR(bind(buffers));
    CUstream queue = static_cast<CudaStream &>(stream).get();
    MEMOPT_RETURN_IF_ERROR(
        cudnn.explain(cudnn.setStream(libraries.getCudnnHandle(), queue), "cudnnSetStream"));
    return cudnn.explain(cudnn.execute(libraries.getCudnnHandle(), plan.get(), pack->get()),
                         "cudnnBackendExecute");
  }

private:
  /// Makes the buffers those of the next execution; where they stay, so does what was made.
  Status bind(void *const *buffers) {
    pack.reset();
    addresses.assign(buffers, buffers + addresses.size());
    workspace = buffers[addresses.size()];
    auto made = std::make_unique<CudnnObject>(libraries.getCudnn(), cudnn::VARIANT_PACK);
    made->set(cudnn::PACK_IDS, numbers)
        .set(cudnn::PACK_POINTERS, cudnn::TYPE_VOID_PTR, int64_t(addresses.size()),
             static_cast<const void *>(addresses.data()))
        .set(cudnn::PACK_WORKSPACE, cudnn::TYPE_VOID_PTR, 1, static_cast<const void *>(&workspace));
    MEMOPT_RETURN_IF_ERROR(made->finish("variant pack"));
    pack = std::move(made);
    return Status::ok();
  }

  const CudaLibraries &libraries;
  CudnnObject plan;
  int64_t bytes;
  std::vector<int64_t> numbers; ///< of the tensors
  std::vector<void *> addresses;
  void *workspace = nullptr;
  std::unique_ptr<CudnnObject> pack;
};

/// What a package says of its plan.
struct PlannedCall {
  std::string version, text;
  int64_t sms, workspaceBytes, buffers;
};

} // namespace

static StatusOr<PlannedCall> readPlan(const nlohmann::json &descriptor) {
  JsonView view(descriptor);
  PlannedCall planned;
  MEMOPT_ASSIGN_OR_RETURN(JsonView plan, view.get("plan"));
  MEMOPT_ASSIGN_OR_RETURN(planned.version, plan.getString("cudnn"));
  MEMOPT_ASSIGN_OR_RETURN(planned.sms, plan.getInteger("sms"));
  MEMOPT_ASSIGN_OR_RETURN(planned.text, plan.getString("text"));
  MEMOPT_ASSIGN_OR_RETURN(planned.workspaceBytes, view.getInteger("workspace_bytes"));
  MEMOPT_ASSIGN_OR_RETURN(planned.buffers, view.getInteger("buffers"));
  return planned;
}

/// The text of a plan for this device that keeps to the planned workspace. `reason` says why that
/// of the package does not do.
static StatusOr<std::string> planAgain(const CudaLibraries &libraries,
                                       const nlohmann::json &descriptor, const PlannedCall &planned,
                                       const std::string &reason) {
  MEMOPT_ASSIGN_OR_RETURN(std::string text, describeCudaDevice(libraries.getContext()));
  std::string properties = nlohmann::json::parse(text)["properties"].dump();
  MEMOPT_ASSIGN_OR_RETURN(
      std::vector<CudnnPlan> plans,
      planWithCudnn(libraries.getCudnn(), properties, descriptor, libraries.getCudnnHandle()));
  for (CudnnPlan &plan : plans)
    if (plan.workspaceBytes <= planned.workspaceBytes) {
      if (plans.size() > 1 && plan.isLastResort())
        libraries.getContext().note("convolutions run by cuDNN's slowest engine, for other engines "
                                    "need more workspace here than was planned (" +
                                    reason + "); compile the model here");
      return std::move(plan.text);
    }
  return environmentError(
      "was planned with a workspace of " + std::to_string(planned.workspaceBytes) +
      " bytes, by cuDNN " + planned.version + " for " + std::to_string(planned.sms) +
      " multiprocessors; " + reason + ", where cuDNN " + libraries.getCudnn().getVersion() +
      " needs " + std::to_string(plans.back().workspaceBytes) + "; compile the model here");
}

/// Why a plan of the package is not even offered to cuDNN, which takes those of its own version for
/// as many multiprocessors; empty where it is.
static StatusOr<std::string> findDifference(const CudaLibraries &libraries,
                                            const PlannedCall &planned) {
  MEMOPT_ASSIGN_OR_RETURN(
      int sms, libraries.getContext().getAttribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  const std::string &version = libraries.getCudnn().getVersion();
  if (planned.version != version)
    return "here is cuDNN " + version;
  return planned.sms == sms ? std::string() : "this device has " + std::to_string(sms);
}

/// The plan of the package. What cuDNN refuses of it (another chip, version, or an older driver), or
/// needs more workspace for than was planned, it plans again.
static StatusOr<CudnnObject> makePlan(const CudaLibraries &libraries,
                                      const nlohmann::json &descriptor,
                                      const PlannedCall &planned) {
  auto load = [&](const std::string &text) {
    return loadCudnnPlan(libraries.getCudnn(), libraries.getCudnnHandle(), text);
  };
  MEMOPT_ASSIGN_OR_RETURN(std::string difference, findDifference(libraries, planned));
  if (difference.empty()) {
    StatusOr<CudnnObject> plan = load(planned.text);
    StatusOr<int64_t> bytes =
        plan.isOk() ? plan->getInteger(cudnn::PLAN_WORKSPACE) : plan.takeStatus();
    if (bytes.isOk() && *bytes <= planned.workspaceBytes)
      return plan;
    difference = bytes.isOk() ? "on this device the plan needs " + std::to_string(*bytes)
                              : "this device refuses the plan (" + bytes.getMessage() + ")";
  }
  MEMOPT_ASSIGN_OR_RETURN(std::string text, planAgain(libraries, descriptor, planned, difference));
  return load(text);
}

StatusOr<std::unique_ptr<DeviceCall>> memopt::createCudnnCall(CudaLibraries &libraries,
                                                              const nlohmann::json &descriptor) {
  MEMOPT_RETURN_IF_ERROR(libraries.openCudnn());
  MEMOPT_ASSIGN_OR_RETURN(PlannedCall planned, readPlan(descriptor));
  MEMOPT_ASSIGN_OR_RETURN(CudnnObject plan, makePlan(libraries, descriptor, planned));
  MEMOPT_ASSIGN_OR_RETURN(int64_t bytes, plan.getInteger(cudnn::PLAN_WORKSPACE));
  return std::unique_ptr<DeviceCall>(
      std::make_unique<CudnnCall>(libraries, std::move(plan), bytes, planned.buffers));
}
