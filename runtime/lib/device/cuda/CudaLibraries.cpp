//===- CudaLibraries.cpp - what makes calls on a GPU ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaLibraries.h"
#include "memopt-runtime/base/Files.h"
#include <cstdlib>
#include <dlfcn.h>

using namespace memopt;
using namespace memopt::cuda;

/// Where Python keeps NVIDIA's packages if this code is installed as one of its packages, too.
static std::string getPackagesBeside() {
  Dl_info info{};
  if (!::dladdr(reinterpret_cast<void *>(&getPackagesBeside), &info) || !info.dli_fname)
    return "";
  return getFolder(getFolder(getFolder(getRealPath(info.dli_fname)))) + "/nvidia/";
}

/// Loads what the loader finds under one of `names`, else what $CUDA_HOME has of them, or a package
/// beside this one. The error is that of the first name.
template <typename Library>
static StatusOr<std::unique_ptr<Library>> load(std::initializer_list<const char *> names,
                                               const char *package) {
  Status first;
  auto attempt = [&](const std::string &path) -> std::unique_ptr<Library> {
    StatusOr<std::unique_ptr<Library>> library = Library::load(path);
    if (library.isOk())
      return *std::move(library);
    if (first.isOk())
      first = library.takeStatus();
    return nullptr;
  };
  const char *home = std::getenv("CUDA_HOME");
  for (const char *name : names) {
    if (std::unique_ptr<Library> library = attempt(name))
      return library;
    for (const char *folder : {"/lib64/", "/lib/"})
      if (home)
        if (std::unique_ptr<Library> library = attempt(home + std::string(folder) + name))
          return library;
    for (const char *folder : {"cu13/lib/", "cudnn/lib/", "nccl/lib/"})
      if (std::string path = getPackagesBeside() + folder + name; fileExists(path))
        if (std::unique_ptr<Library> library = attempt(path))
          return library;
  }
  return environmentError(first.getMessage() + "; install the Python package " + package +
                          ", and name its folder of libraries in LD_LIBRARY_PATH");
}

Status CudaLibraries::openCudnn() {
  if (cudnnHandle)
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(cudnn, load<Cudnn>({"libcudnn.so.9"}, "nvidia-cudnn-cu13"));
  MEMOPT_RETURN_IF_ERROR(context.makeCurrent());
  return cudnn->explain(cudnn->create(&cudnnHandle), "cudnnCreate");
}

Status CudaLibraries::openCublas() {
  if (cublasHandle)
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(
      cublas, load<CublasLt>({"libcublasLt.so.13", "libcublasLt.so.12"}, "nvidia-cublas"));
  MEMOPT_RETURN_IF_ERROR(context.makeCurrent());
  return cublas->explain(cublas->create(&cublasHandle), "cublasLtCreate");
}

Status memopt::checkWorkspace(const void *workspace, int64_t bytes) {
  uint64_t behind = toAddress(workspace) % workspaceAlignment;
  if (bytes == 0 || behind == 0)
    return Status::ok();
  return badInput("its workspace begins " + std::to_string(behind) +
                  " bytes behind a multiple of " + std::to_string(workspaceAlignment) +
                  ", which cuBLASLt and cuDNN do not take");
}

StatusOr<std::unique_ptr<Nccl>> memopt::loadNccl() {
  return load<Nccl>({"libnccl.so.2"}, "nvidia-nccl-cu13");
}

CudaLibraries::~CudaLibraries() {
  if (!cudnnHandle && !cublasHandle)
    return;
  (void)context.makeCurrent();
  if (cudnnHandle)
    (void)cudnn->destroy(cudnnHandle);
  if (cublasHandle)
    (void)cublas->destroy(cublasHandle);
}
