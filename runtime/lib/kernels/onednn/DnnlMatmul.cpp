//===- DnnlMatmul.cpp - matmul by oneDNN ------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/descriptors/MatmulDescriptor.h"
#include "memopt-runtime/kernels/onednn/DnnlSupport.h"
#include "memopt-runtime/kernels/own/BlockedProduct.h"
#include <cstring>

using namespace memopt;
using namespace memopt::libraries;
using dnnl::memory;

namespace {

/// b is packed whole up to this many bytes, and beyond it in pieces of columns of at most as many
/// as stay in the caches.
constexpr int64_t wholeBytesLimit = int64_t(32) << 20, pieceBytesLimit = int64_t(8) << 20;
/// oneDNN packs b in groups of this many columns.
constexpr int64_t packedColumns = 64;
/// Rows of a piece of the result, at least: each reads a piece of b from the caches again.
constexpr int64_t leastRows = 256;

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

/// Some rows of a and c, some columns of b and c.
struct Part {
  int64_t row, rows, column, columns;
};

Layouts makeLayouts(const MatmulDescriptor &d, const Part &part) {
  int64_t columns = part.columns;
  memory::data_type type = getDataType(d.type);
  Layouts layouts{layout(d, d.a, part.rows, d.k, type), layout(d, d.b, d.k, columns, type),
                  layout(d, d.c, part.rows, columns, getResultType(d.type, d.wideResult)),
                  memory::desc()};
  if (d.bias) {
    memory::dims extents(d.batch.size() + 1, 1);
    extents.push_back(columns);
    layouts.bias = memory::desc(extents, memory::data_type::f32, memory::dims(extents.size(), 1));
  }
  return layouts;
}

dnnl::matmul::primitive_desc describe(const dnnl::engine &engine, const Layouts &layouts,
                                      bool addsToResult) {
  dnnl::primitive_attr attributes = plannedScratchpad();
  if (addsToResult)
    attributes.set_post_ops(sumWithResult());
  return dnnl::matmul::primitive_desc(engine, layouts.a, layouts.b, layouts.bias, layouts.c,
                                      attributes, /*allow_empty=*/true);
}

/// Copies what the product is to be added to, row by row, to where the product is made.
void copyAddend(const MatmulDescriptor &d, const char *from, char *to, int64_t bytes,
                ThreadPool &pool) {
  pool.parallelFor(d.batchCount() * d.m, leastRows, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      int64_t offset = index % d.m * d.c.row, rest = index / d.m;
      for (size_t i = d.batch.size(); i-- > 0; rest /= d.batch[i])
        offset += rest % d.batch[i] * d.c.batch[i];
      std::memcpy(to + offset * bytes, from + offset * bytes, d.n * bytes);
    }
  });
}

int64_t bytesOf(const memory::desc &layout) { return getBytes(layout.get_data_type()); }

/// oneDNN's code for products wants matrices without gaps between their lines, so a piece of the
/// result is made in the workspace and copied. It adds to what is in the result.
class DnnlMatmul final : public DnnlCall {
public:
  DnnlMatmul(const MatmulDescriptor &d, int threads)
      : DnnlCall(threads, /*waitForEachOther=*/false), d(d) {}

  Status run(void *const *buffers, ThreadPool &pool) override {
    auto *result = static_cast<char *>(buffers[d.resultIndex()]);
    auto *addend = static_cast<const char *>(buffers[d.addendIndex()]);
    if (addsToResult && addend != result)
      copyAddend(d, addend, result, getBytes(getResultType(d.type, d.wideResult)), pool);
    return DnnlCall::run(buffers, pool);
  }

  double getSlowdown() const override { return slowdown; }
  void setSlowdown(double value) { slowdown = value; }

  int64_t packedWeightBytes() const override { return packedBytes; }

