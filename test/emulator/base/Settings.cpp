//===- Settings.cpp - what a run on the emulator is told ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/base/Settings.h"
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace memopt::emulator;
using namespace memopt::cuda;
using nlohmann::json;

[[noreturn]] static void refuse(const std::string &message) {
  std::fprintf(stderr, "emulator: error: %s\n", message.c_str());
  std::exit(1);
}

/// Keys of a description that are attributes of the driver, as cuDNN names them.
static const std::pair<const char *, int> attributeKeys[] = {
    {"maxThreadsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"maxSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"maxSharedMemoryPerBlockOptin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"reservedSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
    {"warpSize", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {"regsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {"maxRegistersPerSM", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"maxCtasPerSM", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {"maxThreadsPerSM", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"multiProcessorCount", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"smClockRateKHz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {"memClockRateKHz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {"l2CacheSize", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"pciDeviceId", CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {"isTccDriver", CU_DEVICE_ATTRIBUTE_TCC_DRIVER},
    {"supportCoopLaunch", CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
};

/// The form of docs/Cuda.md.
static Description convert(const json &whole) {
  Description result;
  const json &document = whole.at("properties");
  for (auto [key, attribute] : attributeKeys)
    result.attributes[attribute] = int(document.at(key).get<int64_t>());
  for (int i = 0; i < 3; ++i) {
    result.attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i] = document.at("maxBlockSize").at(i);
    result.attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i] = document.at("maxGridSize").at(i);
  }
  int chip = document.at("deviceVer"); // 900 is 9.0
  result.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = chip / 100;
  result.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = chip % 100 / 10;
  result.attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 1;
  result.attributes[CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH] = 5120; // the H100's
  result.name = document.at("deviceName");
  result.image = whole.at("image");
  result.version = document.at("driverVer");
  result.totalBytes = document.at("totalGlobalMem");
  result.threadsPerBlock = document.at("maxThreadsPerBlock");
  result.sharedBytes = document.at("maxSharedMemoryPerBlock");
  result.optinSharedBytes = document.at("maxSharedMemoryPerBlockOptin");
  return result;
}

Description Description::read(const std::string &path) {
  std::ifstream file(path);
  if (!file)
    refuse("the device's description '" + path + "' cannot be read");
  try {
    Description result = convert(json::parse(file));
    if (result.image != "bitcode")
      refuse("'" + path + "' describes a device for images of '" + result.image +
             "', the emulator runs 'bitcode'");
    if (const char *version = std::getenv(driverVariable); version && *version)
      result.version = std::atoi(version);
    return result;
  } catch (const json::exception &error) {
    refuse("'" + path + "': " + error.what());
  }
}

Faults Faults::parse(const std::string &text) {
  Faults result;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string entry = text.substr(begin, end - begin);
    size_t colon = entry.find(':'), equals = entry.find('=');
    if (colon == std::string::npos || equals == std::string::npos || equals < colon)
      refuse("the fault '" + entry + "' is not of the form FUNCTION:N=ERROR");
    int64_t number = std::atoll(entry.c_str() + colon + 1);
    int error = std::atoi(entry.c_str() + equals + 1);
    if (number < 1 || error < 1)
      refuse("the fault '" + entry + "' needs a call from 1 on and an error's number");
    result.faults.push_back({entry.substr(0, colon), number, CUresult(error)});
    begin = end + 1;
  }
  return result;
}

CUresult Faults::count(const char *function) {
  CUresult answer = CUDA_SUCCESS;
  for (Fault &fault : faults)
    if (fault.function == function && fault.left-- == 1)
      answer = fault.error;
  return answer;
}
