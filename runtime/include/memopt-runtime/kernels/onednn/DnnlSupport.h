//===- DnnlSupport.h - oneDNN primitives with planned memory ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Primitives are created for one number of threads, by which some cut their sums, and run on so
// many members of a team (OpenMpTeam.h), whatever threads there are.
//
// A call is a list of primitives on slots; a slot is a memory object whose address is set before
// each run, from the caller's buffers or from an offset in the workspace. Memory objects, argument
// maps and generated code exist from creation on, so running allocates only what oneDNN's own
// bookkeeping does (entries below 200 bytes).
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_KERNELS_ONEDNN_DNNLSUPPORT_H
#define MEMOPT_RUNTIME_KERNELS_ONEDNN_DNNLSUPPORT_H

#include "memopt-runtime/descriptors/ElementTypes.h"
#include "memopt-runtime/descriptors/LibraryCalls.h"
#include "memopt-runtime/kernels/onednn/OpenMpTeam.h"
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace memopt::libraries {

/// Scratch memory belongs to the plan: nothing is allocated behind it.
dnnl::primitive_attr plannedScratchpad();

/// Adds what is made to what the result holds.
inline dnnl::post_ops sumWithResult() {
  dnnl::post_ops sum;
  sum.append_sum();
  return sum;
}

/// Whether this processor multiplies numbers of `type` itself. oneDNN computes bf16 on others, too,
/// four times slower than our own kernels, which widen what they read.
bool isNative(ElementType type);
dnnl::memory::data_type getDataType(ElementType type);
/// Of a call's result.
dnnl::memory::data_type getResultType(ElementType type, bool isWide);
inline int64_t getBytes(dnnl::memory::data_type type) {
  return static_cast<int64_t>(dnnl::memory::data_type_size(type));
}

/// Whether oneDNN's regions come to an OpenMpScope. It depends on how this process was put together
/// (OpenMpTeam.h), so it is tried: every primitive that is made asks for the number of threads.
bool isOnOurTeam();

/// Holds oneDNN to what our own kernels are held to (isHeldToAvx2). Must be asked before oneDNN
/// makes its first primitive.
Status limitInstructions();

/// Moves `description` to its first implementation that keeps our promises; false when there is
/// none. Reference code is a thousand times slower, and whatever goes through oneDNN's GEMM
/// allocates packing buffers in every run, outside the scratchpad. `isRefused`, if there is
/// such, knows by name which others do not keep them here.
template <typename Description>
bool selectImplementation(Description &description,
                          const std::function<bool(std::string_view)> &isRefused = nullptr) {
  do {
    std::string name = description.impl_info_str();
    if (name.find("ref") == std::string::npos && name.find("gemm:") == std::string::npos &&
        !(isRefused && isRefused(name)))
      return true;
  } while (description.next_impl());
  return false;
}

class DnnlCall : public LibraryCall {
public:
  /// `waitForEachOther`: members of a primitive's team meet in barriers. Of the primitives that we
  /// use only the gradients of convolutions' weights do (oneDNN 3.2, src/cpu/x64: simple_barrier
  /// and dnnl_thr_barrier), where they add up what each has summed.
  DnnlCall(int threads, bool waitForEachOther)
      : threads(threads), waitForEachOther(waitForEachOther) {}
  int64_t workspaceBytes() const override { return workspace; }
  std::string implementation() const override { return name; }
  int getTeam() const override { return waitForEachOther ? threads : 1; }
  Status run(void *const *buffers, ThreadPool &pool) override;
  Status warmUp(void *const *buffers, ThreadPool &pool) override { return run(buffers, pool); }

protected:
  using Arguments = std::unordered_map<int, dnnl::memory>;

  /// `buffer` of the caller, from byte `offset` on.
  dnnl::memory callerBuffer(const dnnl::memory::desc &layout, int buffer, int64_t offset = 0);
  /// Memory of the workspace. Each call gives fresh memory unless `offset` names an earlier place.
  dnnl::memory workspaceBuffer(const dnnl::memory::desc &layout);
  dnnl::memory workspaceBufferAt(const dnnl::memory::desc &layout, int64_t offset);
  /// Grows the workspace by `bytes`; the offset of the new part.
  int64_t reserve(int64_t bytes);

  /// Appends a primitive. All primitives share one scratchpad: they run one after another.
  void append(const dnnl::primitive &primitive, const dnnl::memory::desc &scratchpad,
              Arguments arguments);
  /// Appends a copy that changes layout, or adds to what is there.
  void appendReorder(const dnnl::memory &from, const dnnl::memory &to, bool adds = false);
  /// To be called last: places the scratchpad and the index of the workspace among the buffers.
  void finish(std::string implementation, int workspaceBufferIndex);

  const dnnl::engine engine{dnnl::engine::kind::cpu, 0};

private:
  dnnl::memory withoutStorage(const dnnl::memory::desc &layout) const;

  struct Slot {
    dnnl::memory memory;
    int buffer; ///< -1: the workspace
    int64_t offset;
  };
  struct Step {
    dnnl::primitive primitive;
    Arguments arguments;
  };

  const dnnl::stream stream{engine};
  std::vector<Slot> slots;
  std::vector<Step> steps;
  std::vector<dnnl::memory> scratchpads;
  int64_t workspace = 0, scratchpadBytes = 0;
  const int threads;
  const bool waitForEachOther;
  int workspaceIndex = 0;
  std::string name;
};

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_KERNELS_ONEDNN_DNNLSUPPORT_H
