//===- MachineProfile.cpp - rates of a processor ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Target/Cpu/MachineProfile.h"

#include "memopt/Support/InputFile.h"

#include "mlir/IR/Builders.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/X86TargetParser.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;
using ::memopt::makeJsonError;

static constexpr MachineProfile::Rate kRates[] = {
    {"matmul_operations_per_second", &MachineProfile::matmulRate},
    {"convolution_operations_per_second", &MachineProfile::convolutionRate},
    {"convolution_weight_operations_per_second", &MachineProfile::convolutionWeightRate},
    {"pointwise_convolution_operations_per_second", &MachineProfile::pointwiseConvolutionRate, true,
     &MachineProfile::convolutionRate},
    {"pointwise_convolution_weight_operations_per_second",
     &MachineProfile::pointwiseConvolutionWeightRate, true, &MachineProfile::convolutionWeightRate},
    {"tiled_convolution_operations_per_second", &MachineProfile::tiledConvolutionRate, true,
     &MachineProfile::convolutionRate},
    {"tiled_convolution_weight_operations_per_second", &MachineProfile::tiledConvolutionWeightRate,
     true, &MachineProfile::convolutionWeightRate},
    {"group_convolution_operations_per_second", &MachineProfile::groupConvolutionRate},
    {"convolution_weights_per_second", &MachineProfile::weightRate, true},
    {"convolution_weight_gradients_per_second", &MachineProfile::weightGradientRate, true},
    {"attention_forward_operations_per_second", &MachineProfile::attentionForwardRate},
    {"attention_backward_operations_per_second", &MachineProfile::attentionBackwardRate},
    {"narrow_matmul_speed", &MachineProfile::narrowMatmulSpeed, true},
    {"narrow_convolution_speed", &MachineProfile::narrowConvolutionSpeed, true},
    {"converted_matmul_speed", &MachineProfile::convertedMatmulSpeed, true},
    {"converted_convolution_speed", &MachineProfile::convertedConvolutionSpeed, true},
    {"narrow_attention_speed", &MachineProfile::narrowAttentionSpeed, true},
    {"attention_scores_per_second", &MachineProfile::scoreRate},
    {"kernel_operations_per_second", &MachineProfile::kernelRate},
    {"kernel_functions_per_second", &MachineProfile::functionRate},
    {"cache_bytes_per_second", &MachineProfile::cacheBandwidth},
    {"memory_bytes_per_second", &MachineProfile::memoryBandwidth},
    {"host_link_bytes_per_second", &MachineProfile::hostLinkBandwidth, true},
    {"host_memory_bytes_per_second", &MachineProfile::hostMemoryBandwidth, true},
    {"disk_bytes_per_second", &MachineProfile::diskBandwidth, true},
    {"cache_bytes", &MachineProfile::cacheBytes},
    {"kernel_start_seconds", &MachineProfile::kernelSeconds},
    {"call_start_seconds", &MachineProfile::callSeconds},
    {"convolution_start_seconds", &MachineProfile::convolutionSeconds},
};

ArrayRef<MachineProfile::Rate> MachineProfile::getRates() { return kRates; }

//===----------------------------------------------------------------------===//
// Seconds
//===----------------------------------------------------------------------===//

/// By what narrow operands multiply the rate of products or convolutions.
static double getSpeed(Multiplication multiplication, double narrow, double converted) {
  switch (multiplication) {
  case Multiplication::Full:
    return 1;
  case Multiplication::Narrow:
    return narrow;
  case Multiplication::Converted:
    return converted;
  }
  return 1;
}

static double getArithmeticSeconds(const Work &work, const MachineProfile &profile) {
  double matmul =
             getSpeed(work.multiplication, profile.narrowMatmulSpeed, profile.convertedMatmulSpeed),
         convolution = getSpeed(work.multiplication, profile.narrowConvolutionSpeed,
                                profile.convertedConvolutionSpeed),
         attention = getSpeed(work.multiplication, profile.narrowAttentionSpeed, 1);
  auto forward = [&](double rate) {
    return work.operations / (rate * convolution) + work.weights / profile.weightRate;
  };
  auto ofWeights = [&](double rate) {
    return work.operations / (rate * convolution) + work.weights / profile.weightGradientRate;
  };
  switch (work.workClass) {
  case WorkClass::Kernel:
  case WorkClass::HostKernel:
    return work.operations / profile.kernelRate + work.functions / profile.functionRate;
  case WorkClass::Matmul:
    return work.operations / (profile.matmulRate * matmul);
  case WorkClass::Convolution:
    return forward(profile.convolutionRate);
  case WorkClass::PointwiseConvolution:
    return forward(profile.pointwiseConvolutionRate);
  case WorkClass::TiledConvolution:
    return forward(profile.tiledConvolutionRate);
  case WorkClass::ConvolutionWeight:
    return ofWeights(profile.convolutionWeightRate);
  case WorkClass::PointwiseConvolutionWeight:
    return ofWeights(profile.pointwiseConvolutionWeightRate);
  case WorkClass::TiledConvolutionWeight:
    return ofWeights(profile.tiledConvolutionWeightRate);
  case WorkClass::GroupConvolution:
    return work.operations / (profile.groupConvolutionRate * convolution);
  case WorkClass::AttentionForward:
    return (work.operations / profile.attentionForwardRate + work.functions / profile.scoreRate) /
           attention;
  case WorkClass::AttentionBackward:
    return (work.operations / profile.attentionBackwardRate + work.functions / profile.scoreRate) /
           attention;
  case WorkClass::Copy:
  case WorkClass::HostTransfer:
  case WorkClass::DiskTransfer:
    return 0;
  }
  return 0;
}

