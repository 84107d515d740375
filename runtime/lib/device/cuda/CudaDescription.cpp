//===- CudaDescription.cpp - what the compiler needs to know of a GPU -----===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaDevice.h"
#include <algorithm>
#include <nlohmann/json.hpp>

using namespace memopt;
using namespace memopt::cuda;
using nlohmann::json;

/// Properties by the names that cuDNN reads them under.
static const std::pair<const char *, CUdeviceAttribute> attributeKeys[] = {
    {"regsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {"multiProcessorCount", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"warpSize", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {"maxSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"maxSharedMemoryPerBlockOptin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"reservedSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
    {"maxRegistersPerSM", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"maxCtasPerSM", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {"maxThreadsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"maxThreadsPerSM", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"pciDeviceId", CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {"isTccDriver", CU_DEVICE_ATTRIBUTE_TCC_DRIVER},
    {"supportCoopLaunch", CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
    {"smClockRateKHz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {"memClockRateKHz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {"l2CacheSize", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
};

/// The device's version: 900 is 9.0.
static StatusOr<int> getVersion(const CudaContext &context) {
  MEMOPT_ASSIGN_OR_RETURN(int major,
                          context.getAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  MEMOPT_ASSIGN_OR_RETURN(int minor,
                          context.getAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  return major * 100 + minor * 10;
}

StatusOr<std::string> memopt::getCudaChip(const CudaContext &context) {
  MEMOPT_ASSIGN_OR_RETURN(int version, getVersion(context));
  return "sm_" + std::to_string(version / 10);
}

/// An extent for each of three dimensions.
static StatusOr<json> getExtents(const CudaContext &context, CUdeviceAttribute first) {
  json extents = json::array();
  for (int i = 0; i < 3; ++i) {
    MEMOPT_ASSIGN_OR_RETURN(int extent, context.getAttribute(CUdeviceAttribute(first + i)));
    extents.push_back(extent);
  }
  return extents;
}

static StatusOr<json> measureProperties(const CudaContext &context) {
  json properties = json::object();
  for (auto [key, attribute] : attributeKeys) {
    MEMOPT_ASSIGN_OR_RETURN(properties[key], context.getAttribute(attribute));
  }
  MEMOPT_ASSIGN_OR_RETURN(properties["maxGridSize"],
                          getExtents(context, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X));
  MEMOPT_ASSIGN_OR_RETURN(properties["maxBlockSize"],
                          getExtents(context, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X));
  MEMOPT_ASSIGN_OR_RETURN(properties["deviceVer"], getVersion(context));
  int driverVersion = 0;
  size_t total = 0;
  char name[256] = "";
  MEMOPT_RETURN_IF_ERROR(context.driverGetVersion(&driverVersion));
  MEMOPT_RETURN_IF_ERROR(context.deviceTotalMem(&total, context.getDevice()));
  MEMOPT_RETURN_IF_ERROR(context.deviceGetName(name, int(sizeof name), context.getDevice()));
  properties["driverVer"] = driverVersion;
  properties["totalGlobalMem"] = total;
  properties["deviceName"] = name;
  properties["cudaDeviceId"] = 0;
  return properties;
}

/// What a multiprocessor does in a turn of its clock, a product and a sum as two: of f32, and what
/// NVIDIA's data sheets say of its tensor cores with sums in f32.
struct Units {
  int oldest; ///< version of the first device with them
  double single, tf32, narrow;
  double tf32OfGeForce, narrowOfGeForce; ///< whose tensor cores have half of the speed
};

static const Units &findUnits(int version) {
  static constexpr Units all[] = {
      {750, 128, 128, 1024, 128, 512},     {800, 128, 1024, 2048, 1024, 2048},
      {860, 256, 512, 1024, 256, 512},     {900, 256, 2048, 4096, 2048, 4096},
      {1000, 256, 4096, 8192, 4096, 8192}, {1200, 256, 512, 1024, 256, 512}};
  const Units *found = all;
  for (const Units &units : all)
    if (version >= units.oldest)
      found = &units;
  return *found;
}

/// Rates that nobody measured are shares of what units, clocks and the memory's bus could do, the
/// shares of the shipped descriptions. They order plans; a calibration replaces them.
static StatusOr<json> guessRates(const CudaContext &context, const json &properties) {
  MEMOPT_ASSIGN_OR_RETURN(int busBits,
                          context.getAttribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
  const Units &units = findUnits(properties["deviceVer"]);
  bool isGeForce = properties["deviceName"].get<std::string>().find("GeForce") != std::string::npos;
  double turns = properties["multiProcessorCount"].get<double>() *
                 properties["smClockRateKHz"].get<double>() * 1e3,
         single = turns * units.single,
         tf32 = turns * (isGeForce ? units.tf32OfGeForce : units.tf32),
         narrow = turns * (isGeForce ? units.narrowOfGeForce : units.narrow),
         matmul = single * 0.75, convolution = std::max(tf32 * 0.5, matmul),
         memory = properties["memClockRateKHz"].get<double>() * 1e3 * 2 * busBits / 8;
  return json{{"matmul_operations_per_second", matmul},
              {"convolution_operations_per_second", convolution},
              {"convolution_weight_operations_per_second", convolution},
              {"group_convolution_operations_per_second", single * 0.45},
              {"narrow_matmul_speed", narrow * 0.55 / matmul},
              {"narrow_convolution_speed", std::max(narrow * 0.45 / convolution, 1.0)},
              {"attention_forward_operations_per_second", single * 0.37},
              {"attention_backward_operations_per_second", single * 0.31},
              {"narrow_attention_speed", std::clamp(narrow * 0.5 / (single * 0.37), 1.0, 8.0)},
              {"attention_scores_per_second", single / 33},
              {"kernel_operations_per_second", single * 0.45},
              {"kernel_functions_per_second", single / 33},
              {"cache_bytes_per_second", turns * 21},
              {"memory_bytes_per_second", memory * 0.9},
              {"cache_bytes", properties["l2CacheSize"]},
              {"kernel_start_seconds", 2e-6},
              {"call_start_seconds", 3e-6},
              {"convolution_start_seconds", 3e-6}};
}

/// What is taken now, by the context and by others, and room for code, libraries and graphs: on an
/// H100 cuBLASLt took 410 MB, and cuDNN beside it up to 220 more.
static StatusOr<int64_t> estimateOverhead(const CudaContext &context) {
  size_t free = 0, total = 0;
  MEMOPT_RETURN_IF_ERROR(context.memGetInfo(&free, &total));
  int64_t room = int64_t(context.isEmulated() ? 5 : 640) << 20;
  return int64_t(total - free) + room;
}

StatusOr<std::string> memopt::describeCudaDevice(const CudaContext &context) {
  MEMOPT_ASSIGN_OR_RETURN(json properties, measureProperties(context));
  MEMOPT_ASSIGN_OR_RETURN(std::string chip, getCudaChip(context));
  MEMOPT_ASSIGN_OR_RETURN(int64_t overhead, estimateOverhead(context));
  std::string name = properties["deviceName"];
  MEMOPT_ASSIGN_OR_RETURN(json rates, guessRates(context, properties));
  json description = {
      {"format", "memopt-device"},
      {"version", 1},
      {"name", name},
      {"chip", chip},
      {"image", context.isEmulated() ? context.getDriver().emulatedImage() : "cubin"},
      {"origin",
       "properties as the driver gives them; rates guessed from its clocks and its memory's bus"},
      {"overhead_bytes", overhead},
      {"properties", properties},
      {"rates", rates}};
  return description.dump(2) + "\n";
}
