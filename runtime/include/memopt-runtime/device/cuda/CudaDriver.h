//===- CudaDriver.h - what memopt uses of NVIDIA's driver -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of the driver's interface that the runtime calls, so that it builds where no toolkit is:
// types and numbers as libcuda.so.1 has them, and a table of functions that is filled at run time.
// NVIDIA's documentation of the driver API says what each does. The emulator (test/emulator) offers
// the same functions; what it has beyond them stands at the end.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CUDA_CUDADRIVER_H
#define MEMOPT_RUNTIME_DEVICE_CUDA_CUDADRIVER_H

#include <cstddef>
#include <cstdint>

namespace memopt::cuda {

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

using CUdevice = int;
/// Of a device, or of an instance that one was cut into.
struct CUuuid {
  char bytes[16];
};
using CUdeviceptr = unsigned long long;
using CUmemHandle = unsigned long long;
using CUcontext = struct CUctx_st *;
using CUstream = struct CUstream_st *;
using CUevent = struct CUevent_st *;
using CUmodule = struct CUmod_st *;
using CUfunction = struct CUfunc_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphExec = struct CUgraphExec_st *;

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_FILE_NOT_FOUND = 301,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_CAPTURED_EVENT = 907,
};

enum CUdeviceAttribute : int {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2, // then y and z
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,  // then y and z
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
  CU_DEVICE_ATTRIBUTE_TCC_DRIVER = 35,
  CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
  CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37, // in bits
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
  CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
  CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
};

enum CUfunctionAttribute : int { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

enum CUstreamCaptureMode : int {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

enum : unsigned {
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_MEMHOSTREGISTER_PORTABLE = 1,
  CU_MEM_ALLOCATION_TYPE_PINNED = 1,
  CU_MEM_LOCATION_TYPE_DEVICE = 1,
  CU_MEM_HANDLE_TYPE_NONE = 0,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
  CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
};

struct CUmemLocation {
  unsigned type;
  int id;
};

struct CUmemAllocationProp {
  unsigned type, requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};

struct CUmemAccessDesc {
  CUmemLocation location;
  unsigned flags;
};

//===----------------------------------------------------------------------===//
// What the emulator has beyond a driver
//===----------------------------------------------------------------------===//

/// Bytes that a call on the host touches.
struct EmulatedAccess {
  const void *begin;
  int64_t bytes;
  int32_t isWritten; ///< 0: they are only read
  int32_t
      alignment; ///< a device's library would demand, or was told, that they begin at its multiples
};

/// A library call that the cpu does in a stream's order; on `buffers` as they were given.
using EmulatedCall = CUresult (*)(void *object, void *const *buffers);

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

struct Driver {
#define MEMOPT_CUDA_FUNCTION(field, symbol, parameters) CUresult(*field) parameters;
#include "memopt-runtime/device/cuda/CudaDriver.def"

  // Of the emulator; null with a real driver.

  /// What images it loads, as the key "image" of its description says: "bitcode".
  const char *(*emulatedImage)();
  /// Calls run(object, buffers) in the order of the stream, where the bytes of `accesses` count as
  /// touched by it. `buffers` and `accesses` are copied.
  CUresult (*emulatedCall)(CUstream stream, const char *name, EmulatedCall run, void *object,
                           void *const *buffers, size_t bufferCount, const EmulatedAccess *accesses,
                           size_t accessCount);
  /// Gives bytes inside an allocation a name; of an allocation with named bytes kernels may touch
  /// no others. No bytes take the name back.
  CUresult (*emulatedName)(CUdeviceptr address, size_t bytes, const char *name);
};

} // namespace memopt::cuda

#endif // MEMOPT_RUNTIME_DEVICE_CUDA_CUDADRIVER_H
