//===- CudaArena.h - memory of a GPU, and the host's for it -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Memory of the device is one piece of physical memory, mapped in the middle of a larger range of
// addresses: what is left of the range lies before and behind it as guards that nothing is mapped
// to. Where the driver maps none it is allocated, without guards. A checked arena lies in it as one
// of the host's would (Arena.h); what it observes is read back piece by piece.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_DEVICE_CUDA_CUDAARENA_H
#define MEMOPT_RUNTIME_LIB_DEVICE_CUDA_CUDAARENA_H

#include "memopt-runtime/device/cuda/CudaContext.h"
#include "memopt-runtime/memory/Arena.h"

namespace memopt {

class CudaArena final : public Arena {
public:
  /// Both must outlive the arena.
  static StatusOr<std::unique_ptr<Arena>> allocate(const CudaContext &context, CudaStaging &staging,
                                                   int64_t bytes, bool isChecked);
  ~CudaArena() override;

  bool isHostAccessible() const override { return false; }
  int64_t residentBytes() const override { return mappedBytes; }
  Status read(int64_t offset, void *to, int64_t size) const override;
  Status write(int64_t offset, const void *from, int64_t size) override;
  using Arena::reset;
  Status reset(const PieceRunner &runPieces) override;
  Status updateMark() override;
  Status checkSlack() const override;
  bool isGuard(const void *address) const override;

private:
  CudaArena(const CudaContext &context, CudaStaging &staging)
      : context(context), staging(staging) {}
  Status map();
  Status mapRange(unsigned handles);
  Status allocatePlainly();
  Status open();
  void release();
  Status fillWithPattern();
  StatusOr<int64_t> findWritten(int64_t begin, int64_t end) const;

  const CudaContext &context;
  CudaStaging &staging;
  bool isChecked = false, isMapped = false;
  bool isPlain = false;                    ///< allocated, and not mapped
  bool isFull = false;                     ///< the device had no memory left
  cuda::CUdeviceptr range = 0, mapped = 0; ///< begin of the addresses, and of the memory
  int64_t mappedBytes = 0, guardBytes = 0; ///< a guard's
};

/// Memory of the host that the device reaches without a detour.
StatusOr<std::unique_ptr<Arena>> allocatePinned(const CudaContext &context, int64_t bytes,
                                                bool isChecked);

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_DEVICE_CUDA_CUDAARENA_H
