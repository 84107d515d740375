//===- Cudnn.cpp - cuDNN's backend, found at run time ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/Cudnn.h"
#include "memopt-runtime/base/DynamicLibrary.h"
#include <algorithm>

using namespace memopt;
using namespace memopt::cuda;

//===----------------------------------------------------------------------===//
// The library
//===----------------------------------------------------------------------===//

/// The first that describes devices by JSON, as cudnnGetVersion counts.
static constexpr size_t kLeastCudnn = 90800;

static std::string nameVersion(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

Status Cudnn::find(void *library) {
#define MEMOPT_CUDNN_FUNCTION(field, symbol, parameters)                                           \
  if (!findSymbol(library, field, #symbol))                                                        \
    return environmentError("cuDNN lacks " #symbol "; memopt needs version " +                     \
                            nameVersion(kLeastCudnn) + " or newer");
#include "memopt-runtime/device/cuda/Cudnn.def"
  if (!findSymbol(library, versionNumber, "cudnnGetVersion") ||
      !findSymbol(library, lastError, "cudnnGetLastErrorString"))
    return environmentError("cuDNN does not say its version or its errors");
  size_t number = versionNumber();
  version = nameVersion(number);
  if (number < kLeastCudnn)
    return environmentError("cuDNN is version " + version + ", memopt needs " +
                            nameVersion(kLeastCudnn) + " or newer");
  return Status::ok();
}

StatusOr<std::unique_ptr<Cudnn>> Cudnn::load(const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(void *library, openLibrary(path, "cuDNN"));
  auto cudnn = std::make_unique<Cudnn>();
  MEMOPT_RETURN_IF_ERROR(cudnn->find(library));
  return cudnn;
}

Status Cudnn::explain(int status, const std::string &what) const {
  if (status == 0)
    return Status::ok();
  char text[512] = "";
  lastError(text, sizeof text);
  return environmentError("cuDNN, " + what + ": " + (*text ? text : "no reason given") +
                          " (status " + std::to_string(status) + ")");
}

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

CudnnObject::CudnnObject(const Cudnn &library, cudnn::DescriptorType type) : library(&library) {
  failure = library.createDescriptor(type, &descriptor);
}

CudnnObject::CudnnObject(CudnnObject &&other) noexcept
    : library(other.library), descriptor(other.descriptor), failure(other.failure) {
  other.descriptor = nullptr;
}

CudnnObject::~CudnnObject() {
  if (descriptor)
    (void)library->destroyDescriptor(descriptor);
}

CudnnObject &CudnnObject::set(cudnn::AttributeName name, cudnn::AttributeType type, int64_t count,
                              const void *elements) {
  if (!failure)
    failure = library->setAttribute(descriptor, name, type, count, elements);
  return *this;
}

CudnnObject &CudnnObject::set(cudnn::AttributeName name, cudnn::AttributeType type, int value) {
  return set(name, type, 1, &value);
}
CudnnObject &CudnnObject::set(cudnn::AttributeName name, bool value) {
  return set(name, cudnn::TYPE_BOOLEAN, 1, &value);
}
CudnnObject &CudnnObject::set(cudnn::AttributeName name, int64_t value) {
  return set(name, cudnn::TYPE_INT64, 1, &value);
}
CudnnObject &CudnnObject::set(cudnn::AttributeName name, const std::vector<int64_t> &values) {
  return set(name, cudnn::TYPE_INT64, int64_t(values.size()), values.data());
}
CudnnObject &CudnnObject::set(cudnn::AttributeName name, const std::string &text) {
  return set(name, cudnn::TYPE_CHAR, int64_t(text.size()), text.data());
}

CudnnObject &CudnnObject::link(cudnn::AttributeName name, const CudnnObject &other) {
  return link(name, {&other});
}

CudnnObject &CudnnObject::link(cudnn::AttributeName name,
                               const std::vector<const CudnnObject *> &others) {
  std::vector<CudnnDescriptor> descriptors;
  for (const CudnnObject *other : others)
    descriptors.push_back(other->descriptor);
  return set(name, cudnn::TYPE_DESCRIPTOR, int64_t(descriptors.size()),
             static_cast<const void *>(descriptors.data()));
}

Status CudnnObject::finish(const std::string &what) {
  if (!failure)
    failure = library->finalize(descriptor);
  return library->explain(failure, what);
}

//===----------------------------------------------------------------------===//
// What descriptors say
//===----------------------------------------------------------------------===//

static std::string nameAttribute(cudnn::AttributeName name) {
  return "reading attribute " + std::to_string(int(name));
}

StatusOr<int64_t> CudnnObject::getInteger(cudnn::AttributeName name) const {
  int64_t value = 0, count = 0;
  int status = library->getAttribute(descriptor, name, cudnn::TYPE_INT64, 1, &count, &value);
  MEMOPT_RETURN_IF_ERROR(library->explain(status, nameAttribute(name)));
  return value;
}

StatusOr<std::string> CudnnObject::getText(cudnn::AttributeName name) const {
  int64_t size = 0;
  int status = library->getAttribute(descriptor, name, cudnn::TYPE_CHAR, 0, &size, nullptr);
  MEMOPT_RETURN_IF_ERROR(library->explain(status, nameAttribute(name)));
  std::string text(size_t(size), '\0');
  status = library->getAttribute(descriptor, name, cudnn::TYPE_CHAR, size, &size, text.data());
  MEMOPT_RETURN_IF_ERROR(library->explain(status, nameAttribute(name)));
  text.resize(size_t(size));
  // cuDNN counts the end of the text.
  while (!text.empty() && text.back() == '\0')
    text.pop_back();
  return text;
}

StatusOr<std::vector<int>> CudnnObject::getEnumerators(cudnn::AttributeName name,
                                                       cudnn::AttributeType type) const {
  std::vector<int> values(32);
  int64_t count = 0;
  int status =
      library->getAttribute(descriptor, name, type, int64_t(values.size()), &count, values.data());
  MEMOPT_RETURN_IF_ERROR(library->explain(status, nameAttribute(name)));
  values.resize(std::min(size_t(count), values.size()));
  return values;
}

StatusOr<std::vector<CudnnObject>> CudnnObject::getObjects(cudnn::AttributeName name,
                                                           cudnn::DescriptorType type) const {
  int64_t count = 0;
  int status = library->getAttribute(descriptor, name, cudnn::TYPE_DESCRIPTOR, 0, &count, nullptr);
  MEMOPT_RETURN_IF_ERROR(library->explain(status, nameAttribute(name)));
  std::vector<CudnnObject> objects;
  std::vector<CudnnDescriptor> descriptors;
  for (int64_t i = 0; i < count; ++i) {
    objects.emplace_back(*library, type);
    descriptors.push_back(objects.back().get());
  }
  status = library->getAttribute(descriptor, name, cudnn::TYPE_DESCRIPTOR, count, &count,
                                 static_cast<void *>(descriptors.data()));
  MEMOPT_RETURN_IF_ERROR(library->explain(status, nameAttribute(name)));
  // Those that it fills may be fewer than it said.
  while (int64_t(objects.size()) > count)
    objects.pop_back();
  return objects;
}
