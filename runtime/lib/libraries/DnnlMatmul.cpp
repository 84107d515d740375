//===- DnnlMatmul.cpp - matmul by oneDNN ------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BlockedProduct.h"
#include "DnnlSupport.h"
#include "MatmulDescriptor.h"

using namespace memopt;
using namespace memopt::libraries;
using dnnl::memory;

namespace {

/// Packed columns of b beyond this many bytes are made and used piece by piece.
constexpr int64_t packedBytesLimit = int64_t(8) << 20;
/// oneDNN packs b in groups of this many columns.
constexpr int64_t packedColumns = 64;

struct Layouts {
  memory::desc a, b, c, bias;
};

memory::desc layout(const MatmulDescriptor &d, const MatrixStrides &strides, int64_t rows,
                    int64_t columns, memory::data_type type) {
  memory::dims extents, steps;
  for (size_t i = 0; i < d.batch.size(); ++i) {
    // oneDNN broadcasts dimensions of one, it has no strides of zero.
    bool broadcast = strides.batch[i] == 0;
    extents.push_back(broadcast ? 1 : d.batch[i]);
    steps.push_back(broadcast ? 1 : strides.batch[i]);
  }
  extents.insert(extents.end(), {rows, columns});
  steps.insert(steps.end(), {strides.row, strides.column});
  return memory::desc(extents, type, steps);
}

/// Strides of dimensions with one index mean nothing, and oneDNN's checks want them plausible.
MatrixStrides plausible(MatrixStrides strides, int64_t rows, int64_t columns) {
  if (columns == 1)
    strides.column = strides.row == 1 ? rows : 1;
  if (rows == 1)
    strides.row = strides.column == 1 ? columns : 1;
  return strides;
}

/// oneDNN reads matrices that are contiguous along rows or columns and whose lines do not overlap.
bool isPlain(const MatrixStrides &strides, int64_t rows, int64_t columns) {
  return (strides.column == 1 && strides.row >= columns) ||
         (strides.row == 1 && strides.column >= rows);
}

Layouts makeLayouts(const MatmulDescriptor &d, int64_t columns) {
  memory::data_type type = getDataType(d.type);
  Layouts layouts{layout(d, d.a, d.m, d.k, type), layout(d, d.b, d.k, columns, type),
                  layout(d, d.c, d.m, columns, getResultType(d.type, d.wideResult)),
                  memory::desc()};
  if (d.bias) {
    memory::dims extents(d.batch.size() + 1, 1);
    extents.push_back(columns);
    layouts.bias = memory::desc(extents, memory::data_type::f32, memory::dims(extents.size(), 1));
  }
  return layouts;
}

dnnl::matmul::primitive_desc describe(const dnnl::engine &engine, const MatmulDescriptor &d,
                                      const Layouts &layouts) {
  dnnl::primitive_attr attributes = plannedScratchpad();
  if (d.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  return dnnl::matmul::primitive_desc(engine, layouts.a, layouts.b, layouts.bias, layouts.c,
                                      attributes, /*allow_empty=*/true);
}

class DnnlMatmul final : public DnnlCall {
public:
  using DnnlCall::DnnlCall;

  bool build(const MatmulDescriptor &d, bool pack) {
    int64_t chunk = pack ? chooseChunk(d) : d.n;
    for (int64_t begin = 0; begin < d.n; begin += chunk)
      if (!appendColumns(d, begin, std::min(chunk, d.n - begin), pack))
        return false;
    finish(pack ? name + "+packed" : name, d.resultIndex() + 1);
    return true;
  }

private:
  /// Chunks of nearly equal width, so that the last is not a sliver.
  static int64_t chooseChunk(const MatmulDescriptor &d) {
    int64_t limit =
        std::max(8 * packedColumns, packedBytesLimit / (getBytes(getDataType(d.type)) * d.k));
    int64_t chunks = ceilDivide(d.n, limit);
    return chunks == 1 ? d.n : roundUp(ceilDivide(d.n, chunks), packedColumns);
  }

  bool appendColumns(const MatmulDescriptor &d, int64_t begin, int64_t columns, bool pack) {
    Layouts layouts = makeLayouts(d, columns);
    memory::desc plainB = layouts.b;
    if (pack)
      layouts.b = memory::desc(plainB.get_dims(), plainB.get_data_type(), memory::format_tag::any);
    dnnl::matmul::primitive_desc description = describe(engine, d, layouts);
    if (!description || !selectImplementation(description))
      return false;
    name = description.impl_info_str();
    memory b = callerBuffer(plainB, 1, begin * d.b.column * getBytes(plainB.get_data_type()));
    if (pack && description.weights_desc() != plainB) {
      // One place serves all chunks: they run in turn, and the first is the largest.
      if (begin == 0)
        packedOffset = reserve(static_cast<int64_t>(description.weights_desc().get_size()));
      memory packed = workspaceBufferAt(description.weights_desc(), packedOffset);
      appendReorder(b, packed);
      b = packed;
    }
    Arguments arguments = {
        {DNNL_ARG_SRC, callerBuffer(layouts.a, 0)},
        {DNNL_ARG_WEIGHTS, b},
        {DNNL_ARG_DST, callerBuffer(layouts.c, d.resultIndex(),
                                    begin * d.c.column * getBytes(layouts.c.get_data_type()))}};
    if (d.bias)
      arguments.insert(
          {DNNL_ARG_BIAS, callerBuffer(layouts.bias, 2, begin * getBytes(memory::data_type::f32))});
    append(dnnl::matmul(description), description.scratchpad_desc(), std::move(arguments));
    return true;
  }

  int64_t packedOffset = 0;
  std::string name;
};

/// Packing reads b once and pays where many rows use it. b that is contiguous along depth is copied
/// into blocks inside the primitive anyway. Measured (batch 1024, GPT-2 sizes): on Intel unpacked b
/// is 1.7 to 2.3 times slower, on Zen 4 packing gains nothing.
bool shouldPack(const MatmulDescriptor &d) {
  return __builtin_cpu_is("intel") && d.batch.empty() && d.b.column == 1 && d.m >= 128 &&
         d.n >= packedColumns;
}

} // namespace

std::unique_ptr<LibraryCall> libraries::createDnnlMatmul(const MatmulDescriptor &given,
                                                         int threads) {
  MatmulDescriptor d = given;
  d.a = plausible(d.a, d.m, d.k);
  d.b = plausible(d.b, d.k, d.n);
  d.c = plausible(d.c, d.m, d.n);
  if (!isNative(d.type) || !isPlain(d.a, d.m, d.k) || !isPlain(d.b, d.k, d.n) || d.c.column != 1 ||
      d.c.row < d.n || d.batch.size() > 8)
    return nullptr;
  OpenMpScope scope(threads, /*pool=*/nullptr, /*waitForEachOther=*/false);
  auto call = std::make_unique<DnnlMatmul>(threads, /*waitForEachOther=*/false);
  if (!call->build(d, shouldPack(d)))
    return nullptr;
  return call;
}
