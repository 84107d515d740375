//===- CudaTarget.cpp - NVIDIA GPUs -----------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matrix products are cuBLASLt's. Which of its kernels runs is chosen on the device, among those
// that the planned workspace is enough for: the cap is what NVIDIA recommends for the chip
// (cuBLAS, "cublasSetWorkspace"), and less where a budget asks for it. Convolutions are cuDNN's,
// which plans them here; those whose workspace stays within the same cap come first, in cuDNN's
// order. An emulated device computes both by the runtime's plain loops. Attention is kernels of
// ours on either, and written out where heads are too wide for them.
//
//===----------------------------------------------------------------------===//

#include "memopt/Target/Cuda/CudaTarget.h"

#include "../Cpu/RuntimeImplementations.h"
#include "CudnnPlans.h"
#include "memopt/Dialect/Kernels/AttentionTiles.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Target/Cpu/MachineProfile.h"

using namespace mlir;
using namespace mlir::memopt;

static constexpr int64_t kSmallCap = int64_t(4) << 20;

static int64_t getWorkspaceCap(CudaAttr target) {
  constexpr unsigned hopper = 90;
  return target.getCapability() >= hopper ? 8 * kSmallCap : kSmallCap;
}

/// The first chip whose units multiply bf16 and TF32.
static constexpr unsigned kFirstWithBrainFloats = 80;

/// What less workspace costs, as a factor of time. The libraries say which of their ways is the
/// faster one, and not by how much: guesses, for orders to be compared by.
static constexpr double kLessWorkspace = 1.1;

/// What cuDNN's engine 0 costs beside others. On an H100 it took 92 ms for the filter's gradient of
/// ResNet-50's stem (64 images, f32), where the bytes moved take 0.08.
static constexpr double kLastResort = 30;

/// What DeviceDescription made of a device's properties.
static llvm::json::Value toJson(Attribute attribute) {
  if (auto list = dyn_cast<ArrayAttr>(attribute)) {
    llvm::json::Array array;
    for (Attribute entry : list)
      array.push_back(toJson(entry));
    return array;
  }
  if (auto number = dyn_cast<IntegerAttr>(attribute))
    return number.getInt();
  if (auto text = dyn_cast<StringAttr>(attribute))
    return text.getValue();
  return nullptr;
}

/// The call as libraries get it: with what products of f32 are made of.
static llvm::json::Object describe(CudaAttr target, LibraryCallAttrInterface call) {
  llvm::json::Object object = call.toJson();
  bool isOurs = isa<AttentionAttr>(call);
  if (object.getString("dtype") == "f32" && !isOurs && !target.isEmulated())
    object["precision"] =
        isa<MatmulAttr>(call) ? target.getMatmulPrecision() : target.getConvPrecision();
  return object;
}

static llvm::Expected<CudnnPlans> planConvolution(CudaAttr target, LibraryCallAttrInterface call) {
  if (!target.getProperties())
    return llvm::createStringError("the target has no properties of a device");
  llvm::json::Object properties;
  for (NamedAttribute entry : target.getProperties())
    properties[entry.getName().getValue()] = toJson(entry.getValue());
  return planWithCudnn(properties, describe(target, call));
}

namespace {
struct CudaTarget : TargetAttrInterface::ExternalModel<CudaTarget, CudaAttr> {
  using Implementations = SmallVector<CallImplementation>;

  llvm::json::Value describe(Attribute self) const {
    auto target = cast<CudaAttr>(self);
    return llvm::json::Object{{"name", "cuda"},
                              {"chip", target.getChip()},
                              {"sms", target.getSms()},
                              {"image", getImageName(self)}};
  }
  bool isDevice(Attribute) const { return true; }
  StringRef getImageName(Attribute self) const {
    return cast<CudaAttr>(self).isEmulated() ? "kernels.bc" : "kernels.cubin";
  }
  std::string describeMachine(Attribute self) const {
    auto target = cast<CudaAttr>(self);
    StringRef device = target.getDevice().empty() ? target.getChip() : target.getDevice();
    return (device + " with " + Twine(target.getSms()) + " multiprocessors").str();
  }
  /// Those of the process, which only launches.
  int64_t getThreads(Attribute) const { return 1; }
  /// An eighth of the threads that fit, which have several loads of 16 bytes under way: some two
  /// megabytes of an H100's.
  int64_t getElementsAtOnce(Attribute self) const {
    constexpr int64_t threads = 256, lanes = 4;
    return cast<CudaAttr>(self).getSms() * threads * lanes;
  }