static double getStartSeconds(WorkClass workClass, const MachineProfile &profile) {
  switch (workClass) {
  case WorkClass::Kernel:
  case WorkClass::HostKernel:
    return profile.kernelSeconds;
  case WorkClass::Matmul:
  case WorkClass::AttentionForward:
  case WorkClass::AttentionBackward:
  case WorkClass::Copy:
  case WorkClass::HostTransfer:
  case WorkClass::DiskTransfer:
    return profile.callSeconds;
  case WorkClass::Convolution:
  case WorkClass::ConvolutionWeight:
  case WorkClass::PointwiseConvolution:
  case WorkClass::PointwiseConvolutionWeight:
  case WorkClass::TiledConvolution:
  case WorkClass::TiledConvolutionWeight:
  case WorkClass::GroupConvolution:
    return profile.convolutionSeconds;
  }
  return 0;
}

/// Through caches and memory.
static double getTrafficSeconds(double bytes, const MachineProfile &profile) {
  double near = std::min(bytes, profile.cacheBytes), far = bytes - near;
  return near / profile.cacheBandwidth + far / profile.memoryBandwidth;
}

double MachineProfile::getSeconds(const Work &work) const {
  if (work.workClass == WorkClass::DiskTransfer)
    return callSeconds + work.bytes / diskBandwidth;
  if (work.workClass == WorkClass::HostKernel && hasHost)
    return kernelSeconds + work.bytes / hostMemoryBandwidth;
  if (work.workClass == WorkClass::HostTransfer)
    return callSeconds + (hasHost ? work.bytes / hostLinkBandwidth
                                  : getTrafficSeconds(2 * work.bytes, *this)); // read and written
  double traffic = getTrafficSeconds(work.bytes, *this);
  return getStartSeconds(work.workClass, *this) +
         std::max(getArithmeticSeconds(work, *this), traffic);
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral kFormat = "memopt-machine-profile";
static constexpr int64_t kVersion = 1;

llvm::json::Object MachineProfile::toJson() const {
  llvm::json::Object rates;
  for (const Rate &rate : kRates)
    rates[rate.key] = this->*rate.field;
  return llvm::json::Object{{"target", "cpu"},     {"format", kFormat},
                            {"version", kVersion}, {"machine", machine},
                            {"threads", threads},  {"rates", std::move(rates)}};
}

llvm::Error MachineProfile::readRates(const llvm::json::Object &rates) {
  const MachineProfile defaults;
  for (const Rate &rate : kRates) {
    if (rate.isOptional && !rates.get(rate.key)) {
      if (rate.like)
        this->*rate.field = this->*rate.like * (defaults.*rate.field / defaults.*rate.like);
      continue;
    }
    std::optional<double> number = rates.getNumber(rate.key);
    if (!number || !std::isfinite(*number) || *number <= 0)
      return makeJsonError("rates." + rate.key, "a positive number", rates.get(rate.key));
    this->*rate.field = *number;
  }
  for (const auto &entry : rates)
    if (llvm::none_of(kRates,
                      [&](const Rate &known) { return StringRef(entry.first) == known.key; }))
      return makeJsonError("rates." + StringRef(entry.first), "nothing", &entry.second);
  return llvm::Error::success();
}

llvm::Expected<MachineProfile> MachineProfile::fromJson(const llvm::json::Value &value) {
  const llvm::json::Object *object = value.getAsObject();
  if (!object)
    return makeJsonError("machine profile", "an object", &value);
  if (object->getString("format") != StringRef(kFormat))
    return makeJsonError("format", "\"" + kFormat + "\"", object->get("format"));
  if (object->getInteger("version") != kVersion)
    return makeJsonError("version", llvm::Twine(kVersion), object->get("version"));
  if (object->getString("target") != StringRef("cpu"))
    return makeJsonError("target", "\"cpu\"", object->get("target"));
  std::optional<StringRef> machine = object->getString("machine");
  if (!machine || machine->empty())
    return makeJsonError("machine", "a name", object->get("machine"));
  std::optional<int64_t> threads = object->getInteger("threads");
  if (!threads || *threads < 1)
    return makeJsonError("threads", "a count of at least 1", object->get("threads"));
  const llvm::json::Object *rates = object->getObject("rates");
  if (!rates)
    return makeJsonError("rates", "an object", object->get("rates"));
  MachineProfile profile;
  profile.machine = machine->str();
  profile.threads = *threads;
  if (llvm::Error error = profile.readRates(*rates))
    return std::move(error);
  return profile;
}

llvm::Expected<MachineProfile> MachineProfile::read(StringRef path) {
  auto file = ::memopt::readInputFile(path, /*isText=*/true);
  if (!file)
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   path + ": " + llvm::toString(file.takeError()));
  llvm::Expected<llvm::json::Value> value = ::memopt::parseInputJson((*file)->getBuffer());
  if (!value)
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   path + ": " + llvm::toString(value.takeError()));
  llvm::Expected<MachineProfile> profile = fromJson(*value);
  if (!profile)
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   path + ": " + llvm::toString(profile.takeError()));
  return profile;
}