  bool build(Packing packing) {
    if (packing == Packing::Exchanged)
      return buildExchanged();
    if (packing == Packing::Ahead)
      return buildAhead();
    int64_t rows = d.m, columns = d.n;
    if (packing == Packing::Pieces)
      choosePieces(rows, columns);
    addsToResult = d.accumulate && rows == d.m && columns == d.n;
    for (int64_t column = 0; column < d.n; column += columns)
      for (int64_t row = 0; row < d.m; row += rows)
        if (!appendPart({row, std::min(rows, d.m - row), column, std::min(columns, d.n - column)},
                        packing != Packing::None))
          return false;
    if (packing != Packing::Pieces && d.hasFewRows())
      packedBytes = findPackedBytes();
    static constexpr const char *suffixes[] = {"", "+packed", "+pieces"};
    finish(name + suffixes[static_cast<int>(packing)], d.resultIndex() + 1);
    return true;
  }

private:
  /// The whole product, with b in the layout that oneDNN likes best.
  dnnl::matmul::primitive_desc describePacked(Layouts &layouts) const {
    layouts.b =
        memory::desc(layouts.b.get_dims(), layouts.b.get_data_type(), memory::format_tag::any);
    dnnl::matmul::primitive_desc description = describe(engine, layouts, d.accumulate);
    return description && selectImplementation(description) ? description
                                                            : dnnl::matmul::primitive_desc();
  }

  /// The same code reads both layouts, so bits are the same.
  int64_t findPackedBytes() const {
    Layouts layouts = makeLayouts(d, {0, d.m, 0, d.n});
    memory::desc plain = layouts.b;
    dnnl::matmul::primitive_desc description = describePacked(layouts);
    bool isPacked =
        description && description.weights_desc() != plain && description.impl_info_str() == name;
    return isPacked ? static_cast<int64_t>(description.weights_desc().get_size()) : 0;
  }

  /// The product with b as a call of its own has packed it, or that call.
  bool buildAhead() {
    Layouts layouts = makeLayouts(d, {0, d.m, 0, d.n});
    memory::desc plain = layouts.b;
    dnnl::matmul::primitive_desc description = describePacked(layouts);
    if (!description)
      return false;
    memory::desc packed = description.weights_desc();
    if (d.packs) {
      appendReorder(callerBuffer(plain, 0), callerBuffer(packed, d.resultIndex()));
    } else {
      addsToResult = d.accumulate;
      Arguments arguments = {{DNNL_ARG_SRC, callerBuffer(layouts.a, 0)},
                             {DNNL_ARG_WEIGHTS, callerBuffer(packed, 1)},
                             {DNNL_ARG_DST, callerBuffer(layouts.c, d.resultIndex())}};
      if (d.bias)
        arguments.insert({DNNL_ARG_BIAS, callerBuffer(layouts.bias, 2)});
      append(dnnl::matmul(description), description.scratchpad_desc(), std::move(arguments));
    }
    finish(description.impl_info_str() + std::string("+ahead"), d.resultIndex() + 1);
    return true;
  }

  /// oneDNN copies a right operand that is contiguous along depth in blocks, as it goes, and such
  /// is a row-major a where the result is made transposed. Only that takes a workspace.
  bool buildExchanged() {
    memory::data_type type = getDataType(d.type), resultType = getResultType(d.type, d.wideResult);
    Layouts layouts{memory::desc({d.n, d.k}, type, {d.b.column, d.b.row}),
                    memory::desc({d.k, d.m}, type, {d.a.column, d.a.row}),
                    memory::desc({d.n, d.m}, resultType, memory::format_tag::ab), memory::desc()};
    dnnl::matmul::primitive_desc description = describe(engine, layouts, /*addsToResult=*/false);
    if (!description || !selectImplementation(description))
      return false;
    addsToResult = d.accumulate;
    resultOffset = reserve(static_cast<int64_t>(layouts.c.get_size()));
    append(dnnl::matmul(description), description.scratchpad_desc(),
           {{DNNL_ARG_SRC, callerBuffer(layouts.a, 1)},
            {DNNL_ARG_WEIGHTS, callerBuffer(layouts.b, 0)},
            {DNNL_ARG_DST, workspaceBufferAt(layouts.c, resultOffset)}});
    memory::desc asRows({d.m, d.n}, resultType, memory::dims{1, d.m});
    appendReorder(workspaceBufferAt(asRows, resultOffset),
                  callerBuffer(layout(d, d.c, d.m, d.n, resultType), d.resultIndex()),
                  d.accumulate);
    finish(description.impl_info_str() + std::string("+exchanged"), d.resultIndex() + 1);
    return true;
  }