  llvm::json::Object describeCall(Attribute self, LibraryCallAttrInterface call) const {
    auto target = cast<CudaAttr>(self);
    llvm::json::Object object = ::describe(target, call);
    if (target.isEmulated())
      object["reference"] = true;
    return object;
  }

  FailureOr<Implementations>
  getImplementations(Attribute self, LibraryCallAttrInterface call,
                     function_ref<InFlightDiagnostic()> emitError) const {
    auto target = cast<CudaAttr>(self);
    if (auto attention = dyn_cast<AttentionAttr>(call))
      return makeKernels(target, attention, emitError);
    if (target.getCapability() < kFirstWithBrainFloats &&
        call.getViews().front().elementType.isBF16())
      return emitError() << "no library call can compute this on " << target.getChip()
                         << ", which multiplies no bf16; --precision=fp16 has products of f16";
    if (target.isEmulated())
      return askRuntime(describeCall(self, call), /*threads=*/1, emitError);
    if (isa<MatmulAttr>(call))
      return Implementations{{"cublaslt", getWorkspaceCap(target)}};
    if (isa<ConvolutionAttr>(call))
      return askCudnn(target, call, emitError);
    return emitError() << "no library call can compute this on " << target.getChip() << ": a "
                       << call.getKindName() << " is neither cuBLASLt's nor cuDNN's";
  }

  /// Their sums may be cut otherwise: a budget may change last bits of what libraries compute.
  Implementations getLeanImplementations(Attribute self, LibraryCallAttrInterface call) const {
    auto target = cast<CudaAttr>(self);
    if (target.isEmulated() || isa<AttentionAttr>(call))
      return {};
    Implementations lean;
    if (isa<MatmulAttr>(call)) {
      if (getWorkspaceCap(target) > kSmallCap)
        lean.push_back({"cublaslt", kSmallCap});
      lean.push_back({"cublaslt", 0});
    } else if (llvm::Expected<CudnnPlans> plans = planConvolution(target, call)) {
      Implementations all = nameAll(*plans);
      CallImplementation *preferred = findPreferred(target, all);
      bool isReserved = getReserve(target, call, *plans, *preferred) != 0;
      lean.append(isReserved ? preferred : preferred + 1, all.end());
    } else {
      llvm::consumeError(plans.takeError());
    }
    double slowdown = 1;
    for (CallImplementation &one : lean)
      one.slowdown = slowdown *= isLastResort(one) ? kLastResort : kLessWorkspace;
    return lean;
  }

  FailureOr<llvm::json::Value> getPlan(Attribute self, LibraryCallAttrInterface call,
                                       StringRef implementation,
                                       function_ref<InFlightDiagnostic()> emitError) const {
    auto target = cast<CudaAttr>(self);
    if (target.isEmulated() || !isa<ConvolutionAttr>(call))
      return llvm::json::Value(nullptr);
    llvm::Expected<CudnnPlans> plans = planConvolution(target, call);
    if (!plans)
      return emitError() << "no library call can compute this on " << target.getChip() << ": "
                         << llvm::toString(plans.takeError());
    for (const CudnnPlan &plan : plans->plans)
      if (nameImplementation(*plans, plan) == implementation)
        return llvm::json::Value(llvm::json::Object{
            {"cudnn", plans->version}, {"sms", target.getSms()}, {"text", plan.text}});
    return emitError() << "was planned as '" << implementation << "', which is none of cuDNN "
                       << plans->version << "'s plans";
  }

  /// That of the widest access of a kernel, of what cuBLASLt's kernels load of a bias at a time,
  /// which no preference can tell them not to do, and what cuDNN is told of all tensors.
  int64_t getLeastAlignment(Attribute) const { return 16; }
  /// cuBLAS demands it of a product's workspace ("cublasSetWorkspace"); cuDNN's gets the same.
  int64_t getWorkspaceAlignment(Attribute) const { return 256; }
  bool storesWideSums(Attribute self) const { return cast<CudaAttr>(self).isEmulated(); }
  bool accumulatesConvolutions(Attribute self) const { return cast<CudaAttr>(self).isEmulated(); }
  /// Convolutions of f32, where cuDNN has an engine for all of it.
  bool rectifies(Attribute self, LibraryCallAttrInterface call) const {
    auto target = cast<CudaAttr>(self);
    auto convolution = dyn_cast<ConvolutionAttr>(call);
    if (!convolution || !convolution.getType().isF32())
      return false;
    if (target.isEmulated())
      return true;
    llvm::Expected<CudnnPlans> plans = planConvolution(target, call);
    if (!plans)
      llvm::consumeError(plans.takeError());
    return static_cast<bool>(plans);
  }
  /// Kernels of ours do, where heads are not too wide.
  bool computesAttention(Attribute) const { return false; }
  /// cuSOLVER allocates what it works in.
  bool computesLinearAlgebra(Attribute) const { return false; }