//===----------------------------------------------------------------------===//
// Shipped profiles
//===----------------------------------------------------------------------===//

/// As `memopt-compile --calibrate` wrote it.
static constexpr char kEpyc7003[] =
#include "epyc-7003.inc"
    ;
static constexpr char kEpyc9004[] =
#include "epyc-9004.inc"
    ;
static constexpr char kEpyc9004Avx2[] =
#include "epyc-9004-avx2.inc"
    ;
static constexpr char kEpyc9005[] =
#include "epyc-9005.inc"
    ;
static constexpr char kXeon5[] =
#include "xeon-5.inc"
    ;
static constexpr char kXeon5Avx2[] =
#include "xeon-5-avx2.inc"
    ;

static MachineProfile parseShipped(StringRef text) {
  return llvm::cantFail(MachineProfile::fromJson(llvm::cantFail(llvm::json::parse(text))));
}

namespace {
/// What of a processor's features chooses a profile. What is no x86 counts as longer vectors.
struct ProcessorKind {
  explicit ProcessorKind(StringRef processor);
  bool hasShortVectors = false; ///< of 256 bits at most
  bool hasTiles = false;        ///< AMX
};
} // namespace

ProcessorKind::ProcessorKind(StringRef processor) {
  if (llvm::X86::parseArchX86(processor) == llvm::X86::CK_None)
    return;
  SmallVector<StringRef> features;
  llvm::X86::getFeaturesForCPU(processor, features);
  // Some processors are listed with what implies avx512f alone.
  hasShortVectors =
      llvm::none_of(features, [](StringRef name) { return name.starts_with("avx512"); });
  hasTiles = llvm::is_contained(features, "amx-bf16");
}

/// Of an x86 processor with short vectors; the names of generations of instructions are nobody's.
static bool isIntel(StringRef processor) {
  return llvm::none_of(ArrayRef<StringRef>{"znver", "bdver", "btver", "x86-64"},
                       [&](StringRef other) { return processor.starts_with(other); });
}

const MachineProfile &MachineProfile::getShipped(StringRef processor) {
  static const MachineProfile longVectors = parseShipped(kEpyc9004), zen3 = parseShipped(kEpyc7003),
                              shortVectors = parseShipped(kEpyc9004Avx2),
                              zen5 = parseShipped(kEpyc9005), xeon = parseShipped(kXeon5),
                              xeonShortVectors = parseShipped(kXeon5Avx2);
  bool isHost = processor.empty() || processor == "native";
  if (isHost)
    processor = llvm::sys::getHostCPUName();
  if (processor == "znver5")
    return zen5;
  ProcessorKind kind(processor);
  // Virtual machines show models of processors that have less.
  static const bool hasHostTiles = llvm::sys::getHostCPUFeatures().lookup("amx-bf16");
  kind.hasTiles |= isHost && hasHostTiles;
  if (!kind.hasShortVectors)
    return kind.hasTiles ? xeon : longVectors;
  if (isIntel(processor))
    return xeonShortVectors;
  bool isZen = processor == "znver1" || processor == "znver2" || processor == "znver3";
  return isZen ? zen3 : shortVectors;
}

MachineProfile MachineProfile::getDevice() {
  MachineProfile profile;
  profile.hasHost = true;
  profile.weightRate = profile.weightGradientRate = 1e15; // weights are taken as they lie
  return profile;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

DictionaryAttr MachineProfile::toAttribute(MLIRContext *context) const {
  Builder b(context);
  SmallVector<NamedAttribute> attributes{b.getNamedAttr("machine", b.getStringAttr(machine)),
                                         b.getNamedAttr("threads", b.getI64IntegerAttr(threads))};
  for (const Rate &rate : kRates)
    attributes.push_back(b.getNamedAttr(rate.key, b.getF64FloatAttr(this->*rate.field)));
  return b.getDictionaryAttr(attributes);
}

MachineProfile MachineProfile::of(DictionaryAttr attribute, const MachineProfile &shipped) {
  MachineProfile profile = shipped;
  if (!attribute)
    return profile;
  if (auto machine = attribute.getAs<StringAttr>("machine"))
    profile.machine = machine.getValue().str();
  if (auto threads = attribute.getAs<IntegerAttr>("threads"))
    profile.threads = threads.getInt();
  for (const Rate &rate : kRates)
    if (auto number = attribute.getAs<FloatAttr>(rate.key))
      profile.*rate.field = number.getValueAsDouble();
  return profile;
}