  /// Pieces of nearly equal size, so that the last is not a sliver and the first is the largest.
  void choosePieces(int64_t &rows, int64_t &columns) const {
    auto cut = [](int64_t whole, int64_t limit, int64_t unit) {
      int64_t pieces = ceilDivide(whole, limit);
      return pieces == 1 ? whole : roundUp(ceilDivide(whole, pieces), unit);
    };
    int64_t bytes = getBytes(getDataType(d.type)),
            resultBytes = getBytes(getResultType(d.type, d.wideResult));
    columns = cut(d.n, std::max(8 * packedColumns, pieceBytesLimit / (bytes * d.k)), packedColumns);
    // Rows of a transposed matrix have gaps.
    if (d.a.column == 1)
      rows = cut(d.m, std::max(leastRows, pieceBytesLimit / (resultBytes * columns)), 1);
  }

  bool appendPart(const Part &part, bool pack) {
    bool isWhole = part.rows == d.m && part.columns == d.n, isFirst = !part.row && !part.column;
    Layouts layouts = makeLayouts(d, part);
    memory::desc plainB = layouts.b, plainC = layouts.c;
    if (pack && part.row)
      layouts.b = packedLayout; // which serves all rows
    else if (pack)
      layouts.b = memory::desc(plainB.get_dims(), plainB.get_data_type(), memory::format_tag::any);
    if (!isWhole)
      layouts.c =
          memory::desc({part.rows, part.columns}, plainC.get_data_type(), memory::format_tag::ab);
    dnnl::matmul::primitive_desc description = describe(engine, layouts, d.accumulate);
    if (!description || !selectImplementation(description))
      return false;
    name = description.impl_info_str();
    memory b = callerBuffer(plainB, 1, part.column * d.b.column * bytesOf(plainB));
    if (pack && description.weights_desc() != plainB) {
      // One place serves all pieces: they are used in turn.
      packedLayout = description.weights_desc();
      if (isFirst)
        packedOffset = reserve(static_cast<int64_t>(packedLayout.get_size()));
      memory packed = workspaceBufferAt(packedLayout, packedOffset);
      if (!part.row)
        appendReorder(b, packed);
      b = packed;
    }
    int64_t place = (part.row * d.c.row + part.column * d.c.column) * bytesOf(plainC);
    memory c = callerBuffer(plainC, d.resultIndex(), place);
    memory target = c;
    if (!isWhole) {
      if (isFirst)
        resultOffset = reserve(static_cast<int64_t>(layouts.c.get_size()));
      target = workspaceBufferAt(layouts.c, resultOffset);
      if (d.accumulate)
        appendReorder(callerBuffer(plainC, d.addendIndex(), place), target);
    }
    Arguments arguments = {
        {DNNL_ARG_SRC, callerBuffer(layouts.a, 0, part.row * d.a.row * bytesOf(layouts.a))},
        {DNNL_ARG_WEIGHTS, b},
        {DNNL_ARG_DST, target}};
    if (d.bias)
      arguments.insert(
          {DNNL_ARG_BIAS,
           callerBuffer(layouts.bias, 2, part.column * getBytes(memory::data_type::f32))});
    append(dnnl::matmul(description), description.scratchpad_desc(), std::move(arguments));
    if (!isWhole)
      appendReorder(target, c);
    return true;
  }

  MatmulDescriptor d;
  bool addsToResult = false; ///< to what the result's buffer holds
  memory::desc packedLayout;
  int64_t packedOffset = 0, resultOffset = 0;
  int64_t packedBytes = 0; ///< of b, if a call of its own may pack it
  double slowdown = 1;
  std::string name;
};

/// Packing reads b once and pays where many rows use it. b that is contiguous along depth is copied
/// into blocks inside the primitive anyway. Measured on Intel, f32, two threads: unpacked b is up
/// to 2.1 times slower where its rows are long; on Zen 4 packing gains nothing.
bool mayPack(const MatmulDescriptor &d) {
  return __builtin_cpu_is("intel") && d.batch.empty() && d.b.column == 1 && d.m >= 128 &&
         d.n >= packedColumns;
}

/// Rows of b that lie close together are read as they are, and oneDNN itself copies those whose
/// distance is a power of two of at least 2 KiB.
bool isReadWell(const MatmulDescriptor &d) {
  constexpr int64_t shortRow = 512;
  return d.n <= shortRow || (d.n & (d.n - 1)) == 0;
}

