//===- DeviceDescriptionTest.cpp - descriptions of GPUs ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Target/Cuda/DeviceDescription.h"

#include "mlir/IR/MLIRContext.h"
#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::memopt;

/// A description as a file would have it.
static llvm::json::Object makeDevice() {
  auto device = llvm::cantFail(DeviceDescription::find("h100"));
  llvm::json::Object rates;
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    rates[rate.key] = device.profile.*rate.field;
  return llvm::json::Object{{"format", "memopt-device"},
                            {"version", 1},
                            {"name", device.name},
                            {"chip", device.chip},
                            {"image", device.image},
                            {"origin", device.origin},
                            {"overhead_bytes", device.overheadBytes},
                            {"properties", llvm::json::Object(device.properties)},
                            {"rates", std::move(rates)}};
}

static std::string errorOf(llvm::json::Object object) {
  auto device = DeviceDescription::fromJson(llvm::json::Value(std::move(object)));
  return device ? "" : llvm::toString(device.takeError());
}

static std::string errorWithout(StringRef key) {
  llvm::json::Object object = makeDevice();
  object.erase(key);
  return errorOf(std::move(object));
}

static std::string errorWith(StringRef key, llvm::json::Value value) {
  llvm::json::Object object = makeDevice();
  object[key] = std::move(value);
  return errorOf(std::move(object));
}

static std::string errorWithProperty(StringRef key, llvm::json::Value value) {
  llvm::json::Object object = makeDevice();
  (*object.getObject("properties"))[key] = std::move(value);
  return errorOf(std::move(object));
}

TEST(DeviceDescription, ShippedOnesAreWhole) {
  for (auto [name, chip, sms] :
       {std::tuple<const char *, const char *, int64_t>{"a10", "sm_86", 72},
        {"a100", "sm_80", 108},
        {"b200", "sm_100", 148},
        {"h100", "sm_90", 132},
        {"h100-pcie", "sm_90", 114},
        {"h200", "sm_90", 132},
        {"l4", "sm_89", 58},
        {"l40s", "sm_89", 142},
        {"rtx3090", "sm_86", 82},
        {"rtx4090", "sm_89", 128},
        {"rtx5090", "sm_120", 170},
        {"t4", "sm_75", 40}}) {
    auto device = DeviceDescription::find(name);
    ASSERT_TRUE(static_cast<bool>(device)) << llvm::toString(device.takeError());
    EXPECT_EQ(device->name, name);
    EXPECT_EQ(device->chip, chip);
    EXPECT_EQ(device->getSms(), sms);
    EXPECT_EQ(device->image, "cubin");
    EXPECT_EQ(device->overheadBytes, int64_t(1) << 30);
    ASSERT_TRUE(device->link.has_value());
    EXPECT_LT(device->link->bytesPerSecond, device->profile.memoryBandwidth);
    // cuDNN's plans load in drivers of the major version that they were planned for, and newer
    // ones.
    EXPECT_LT(device->getProperty("driverVer"), 13000);
  }
  EXPECT_EQ(DeviceDescription::getNames().size(), 12u);
}

TEST(DeviceDescription, NumbersNobodyComparedSaySo) {
  EXPECT_NE(llvm::cantFail(DeviceDescription::find("b200")).origin.find("from memory"),
            std::string::npos);
}

TEST(DeviceDescription, TheAttributeHasChipAndRates) {
  MLIRContext context;
  context.loadDialect<MemoptDialect>();
  auto device = llvm::cantFail(DeviceDescription::find("h200"));
  CudaAttr attribute = device.toAttribute(&context);
  EXPECT_EQ(attribute.getChip(), "sm_90");
  EXPECT_EQ(attribute.getCapability(), 90u);
  EXPECT_EQ(attribute.getDevice(), "NVIDIA H200");
  EXPECT_FALSE(attribute.isEmulated());
  EXPECT_EQ(MachineProfile::of(attribute.getProfile(), MachineProfile()).memoryBandwidth,
            device.profile.memoryBandwidth);
  DictionaryAttr properties = attribute.getProperties();
  EXPECT_EQ(properties.size(), device.properties.size());
  EXPECT_EQ(properties.getAs<IntegerAttr>("multiProcessorCount").getInt(), 132);
  EXPECT_EQ(properties.getAs<StringAttr>("deviceName").getValue(), "NVIDIA H200");
  EXPECT_EQ(properties.getAs<ArrayAttr>("maxBlockSize").size(), 3u);
}

