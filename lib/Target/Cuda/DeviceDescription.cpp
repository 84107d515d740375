//===- DeviceDescription.cpp - what is known of a GPU -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Target/Cuda/DeviceDescription.h"

#include "memopt/Support/InputFile.h"

using namespace mlir;
using namespace mlir::memopt;
using ::memopt::getInteger;
using ::memopt::makeJsonError;
namespace json = llvm::json;

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral kFormat = "memopt-device";
static constexpr int64_t kVersion = 1;

/// All of these must be there: cuDNN refuses a description that lacks one.
static constexpr llvm::StringLiteral kCounts[] = {"regsPerBlock",
                                                  "multiProcessorCount",
                                                  "warpSize",
                                                  "maxSharedMemoryPerBlock",
                                                  "maxSharedMemoryPerBlockOptin",
                                                  "maxRegistersPerSM",
                                                  "maxCtasPerSM",
                                                  "maxThreadsPerBlock",
                                                  "maxThreadsPerSM",
                                                  "totalGlobalMem",
                                                  "smClockRateKHz",
                                                  "memClockRateKHz",
                                                  "l2CacheSize",
                                                  "deviceVer",
                                                  "driverVer"};
/// May be 0.
static constexpr llvm::StringLiteral kNumbers[] = {"reservedSharedMemoryPerBlock", "pciDeviceId",
                                                   "isTccDriver", "supportCoopLaunch",
                                                   "cudaDeviceId"};
static constexpr llvm::StringLiteral kTriples[] = {"maxGridSize", "maxBlockSize"};
static constexpr llvm::StringLiteral kDeviceName = "deviceName";

static bool isTriple(const json::Value *value) {
  const json::Array *list = value ? value->getAsArray() : nullptr;
  return list && list->size() == 3 && llvm::all_of(*list, [](const json::Value &entry) {
           return getInteger(&entry).value_or(0) > 0;
         });
}

/// Every property is there and of its kind, and no others are.
static llvm::Error checkProperties(const json::Object &properties) {
  llvm::SmallDenseSet<StringRef> known;
  auto check = [&](StringRef key, bool isFine, StringRef what) -> llvm::Error {
    known.insert(key);
    return isFine ? llvm::Error::success()
                  : makeJsonError("properties." + key, what, properties.get(key));
  };
  for (StringRef key : kCounts)
    if (llvm::Error error = check(key, getInteger(properties.get(key)).value_or(0) > 0,
                                  "a whole number of at least 1"))
      return error;
  for (StringRef key : kNumbers)
    if (llvm::Error error = check(key, getInteger(properties.get(key)).value_or(-1) >= 0,
                                  "a whole number of at least 0"))
      return error;
  for (StringRef key : kTriples)
    if (llvm::Error error =
            check(key, isTriple(properties.get(key)), "three whole numbers of at least 1"))
      return error;
  if (llvm::Error error =
          check(kDeviceName, !properties.getString(kDeviceName).value_or("").empty(), "a name"))
    return error;
  for (const auto &entry : properties)
    if (!known.contains(entry.first))
      return makeJsonError("properties." + StringRef(entry.first), "nothing", &entry.second);
  return llvm::Error::success();
}

static llvm::Error readText(const json::Object &object, StringRef key, std::string &text) {
  std::optional<StringRef> found = object.getString(key);
  if (!found || found->empty())
    return makeJsonError(key, "a text", object.get(key));
  text = found->str();
  return llvm::Error::success();
}

/// The chip that a device of version 900 is, and the form of its image.
static llvm::Error readCode(const json::Object &object, DeviceDescription &device) {
  int64_t version = device.getProperty("deviceVer");
  std::string chip = "sm_" + std::to_string(version / 10);
  if (device.chip != chip && device.chip != chip + "a" && device.chip != chip + "f")
    return makeJsonError("chip", "\"" + chip + "\", as properties.deviceVer says",
                         object.get("chip"));
  if (version < 750)
    return makeJsonError("properties.deviceVer",
                         "at least 750, for CUDA 13 has dropped the chips before",
                         device.properties.get("deviceVer"));
  device.image = object.getString("image").value_or("");
  if (device.image != "cubin" && device.image != "bitcode")
    return makeJsonError("image", "\"cubin\" or \"bitcode\"", object.get("image"));
  // What every kernel is compiled for; all devices of these versions have it.
  if (device.getProperty("warpSize") != 32)
    return makeJsonError("properties.warpSize", "32", device.properties.get("warpSize"));
  return llvm::Error::success();
}

