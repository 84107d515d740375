//===- DnnlSupport.cpp - oneDNN primitives with planned memory --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/kernels/onednn/DnnlSupport.h"
#include "memopt-runtime/kernels/own/BlockedProduct.h"
#include <oneapi/dnnl/dnnl_debug.h>

using namespace memopt;
using namespace memopt::libraries;

Status libraries::limitInstructions() {
  if (!isInstructionLimitKnown())
    return environmentError("MEMOPT_MAX_ISA: the only limit is 'avx2'");
  static const bool isLimited =
      !isHeldToAvx2() || dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2) == dnnl::status::success;
  return isLimited ? Status::ok()
                   : environmentError("MEMOPT_MAX_ISA: oneDNN has begun without the limit");
}

bool libraries::isNative(ElementType type) {
  if (isHeldToAvx2() && type != ElementType::F32)
    return false;
  switch (type) {
  case ElementType::F32:
    return true;
#ifdef __x86_64__
  case ElementType::BF16:
    return __builtin_cpu_supports("avx512bf16");
  case ElementType::F16:
    return __builtin_cpu_supports("avx512fp16");
#endif
  default:
    return false;
  }
}

dnnl::memory::data_type libraries::getDataType(ElementType type) {
  switch (type) {
  case ElementType::BF16:
    return dnnl::memory::data_type::bf16;
  case ElementType::F16:
    return dnnl::memory::data_type::f16;
  case ElementType::F64:
    return dnnl::memory::data_type::f64;
  case ElementType::F32:
    break;
  }
  return dnnl::memory::data_type::f32;
}

dnnl::memory::data_type libraries::getResultType(ElementType type, bool isWide) {
  return isWide ? dnnl::memory::data_type::f32 : getDataType(type);
}

bool libraries::isOnOurTeam() {
  OpenMpScope scope(/*members=*/2, /*pool=*/nullptr, /*waitForEachOther=*/false);
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::memory::desc square({8, 8}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab);
  dnnl::matmul product(dnnl::matmul::primitive_desc(engine, square, square, square));
  return scope.wasAsked();
}

dnnl::primitive_attr libraries::plannedScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory DnnlCall::withoutStorage(const dnnl::memory::desc &layout) const {
  return dnnl::memory(layout, engine, DNNL_MEMORY_NONE);
}

dnnl::memory DnnlCall::callerBuffer(const dnnl::memory::desc &layout, int buffer, int64_t offset) {
  slots.push_back({withoutStorage(layout), buffer, offset});
  return slots.back().memory;
}

int64_t DnnlCall::reserve(int64_t bytes) {
  int64_t offset = workspace;
  workspace += alignBytes(bytes);
  return offset;
}

dnnl::memory DnnlCall::workspaceBuffer(const dnnl::memory::desc &layout) {
  return workspaceBufferAt(layout, reserve(static_cast<int64_t>(layout.get_size())));
}

dnnl::memory DnnlCall::workspaceBufferAt(const dnnl::memory::desc &layout, int64_t offset) {
  slots.push_back({withoutStorage(layout), -1, offset});
  return slots.back().memory;
}

void DnnlCall::append(const dnnl::primitive &primitive, const dnnl::memory::desc &scratchpad,
                      Arguments arguments) {
  if (scratchpad.get_size() > 0) {
    scratchpads.push_back(withoutStorage(scratchpad));
    scratchpadBytes = std::max(scratchpadBytes, static_cast<int64_t>(scratchpad.get_size()));
    arguments.insert({DNNL_ARG_SCRATCHPAD, scratchpads.back()});
  }
  steps.push_back({primitive, std::move(arguments)});
}

void DnnlCall::appendReorder(const dnnl::memory &from, const dnnl::memory &to, bool adds) {
  dnnl::primitive_attr attributes = plannedScratchpad();
  if (adds)
    attributes.set_post_ops(sumWithResult());
  dnnl::reorder::primitive_desc description(engine, from.get_desc(), engine, to.get_desc(),
                                            attributes);
  append(dnnl::reorder(description), description.scratchpad_desc(),
         {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void DnnlCall::finish(std::string implementation, int workspaceBufferIndex) {
  int64_t offset = reserve(scratchpadBytes);
  for (const dnnl::memory &scratchpad : scratchpads)
    slots.push_back({scratchpad, -1, offset});
  name = std::move(implementation);
  workspaceIndex = workspaceBufferIndex;
}

Status DnnlCall::run(void *const *buffers, ThreadPool &pool) {
  OpenMpScope scope(threads, &pool, waitForEachOther);
  try {
    for (const Slot &slot : slots) {
      int buffer = slot.buffer < 0 ? workspaceIndex : slot.buffer;
      slot.memory.set_data_handle(static_cast<char *>(buffers[buffer]) + slot.offset);
    }
    for (const Step &step : steps)
      step.primitive.execute(stream, step.arguments);
    return Status::ok();
  } catch (const dnnl::error &error) {
    return environmentError("oneDNN failed in " + name + ": " + error.what() + " (status " +
                            dnnl_status2str(error.status) + ")");
  }
}