TEST(DeviceDescription, ErrorsNameKeyExpectedAndFound) {
  EXPECT_EQ(errorOf(makeDevice()), "");
  EXPECT_EQ(errorWith("format", "memopt-machine-profile"),
            "format: expected \"memopt-device\", found \"memopt-machine-profile\"");
  EXPECT_EQ(errorWith("version", 2), "version: expected 1, found 2");
  EXPECT_EQ(errorWithout("name"), "name: expected a text, found nothing");
  EXPECT_EQ(errorWith("origin", ""), "origin: expected a text, found \"\"");
  EXPECT_EQ(errorWith("chip", "sm_80"),
            "chip: expected \"sm_90\", as properties.deviceVer says, found \"sm_80\"");
  EXPECT_EQ(errorWith("chip", "sm_90a"), "");
  EXPECT_EQ(errorWithout("image"), "image: expected \"cubin\" or \"bitcode\", found nothing");
  EXPECT_EQ(errorWith("image", "bitcode"), "");
  EXPECT_EQ(errorWithout("overhead_bytes"),
            "overhead_bytes: expected a whole number of at least 0, found nothing");
  EXPECT_EQ(errorWith("overhead_bytes", -1),
            "overhead_bytes: expected a whole number of at least 0, found -1");
  EXPECT_EQ(errorWithout("properties"), "properties: expected an object, found nothing");
  EXPECT_EQ(errorWithout("rates"), "rates: expected an object, found nothing");
  EXPECT_EQ(errorWithout("link"), "");
  EXPECT_EQ(errorWith("link", 3), "link: expected an object, found 3");
  EXPECT_EQ(errorWith("link", llvm::json::Object{{"latency_seconds", 1e-6}}),
            "link.bytes_per_second: expected a number from 1 to 1e15, found nothing");
  EXPECT_EQ(errorWith("link", llvm::json::Object{{"bytes_per_second", 1e9}, {"wings", 2}}),
            "link.wings: expected nothing, found 2");
}

TEST(DeviceDescription, EveryPropertyIsChecked) {
  EXPECT_EQ(errorWithProperty("multiProcessorCount", 0),
            "properties.multiProcessorCount: expected a whole number of at least 1, found 0");
  EXPECT_EQ(errorWithProperty("multiProcessorCount", "132"),
            "properties.multiProcessorCount: expected a whole number of at least 1, found \"132\"");
  EXPECT_EQ(errorWithProperty("pciDeviceId", -1),
            "properties.pciDeviceId: expected a whole number of at least 0, found -1");
  EXPECT_EQ(errorWithProperty("maxGridSize", llvm::json::Array{1, 2}),
            "properties.maxGridSize: expected three whole numbers of at least 1, found [1,2]");
  EXPECT_EQ(errorWithProperty("deviceName", 3), "properties.deviceName: expected a name, found 3");
  EXPECT_EQ(errorWithProperty("warpSize", 64), "properties.warpSize: expected 32, found 64");
  EXPECT_EQ(errorWithProperty("wings", 2), "properties.wings: expected nothing, found 2");
  llvm::json::Object object = makeDevice();
  object.getObject("properties")->erase("l2CacheSize");
  EXPECT_EQ(errorOf(std::move(object)),
            "properties.l2CacheSize: expected a whole number of at least 1, found nothing");
}

TEST(DeviceDescription, ADeviceThatCudaHasDroppedIsRefused) {
  llvm::json::Object object = makeDevice();
  (*object.getObject("properties"))["deviceVer"] = 700;
  object["chip"] = "sm_70";
  EXPECT_EQ(errorOf(std::move(object)), "properties.deviceVer: expected at least 750, for CUDA 13 "
                                        "has dropped the chips before, found 700");
}

TEST(DeviceDescription, ANameThatIsNoneSaysWhichThereAre) {
  auto device = DeviceDescription::find("v100");
  ASSERT_FALSE(static_cast<bool>(device));
  EXPECT_EQ(
      llvm::toString(device.takeError()),
      "expected a10, a100, b200, h100, h100-pcie, h200, l4, l40s, rtx3090, rtx4090, rtx5090, t4 "
      "or a FILE.json that describes a device, found 'v100'");
  device = DeviceDescription::find("/nowhere/device.json");
  ASSERT_FALSE(static_cast<bool>(device));
  EXPECT_EQ(llvm::toString(device.takeError()).find("/nowhere/device.json: "), 0u);
}

/// The bus is forty times as slow as the device's memory, and the host's memory thirty times.
TEST(DeviceDescription, HostsAndDisksHaveRatesOfTheirOwn) {
  auto device = DeviceDescription::find("h100");
  ASSERT_TRUE(static_cast<bool>(device)) << llvm::toString(device.takeError());
  auto getSeconds = [&](WorkClass workClass) {
    Work work;
    work.workClass = workClass;
    work.bytes = 1e10;
    return device->profile.getSeconds(work);
  };
  EXPECT_NEAR(getSeconds(WorkClass::HostTransfer), 1e10 / 51.2e9, 1e-3);
  EXPECT_NEAR(getSeconds(WorkClass::HostKernel), 1e10 / 1e11, 1e-3);
  EXPECT_NEAR(getSeconds(WorkClass::DiskTransfer), 1e10 / 1.5e9, 1e-3);
  EXPECT_NEAR(getSeconds(WorkClass::Copy), 1e10 / 3e12, 1e-3);
  // A processor is its own host: a transfer reads and writes its memory.
  Work work;
  work.workClass = WorkClass::HostTransfer;
  work.bytes = 1e10;
  EXPECT_NEAR(MachineProfile().getSeconds(work), 2e10 / 2e10, 2e-3);
}
