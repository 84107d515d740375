//===- LibraryCalls.h - convolution, matmul and attention calls ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The operations of a program that are not generated code: matmul, convolution and attention. A
// call is described by a JSON object (docs/LibraryCalls.md lists the kinds and their keys), the
// same one for the compiler, which asks how large a workspace to plan, and for the runtime, which
// runs it inside that workspace. Each call is oneDNN primitives or our own kernels; a rule on
// shapes and on the processor decides, never a measurement, so one descriptor always gives one
// implementation on a machine.
//
// Promises:
//   memory       run() reads and writes `buffers` only and allocates nothing of 4 KiB or more
//   determinism  bits follow from the descriptor, `threads` of create() and the processor; the
//                number of threads that happen to run it does not matter
//   coverage     every descriptor with legal shapes has an implementation
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DESCRIPTORS_LIBRARYCALLS_H
#define MEMOPT_RUNTIME_DESCRIPTORS_LIBRARYCALLS_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace memopt {

class ThreadPool;

/// An operand or result of a call: bytes from its first to its last element, gaps included.
struct BufferUse {
  int64_t bytes;
  bool isWritten;
};

class LibraryCall {
public:
  virtual ~LibraryCall() = default;

  /// Checks `descriptor` and prepares the call for `threads` threads (at least 1). Everything that
  /// takes time or memory (choice of implementation, code generation in oneDNN) happens here. A
  /// descriptor that is malformed or contradicts itself gives BadInput, naming the key.
  static StatusOr<std::unique_ptr<LibraryCall>> create(const nlohmann::json &descriptor,
                                                       int threads);

  /// Bytes of scratch memory that run() needs as its last buffer; 0 when it needs none. Depends on
  /// the processor too: a program planned elsewhere must be checked against it before it runs.
  virtual int64_t workspaceBytes() const = 0;

  /// What will run, for reports: `brg:avx512_core`, `memopt:avx512`.
  virtual std::string implementation() const = 0;

  /// Bytes of the weights of a convolution, or of the right operand of a product of few rows, as the
  /// library reads them, where it packs them in each run and would take them packed; else 0. Packed
  /// by a call of their own they change no bit of the result.
  virtual int64_t packedWeightBytes() const { return 0; }

  /// What it takes by what the fastest way for this descriptor takes, as far as is known: more than
  /// 1 where a limit of the workspace ruled that out.
  virtual double getSlowdown() const { return 1; }

  /// The operands and results of run(), without the workspace.
  const std::vector<BufferUse> &getBuffers() const { return buffers; }
  void setBuffers(std::vector<BufferUse> uses) { buffers = std::move(uses); }

  /// Threads that it needs at the same time, where they wait for each other: at most as many as it
  /// was created for.
  virtual int getTeam() const { return 1; }

  /// Runs the call on the threads of `pool`, which has those of getTeam() at least. `buffers` holds
  /// the address of the first element of each operand, then of each result, then the workspace
  /// (64-byte aligned; ignored when workspaceBytes() is 0). Buffers of results must not overlap any
  /// other. Not to be called from two threads at once.
  virtual Status run(void *const *buffers, ThreadPool &pool) = 0;

  /// Does what else a first run would do and allocate for (oneDNN generates the code of barriers
  /// when it first meets one), on buffers as for run(), whose contents mean nothing and which may
  /// overlap, but for the workspace. Called before any run that must allocate nothing.
  virtual Status warmUp(void *const *buffers, ThreadPool &pool) { return Status::ok(); }

private:
  std::vector<BufferUse> buffers;
};

/// Makes a library call from its descriptor for a number of threads: LibraryCall::create in
/// programs that link the libraries, something smaller in tests.
using LibraryCallFactory = std::function<StatusOr<std::unique_ptr<LibraryCall>>(
    const nlohmann::json &descriptor, int threads)>;

} // namespace memopt

#endif // MEMOPT_RUNTIME_DESCRIPTORS_LIBRARYCALLS_H
