//===- Assembler.cpp - machine code of a device -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ptxas reads and writes files, so its input and what it says lie beside its output until it is
// done.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Threads/Nvvm/DeviceCode.h"

#include "memopt/Support/Toolkit.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Regex.h"

#include <cstdlib>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// What ptxas says
//===----------------------------------------------------------------------===//

static int64_t readNumber(StringRef text) {
  int64_t number = 0;
  text.getAsInteger(10, number);
  return number;
}

int64_t MultiprocessorLimits::countResidentBlocks(const KernelResources &kernel,
                                                  const KernelLaunch &launch) const {
  constexpr int64_t warpThreads = 32, parts = 4, registerUnit = 256;
  int64_t warps = llvm::divideCeil(launch.threads, warpThreads);
  int64_t registersOfWarp =
      llvm::alignTo(std::max<int64_t>(kernel.registers, 1) * warpThreads, registerUnit);
  int64_t warpsByRegisters = registers / parts / registersOfWarp * parts;
  int64_t shared = kernel.sharedBytes + launch.sharedBytes + reservedSharedBytes;
  int64_t count = std::min({blocks, threads / (warps * warpThreads), warpsByRegisters / warps,
                            sharedBytes / std::max<int64_t>(shared, 1)});
  return std::max<int64_t>(count, 1);
}

SmallVector<KernelResources> mlir::memopt::parseResources(StringRef text) {
  const llvm::Regex entry("Compiling entry function '([^']+)'");
  const llvm::Regex stack("([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, "
                          "([0-9]+) bytes spill loads");
  const llvm::Regex registers("Used ([0-9]+) registers"), shared("([0-9]+) bytes smem");
  SmallVector<KernelResources> kernels;
  SmallVector<StringRef> words;
  for (StringRef line : llvm::split(text, '\n')) {
    if (entry.match(line, &words)) {
      kernels.emplace_back().name = words[1].str();
      continue;
    }
    if (kernels.empty())
      continue;
    KernelResources &kernel = kernels.back();
    if (stack.match(line, &words)) {
      kernel.stackBytes += readNumber(words[1]);
      kernel.spillBytes += readNumber(words[2]) + readNumber(words[3]);
    }
    if (registers.match(line, &words))
      kernel.registers = readNumber(words[1]);
    if (shared.match(line, &words))
      kernel.sharedBytes = readNumber(words[1]);
  }
  return kernels;
}

//===----------------------------------------------------------------------===//
// ptxas
//===----------------------------------------------------------------------===//

static bool writeText(StringRef path, StringRef text, std::string &message) {
  std::error_code error;
  llvm::raw_fd_ostream os(path, error);
  if (!error) {
    os << text;
    os.close();
    error = os.error();
    os.clear_error();
  }
  if (error)
    message = ("cannot write " + path + ": " + error.message()).str();
  return !error;
}

bool mlir::memopt::giveAllRegisters(std::string &ptx, ArrayRef<KernelResources> kernels) {
  constexpr StringLiteral directive = ".minnctapersm ";
  bool changes = false;
  for (const KernelResources &kernel : kernels) {
    if (!kernel.stackBytes && !kernel.spillBytes)
      continue;
    size_t begin = ptx.find(".entry " + kernel.name + "(");
    size_t body = begin == std::string::npos ? begin : ptx.find('{', begin);
    size_t place = body == std::string::npos ? body : ptx.find(directive, begin);
    if (place >= body)
      continue;
    place += directive.size();
    size_t digits = ptx.find_first_not_of("0123456789", place) - place;
    if (StringRef(ptx).substr(place, digits) == "1")
      continue;
    ptx.replace(place, digits, "1");
    changes = true;
  }
  return changes;
}

static FailureOr<SmallVector<KernelResources>> assembleOnce(StringRef ptx, StringRef chip,
                                                            StringRef path, std::string &message,
                                                            StringRef level = "-O3") {
  std::string assembler = ::memopt::findToolkitFile("bin/ptxas");
  if (assembler.empty()) {
    message =
        "ptxas, NVIDIA's assembler, is not found in $CUDA_HOME, the build's environment, PATH "
        "or /usr/local/cuda; tools/install.sh --with-cuda installs it, and --emit=ptx needs "
        "none";
    return failure();
  }
  std::string input = (path + ".in.ptx").str(), said = (path + ".log").str();
  llvm::FileRemover removeInput(input), removeSaid(said);
  if (!writeText(input, ptx, message))
    return failure();
  std::string arch = ("-arch=" + chip).str();
  SmallVector<StringRef> arguments{assembler, arch, level, "-v", input, "-o", path};
  std::optional<StringRef> streams[] = {std::nullopt, StringRef(said), StringRef(said)};
  int code = llvm::sys::ExecuteAndWait(assembler, arguments, std::nullopt, streams, 0, 0, &message);
  std::string text;
  if (auto file = llvm::MemoryBuffer::getFile(said, /*IsText=*/true))
    text = (*file)->getBuffer().str();
  if (code == 0)
    return parseResources(text);
  message = assembler + " answered " + std::to_string(code) + ": " + message + text;
  return failure();
}

FailureOr<SmallVector<KernelResources>>
mlir::memopt::assemblePtx(std::string &ptx, StringRef chip, StringRef path, std::string &message) {
  FailureOr<SmallVector<KernelResources>> kernels = assembleOnce(ptx, chip, path, message);
  if (succeeded(kernels) && giveAllRegisters(ptx, *kernels))
    kernels = assembleOnce(ptx, chip, path, message);
  // Instructions that change places less keep fewer numbers waiting.
  if (succeeded(kernels) && llvm::any_of(*kernels, [](const KernelResources &kernel) {
        return kernel.stackBytes || kernel.spillBytes;
      }))
    return assembleOnce(ptx, chip, path, message, "-O1");
  return kernels;
}
