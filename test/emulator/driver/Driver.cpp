//===- Driver.cpp - the device, its memory, modules -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/driver/Emulator.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sys/mman.h>

using namespace memopt::emulator;

//===----------------------------------------------------------------------===//
// The device
//===----------------------------------------------------------------------===//

static const std::tuple<CUresult, const char *, const char *> errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
};

static CUresult describeError(CUresult error, const char **text, bool isName) {
  *text = nullptr;
  for (auto [known, name, meaning] : errors)
    if (known == error)
      *text = isName ? name : meaning;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
  return describeError(error, name, /*isName=*/true);
}
CUresult cuGetErrorString(CUresult error, const char **text) {
  return describeError(error, text, /*isName=*/false);
}

CUresult cuInit(unsigned flags) {
  return enter("cuInit", [&](Emulator &) { return CUDA_SUCCESS; });
}

CUresult cuDriverGetVersion(int *version) {
  return enter("cuDriverGetVersion", [&](Emulator &emulator) {
    *version = emulator.description.version;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetCount(int *count) {
  return enter("cuDeviceGetCount", [&](Emulator &) {
    *count = 1;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice *device, int number) {
  return enter("cuDeviceGet", [&](Emulator &) {
    *device = 0;
    return number == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  return enter("cuDeviceGetName", [&](Emulator &emulator) {
    std::snprintf(name, size_t(size), "%s", emulator.description.name.c_str());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  return enter("cuDeviceGetUuid", [&](Emulator &) {
    *uuid = CUuuid{"emulated device"};
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int *value, CUdeviceAttribute attribute, CUdevice device) {
  return enter("cuDeviceGetAttribute", [&](Emulator &emulator) {
    auto known = emulator.description.attributes.find(attribute);
    if (known == emulator.description.attributes.end())
      return CUDA_ERROR_INVALID_VALUE;
    *value = known->second;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  return enter("cuDeviceTotalMem_v2", [&](Emulator &emulator) {
    *bytes = emulator.memory.getTotal();
    return CUDA_SUCCESS;
  });
}

/// There is one context, and it is always current.
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  return enter("cuDevicePrimaryCtxRetain", [&](Emulator &emulator) {
    *context = reinterpret_cast<CUcontext>(&emulator);
    size_t bytes = Memory::contextBytes;
    return emulator.contextUsers++ ? CUDA_SUCCESS : emulator.memory.take(bytes);
  });
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return enter("cuDevicePrimaryCtxRelease_v2", [&](Emulator &emulator) {
    if (--emulator.contextUsers == 0)
      emulator.memory.giveBack(Memory::contextBytes);
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxSetCurrent(CUcontext context) {
  return enter("cuCtxSetCurrent", [&](Emulator &) { return CUDA_SUCCESS; });
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Does what a graph under construction does not allow.
template <typename Body> static CUresult enterUncaptured(const char *function, Body body) {
  return enter(function, [&](Emulator &emulator) {
    CUresult refusal = emulator.refuseCapture();
    return refusal ? refusal : body(emulator);
  });
}

/// Nothing that is still under way may lose its memory.
static CUresult finishAll(Emulator &emulator) {
  return emulator.wait(emulator.timeline.getPending());
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  return enter("cuMemGetInfo_v2", [&](Emulator &emulator) {
    *free = emulator.memory.getFree();
    *total = emulator.memory.getTotal();
    return CUDA_SUCCESS;
  });
}

template <typename Get> static CUresult giveAddress(CUdeviceptr *address, Get get) {
  uintptr_t place = 0;
  CUresult result = get(place);
  *address = place;
  return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  return enterUncaptured("cuMemAlloc_v2", [&](Emulator &emulator) {
    return giveAddress(address,
                       [&](uintptr_t &place) { return emulator.memory.allocate(place, bytes); });
  });
}

/// As the driver does, it waits for all that is under way.
CUresult cuMemFree_v2(CUdeviceptr address) {
  return enterUncaptured("cuMemFree_v2", [&](Emulator &emulator) {
    CUresult result = finishAll(emulator);
    emulator.races.forget();
    return result ? result : emulator.memory.free(address);
  });
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                       unsigned option) {
  return enter("cuMemGetAllocationGranularity", [&](Emulator &) {
    *bytes = Memory::granularity;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags) {
  return enterUncaptured("cuMemAddressReserve", [&](Emulator &emulator) {
    if (alignment > Memory::granularity || flags)
      return CUDA_ERROR_INVALID_VALUE;
    return giveAddress(address,
                       [&](uintptr_t &place) { return emulator.memory.reserve(place, bytes); });
  });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return enterUncaptured("cuMemAddressFree", [&](Emulator &emulator) {
    return emulator.memory.unreserve(address, bytes);
  });
}

CUresult cuMemCreate(CUmemHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
  return enterUncaptured("cuMemCreate", [&](Emulator &emulator) {
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties->location.id != 0)
      return CUDA_ERROR_INVALID_VALUE;
    uint64_t number = 0;
    CUresult result = emulator.memory.create(number, bytes);
    *handle = number;
    return result;
  });
}

CUresult cuMemRelease(CUmemHandle handle) {
  return enter("cuMemRelease", [&](Emulator &emulator) { return emulator.memory.release(handle); });
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemHandle handle,
                  unsigned long long flags) {
  return enterUncaptured("cuMemMap", [&](Emulator &emulator) {
    return emulator.memory.map(address, bytes, offset, handle);
  });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return enterUncaptured("cuMemUnmap", [&](Emulator &emulator) {
    CUresult result = finishAll(emulator);
    emulator.races.forget(address, bytes);
    return result ? result : emulator.memory.unmap(address, bytes);
  });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                        size_t count) {
  return enter("cuMemSetAccess", [&](Emulator &emulator) {
    if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    return emulator.memory.setAccess(address, bytes);
  });
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  return enterUncaptured("cuMemHostAlloc", [&](Emulator &emulator) {
    void *room = ::mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
      return CUDA_ERROR_OUT_OF_MEMORY;
    *address = room;
    return emulator.memory.pin(reinterpret_cast<uintptr_t>(room), bytes);
  });
}

/// Takes bytes out of the device's reach, once nothing is under way.
static CUresult unpin(Emulator &emulator, void *address, size_t *bytes) {
  if (CUresult result = finishAll(emulator))
    return result;
  auto begin = reinterpret_cast<uintptr_t>(address);
  CUresult result = emulator.memory.unpin(begin, bytes);
  emulator.races.forget(begin, *bytes);
  return result;
}

CUresult cuMemFreeHost(void *address) {
  return enterUncaptured("cuMemFreeHost", [&](Emulator &emulator) {
    size_t bytes = 0;
    CUresult result = unpin(emulator, address, &bytes);
    if (!result)
      ::munmap(address, bytes);
    return result;
  });
}

CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
  return enterUncaptured("cuMemHostRegister_v2", [&](Emulator &emulator) {
    return emulator.memory.pin(reinterpret_cast<uintptr_t>(address), bytes);
  });
}

CUresult cuMemHostUnregister(void *address) {
  return enterUncaptured("cuMemHostUnregister", [&](Emulator &emulator) {
    size_t bytes = 0;
    return unpin(emulator, address, &bytes);
  });
}

//===----------------------------------------------------------------------===//
// Modules and launches
//===----------------------------------------------------------------------===//

CUresult cuModuleLoad(CUmodule *module, const char *path) {
  return enterUncaptured("cuModuleLoad", [&](Emulator &emulator) {
    std::string message;
    auto code = DeviceCode::load(path, emulator.runner.getShared(), message);
    if (!code) {
      std::fprintf(stderr, "emulator: %s\n", message.c_str());
      return CUDA_ERROR_INVALID_IMAGE;
    }
    size_t bytes = std::filesystem::file_size(path);
    if (CUresult refusal = emulator.memory.take(bytes))
      return refusal;
    *module = new CUmod_st{std::move(code), bytes, {}};
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return enterUncaptured("cuModuleUnload", [&](Emulator &emulator) {
    CUresult result = finishAll(emulator);
    emulator.memory.giveBack(module->bytes);
    delete module;
    return result;
  });
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  return enter("cuModuleGetFunction", [&](Emulator &emulator) {
    const Kernel *kernel = module->code->find(name);
    if (!kernel)
      return CUDA_ERROR_NOT_FOUND;
    std::unique_ptr<CUfunc_st> &place = module->functions[name];
    if (!place)
      place.reset(new CUfunc_st{kernel, size_t(emulator.description.sharedBytes)});
    *function = place.get();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunctionAttribute attribute, int value) {
  return enter("cuFuncSetAttribute", [&](Emulator &emulator) {
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        size_t(value) + function->kernel->sharedBytes >
            size_t(emulator.description.optinSharedBytes))
      return CUDA_ERROR_INVALID_VALUE;
    function->mostSharedBytes = size_t(value);
    return CUDA_SUCCESS;
  });
}

/// What the device's limits say of a launch.
static CUresult checkLaunch(const Emulator &emulator, const CUfunc_st &function,
                            const Launch &launch) {
  uint64_t threads = uint64_t(launch.threads[0]) * launch.threads[1] * launch.threads[2];
  const std::map<int, int> &attributes = emulator.description.attributes;
  for (int i = 0; i < 3; ++i)
    if (launch.threads[i] < 1 || launch.blocks[i] < 1 ||
        launch.threads[i] > unsigned(attributes.at(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i)) ||
        launch.blocks[i] > unsigned(attributes.at(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i)))
      return CUDA_ERROR_INVALID_VALUE;
  if (threads > uint64_t(emulator.description.threadsPerBlock) ||
      launch.sharedBytes > function.mostSharedBytes ||
      function.kernel->sharedBytes + launch.sharedBytes > KernelRunner::mostSharedBytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (function.kernel->mostThreads && threads > uint64_t(function.kernel->mostThreads))
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,
                        unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,
                        CUstream stream, void **arguments, void **extra) {
  return enter("cuLaunchKernel", [&](Emulator &emulator) {
    Launch launch{
        function->kernel, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, sharedBytes, {}};
    if (extra)
      return CUDA_ERROR_NOT_SUPPORTED;
    if (CUresult refusal = checkLaunch(emulator, *function, launch))
      return refusal;
    for (size_t i = 0; i < launch.kernel->parameterBytes.size(); ++i) {
      auto *value = static_cast<const char *>(arguments[i]);
      launch.arguments.emplace_back(value, value + launch.kernel->parameterBytes[i]);
    }
    auto run = [&emulator, launch](AccessLog &log, std::mt19937_64 &random,
                                   const std::string &name) {
      if (CUresult fault = emulator.faults.count("kernel"))
        return fault;
      return emulator.runner.run(launch, name, random, log);
    };
    return emulator.enqueue(stream, {"kernel " + launch.kernel->name, run});
  });
}

//===----------------------------------------------------------------------===//
// Beyond a driver (memopt-runtime/CudaDriver.h)
//===----------------------------------------------------------------------===//

extern "C" __attribute__((visibility("default"))) const char *memoptEmulatedImage() {
  return "bitcode";
}

/// What a library would not notice, and then compute wrongly or fail.
static bool isMisaligned(const Emulator &emulator, const char *call,
                         const std::vector<EmulatedAccess> &accesses) {
  for (const EmulatedAccess &access : accesses) {
    auto begin = reinterpret_cast<uintptr_t>(access.begin);
    if (begin % uintptr_t(access.alignment) == 0)
      continue;
    std::fprintf(stderr, "emulator: %s gets %lld bytes at %s, no multiple of %d\n", call,
                 static_cast<long long>(access.bytes), emulator.memory.describe(begin).c_str(),
                 access.alignment);
    return true;
  }
  return false;
}

extern "C" __attribute__((visibility("default"))) CUresult memoptEmulatedCall(
    CUstream stream, const char *name, EmulatedCall call, void *object, void *const *buffers,
    size_t bufferCount, const EmulatedAccess *accesses, size_t accessCount) {
  return enter("memoptEmulatedCall", [&](Emulator &emulator) {
    if (isMisaligned(emulator, name, {accesses, accesses + accessCount}))
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    auto run = [call, object, places = std::vector<void *>(buffers, buffers + bufferCount),
                touched = std::vector<EmulatedAccess>(accesses, accesses + accessCount),
                &emulator](AccessLog &log, std::mt19937_64 &, const std::string &operation) {
      for (const EmulatedAccess &access : touched) {
        auto begin = reinterpret_cast<uintptr_t>(access.begin);
        if (!emulator.memory.isReachableByKernels(begin, size_t(access.bytes))) {
          std::fprintf(stderr, "emulator: %s touches %lld bytes at %s\n", operation.c_str(),
                       static_cast<long long>(access.bytes),
                       emulator.memory.describe(begin).c_str());
          return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        log.add(begin, size_t(access.bytes), access.isWritten != 0);
      }
      return call(object, places.data());
    };
    return emulator.enqueue(stream, {name, run});
  });
}

extern "C" __attribute__((visibility("default"))) CUresult memoptEmulatedName(CUdeviceptr address,
                                                                              size_t bytes,
                                                                              const char *name) {
  return enter("memoptEmulatedName",
               [&](Emulator &emulator) { return emulator.memory.name(address, bytes, name); });
}