  /// Where neither rows nor columns are contiguous a copy is needed.
  bool canReadMatrix(Attribute, int64_t rowStride, int64_t columnStride) const {
    return rowStride == 1 || columnStride == 1;
  }
  /// What belongs to a row is computed before the row is stored, with a barrier between.
  bool mayWriteOverRows(Attribute) const { return true; }

  std::function<double(const Work &)> getCostFunction(Attribute self) const {
    return MachineProfile::of(cast<CudaAttr>(self).getProfile(), MachineProfile::getDevice())
        .getCostFunction();
  }

private:
  static std::string nameImplementation(const CudnnPlans &plans, const CudnnPlan &plan) {
    return "cudnn " + plans.version + " " + plan.name;
  }

  /// All plans, as they are.
  static Implementations nameAll(const CudnnPlans &plans) {
    return llvm::map_to_vector(plans.plans, [&](const CudnnPlan &plan) {
      // The runtime wants multiples of 64.
      return CallImplementation{nameImplementation(plans, plan),
                                static_cast<int64_t>(llvm::alignTo(plan.workspaceBytes, 64))};
    });
  }

  /// Whether a plan is of cuDNN's engine 0, which takes any call without a workspace, and time.
  static bool isLastResort(const CallImplementation &one) {
    return StringRef(one.name).ends_with(" engine0") || StringRef(one.name).contains(" engine0(");
  }

  /// They need less and less, and take longer: the first that keeps to the cap, else the smallest
  /// that is no last resort.
  static CallImplementation *findPreferred(CudaAttr target, Implementations &all) {
    auto *first =
        llvm::find_if(all, [cap = getWorkspaceCap(target)](const CallImplementation &one) {
          return one.workspaceBytes <= cap && !isLastResort(one);
        });
    if (first != all.end())
      return first;
    bool hasOthers = all.size() > 1 && isLastResort(all.back());
    return hasOthers ? std::prev(all.end(), 2) : std::prev(all.end());
  }

  static FailureOr<Implementations> makeKernels(CudaAttr target, AttentionAttr call,
                                                function_ref<InFlightDiagnostic()> emitError) {
    int64_t sharedBytes = getBlockSharedBytes(cast<TargetAttrInterface>(Attribute(target)));
    if (!fitsAttentionTiles(AttentionHeads::of(call), sharedBytes))
      return emitError() << "no kernel computes attention of heads of " << call.getHeadDim()
                         << " and " << call.getValueDim() << " features";
    return Implementations{{kOwnKernels.str(), getAttentionWorkspace(call)}};
  }

  FailureOr<Implementations> askCudnn(CudaAttr target, LibraryCallAttrInterface call,
                                      function_ref<InFlightDiagnostic()> emitError) const {
    llvm::Expected<CudnnPlans> plans = planConvolution(target, call);
    if (!plans)
      return emitError() << "no library call can compute this on " << target.getChip() << ": "
                         << llvm::toString(plans.takeError());
    Implementations all = nameAll(*plans);
    std::rotate(all.begin(), findPreferred(target, all), all.end());
    all.front().workspaceBytes += getReserve(target, call, *plans, all.front());
    return all;
  }

  /// What a plan may need on the device beside what it says without one: engines that cut the sums
  /// of a filter's gradient keep the parts, a tile of f32 for each block of a few waves.
  static int64_t getReserve(CudaAttr target, LibraryCallAttrInterface call, const CudnnPlans &plans,
                            const CallImplementation &one) {
    constexpr int64_t tileBytes = 128 * 128 * sizeof(float), waves = 2, mostParts = 64;
    auto convolution = cast<ConvolutionAttr>(call);
    if (plans.isDeviceAtHand || isLastResort(one) ||
        convolution.getKind() != ConvolutionKind::BackwardWeights)
      return 0;
    int64_t filterBytes =
        llvm::product_of(call.getViews().back().extents) * static_cast<int64_t>(sizeof(float));
    int64_t bytes = std::min(mostParts * filterBytes, waves * target.getSms() * tileBytes);
    return static_cast<int64_t>(llvm::alignTo(bytes, 256));
  }
};
} // namespace

void mlir::memopt::registerCudaTarget(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MemoptDialect *) {
    CudaAttr::attachInterface<CudaTarget>(*context);
  });
}