/// The transposed product reads both operands once and copies c, which deep sums keep small beside
/// b. Measured: of a transposed a it is as fast as with b packed from as many terms as rows on, of
/// a plain one from three times as many, and where b would be packed in pieces, of twice as many;
/// of small products the copy takes longer.
bool isExchangeFast(const MatmulDescriptor &d, bool isLargeB) {
  constexpr double leastWork = 1 << 29;
  if (d.a.column != 1)
    return d.k > d.m;
  return (d.k / 3 >= d.m && static_cast<double>(d.m * d.n) * d.k >= leastWork) ||
         (isLargeB && d.k / 2 >= d.m);
}

/// The fastest way first. What is said of f32 was not measured of other types.
std::vector<Packing> getWays(const MatmulDescriptor &d) {
  if (!mayPack(d))
    return {Packing::None};
  bool isLargeB = d.n * d.k * getBytes(getDataType(d.type)) > wholeBytesLimit;
  std::vector<Packing> ways;
  bool isF32 = d.type == ElementType::F32;
  if (isF32 && (d.a.column != 1 ? isReadWell(d) : d.n <= packedColumns))
    ways.push_back(Packing::None);
  if (isF32 && isExchangeFast(d, isLargeB))
    ways.push_back(Packing::Exchanged);
  ways.push_back(isLargeB ? Packing::Pieces : Packing::Whole);
  ways.push_back(isLargeB ? Packing::Whole : Packing::Pieces);
  if (ways.front() != Packing::None)
    ways.push_back(Packing::None);
  return ways;
}

/// Where nothing is exchanged packing decides where numbers lie, and not the order in which oneDNN
/// adds them up.
bool giveSameBits(const MatmulDescriptor &d, Packing a, Packing b) {
  return a == b ||
         (d.type == ElementType::F32 && a != Packing::Exchanged && b != Packing::Exchanged);
}

/// What a way takes that is not the fastest with its bits.
double guessSlowdown(const MatmulDescriptor &d, Packing way) {
  constexpr double slight = 1.05, longRows = 1.5; // from 1.2 to 2.1
  return way != Packing::None || isReadWell(d) ? slight : longRows;
}

} // namespace

std::unique_ptr<LibraryCall> libraries::createDnnlMatmul(const MatmulDescriptor &given, int threads,
                                                         Packing packing) {
  MatmulDescriptor d = given;
  d.a = plausible(d.a, d.m, d.k);
  d.b = plausible(d.b, d.k, d.n);
  d.c = plausible(d.c, d.m, d.n);
  if (!isNative(d.type) || !isPlain(d.a, d.m, d.k) || !isPlain(d.b, d.k, d.n) || d.c.column != 1 ||
      d.c.row < d.n || d.batch.size() > 8 || (packing == Packing::Pieces && !d.batch.empty()) ||
      (packing == Packing::Exchanged && (d.bias || !d.batch.empty() || d.type != ElementType::F32)))
    return nullptr;
  OpenMpScope scope(threads, /*pool=*/nullptr, /*waitForEachOther=*/false);
  auto call = std::make_unique<DnnlMatmul>(d, threads);
  if (!call->build(packing))
    return nullptr;
  return call;
}

/// The fastest way that there is code for. Where its workspace is larger than allowed, the fastest
/// of those with the same bits whose workspace is not; without one, as it is.
std::unique_ptr<LibraryCall> libraries::createDnnlMatmul(const MatmulDescriptor &d, int threads) {
  if (d.packs || d.packedBytes)
    return createDnnlMatmul(d, threads, Packing::Ahead);
  std::unique_ptr<LibraryCall> preferred;
  Packing preferredWay = Packing::None;
  for (Packing way : getWays(d)) {
    if (preferred && !giveSameBits(d, preferredWay, way))
      continue;
    std::unique_ptr<LibraryCall> call = createDnnlMatmul(d, threads, way);
    if (call && call->workspaceBytes() <= d.workspaceLimit) {
      if (preferred)
        static_cast<DnnlMatmul &>(*call).setSlowdown(guessSlowdown(d, way));
      return call;
    }
    if (call && !preferred) {
      preferred = std::move(call);
      preferredWay = way;
    }
  }
  return preferred;
}