/// Optional: who has one device has no link.
static llvm::Error readLink(const json::Object &object, std::optional<DeviceLink> &link) {
  if (!object.get("link"))
    return llvm::Error::success();
  const json::Object *found = object.getObject("link");
  if (!found)
    return makeJsonError("link", "an object", object.get("link"));
  for (const auto &entry : *found)
    if (StringRef key = entry.first; key != "latency_seconds" && key != "bytes_per_second")
      return makeJsonError("link." + key, "nothing", &entry.second);
  double latency = found->getNumber("latency_seconds").value_or(-1),
         rate = found->getNumber("bytes_per_second").value_or(0);
  if (!(latency >= 0 && latency <= 1))
    return makeJsonError("link.latency_seconds", "a number from 0 to 1",
                         found->get("latency_seconds"));
  if (!(rate >= 1 && rate <= 1e15))
    return makeJsonError("link.bytes_per_second", "a number from 1 to 1e15",
                         found->get("bytes_per_second"));
  link = DeviceLink{latency, rate};
  return llvm::Error::success();
}

llvm::Expected<DeviceDescription> DeviceDescription::fromJson(const json::Value &value) {
  const json::Object *object = value.getAsObject();
  if (!object)
    return makeJsonError("device description", "an object", &value);
  if (object->getString("format") != StringRef(kFormat))
    return makeJsonError("format", "\"" + kFormat + "\"", object->get("format"));
  if (object->getInteger("version") != kVersion)
    return makeJsonError("version", llvm::Twine(kVersion), object->get("version"));
  DeviceDescription device;
  for (auto [key, text] : {std::pair<StringRef, std::string *>{"name", &device.name},
                           {"chip", &device.chip},
                           {"origin", &device.origin}})
    if (llvm::Error error = readText(*object, key, *text))
      return std::move(error);
  const json::Object *properties = object->getObject("properties");
  if (!properties)
    return makeJsonError("properties", "an object", object->get("properties"));
  if (llvm::Error error = checkProperties(*properties))
    return std::move(error);
  device.properties = *properties;
  if (llvm::Error error = readCode(*object, device))
    return std::move(error);
  device.overheadBytes = object->getInteger("overhead_bytes").value_or(-1);
  if (device.overheadBytes < 0)
    return makeJsonError("overhead_bytes", "a whole number of at least 0",
                         object->get("overhead_bytes"));
  if (llvm::Error error = readLink(*object, device.link))
    return std::move(error);
  const json::Object *rates = object->getObject("rates");
  if (!rates)
    return makeJsonError("rates", "an object", object->get("rates"));
  device.profile = MachineProfile::getDevice();
  device.profile.machine = properties->getString(kDeviceName)->str();
  device.profile.threads = device.getSms();
  if (llvm::Error error = device.profile.readRates(*rates))
    return std::move(error);
  return device;
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

namespace {
struct ShippedDevice {
  llvm::StringLiteral name;
  llvm::StringLiteral text;
};
} // namespace

static constexpr ShippedDevice kShipped[] = {
#include "ShippedDevices.inc"
};

SmallVector<StringRef> DeviceDescription::getNames() {
  return llvm::map_to_vector(kShipped,
                             [](const ShippedDevice &device) -> StringRef { return device.name; });
}

static llvm::Error at(StringRef place, llvm::Error error) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 place + ": " + llvm::toString(std::move(error)));
}

static llvm::Expected<DeviceDescription> parse(StringRef place, StringRef text) {
  llvm::Expected<json::Value> value = ::memopt::parseInputJson(text);
  if (!value)
    return at(place, value.takeError());
  llvm::Expected<DeviceDescription> device = DeviceDescription::fromJson(*value);
  if (!device)
    return at(place, device.takeError());
  return device;
}

llvm::Expected<DeviceDescription> DeviceDescription::find(StringRef nameOrPath) {
  for (const ShippedDevice &device : kShipped)
    if (device.name == nameOrPath)
      return parse(device.name, device.text);
  if (!nameOrPath.ends_with(".json"))
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   "expected " + llvm::join(getNames(), ", ") +
                                       " or a FILE.json that describes a device, found '" +
                                       nameOrPath + "'");
  auto file = ::memopt::readInputFile(nameOrPath, /*isText=*/true);
  if (!file)
    return at(nameOrPath, file.takeError());
  return parse(nameOrPath, (*file)->getBuffer());
}

/// What `checkProperties` accepts: whole numbers, lists of them, and a name.
static Attribute toAttribute(Builder &builder, const json::Value &value) {
  if (std::optional<int64_t> number = getInteger(&value))
    return builder.getI64IntegerAttr(*number);
  if (const json::Array *list = value.getAsArray())
    return builder.getArrayAttr(llvm::map_to_vector(
        *list, [&](const json::Value &entry) { return toAttribute(builder, entry); }));
  return builder.getStringAttr(value.getAsString().value_or(""));
}

static DictionaryAttr toDictionary(MLIRContext *context, const json::Object &properties) {
  Builder builder(context);
  SmallVector<NamedAttribute> entries;
  for (const auto &entry : properties)
    entries.push_back(
        builder.getNamedAttr(StringRef(entry.first), toAttribute(builder, entry.second)));
  return builder.getDictionaryAttr(entries);
}

CudaAttr DeviceDescription::toAttribute(MLIRContext *context) const {
  return CudaAttr::get(context, chip, getSms(), profile.machine, image,
                       profile.toAttribute(context), toDictionary(context, properties),
                       matmulPrecision, convPrecision);
}
