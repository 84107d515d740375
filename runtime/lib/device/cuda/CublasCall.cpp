//===- CublasCall.cpp - products of cuBLASLt's in streams -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuBLASLt stores matrices by columns. A result that lies by rows is, by columns, its transpose:
// b^T a^T is computed then, whose rows are along n, where a bias lies too. Of several dimensions of
// a batch that are not one in memory, the last is cuBLASLt's and the others are loops here.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/descriptors/MatmulDescriptor.h"
#include "memopt-runtime/device/cuda/CudaLibraries.h"
#include "memopt-runtime/device/cuda/CudaStream.h"
#include <algorithm>

using namespace memopt;
using namespace memopt::cuda;
using libraries::ElementType;
using libraries::MatmulDescriptor;
using libraries::MatrixStrides;

namespace {

/// A matrix as it is stored, by columns.
struct StoredMatrix {
  int64_t rows, columns, leading;
  bool isTransposed; ///< stored is the transpose of what is meant
};

/// At multiples of how many bytes buffers begin, as the package says.
struct CallAlignments {
  std::vector<int64_t> operands;
  int64_t result = 1;
};

/// What cuBLASLt makes and destroys.
class CublasObject {
public:
  using Destroy = int (*)(void *);
  CublasObject() = default;
  CublasObject(const CublasObject &) = delete;
  ~CublasObject() {
    if (object)
      (void)destroy(object);
  }
  void **receive(Destroy by) {
    destroy = by;
    return &object;
  }
  void *get() const { return object; }

private:
  void *object = nullptr;
  Destroy destroy = nullptr;
};

} // namespace

static cublaslt::DataType toCublasType(ElementType type) {
  switch (type) {
  case ElementType::F64:
    return cublaslt::R_64F;
  case ElementType::BF16:
    return cublaslt::R_16BF;
  case ElementType::F16:
    return cublaslt::R_16F;
  case ElementType::F32:
    break;
  }
  return cublaslt::R_32F;
}

/// A matrix of `rows` and `columns` whose elements lie by those steps. Columns must not overlap.
static StatusOr<StoredMatrix> store(const char *name, int64_t rows, int64_t columns,
                                    int64_t rowStep, int64_t columnStep) {
  StoredMatrix stored{rows, columns, columnStep, false};
  if (rowStep != 1 && rows != 1)
    stored = {columns, rows, rowStep, true};
  int64_t along = stored.isTransposed ? columnStep : rowStep;
  if ((along != 1 && stored.rows != 1) || (stored.leading < stored.rows && stored.columns != 1))
    return badInput(std::string("matrix ") + name +
                    " lies neither by rows nor by columns, which cuBLASLt needs");
  stored.leading = std::max(stored.leading, stored.rows);
  return stored;
}

namespace {

class CublasCall final : public DeviceCall {
public:
  CublasCall(const CudaLibraries &libraries, MatmulDescriptor descriptor,
             cublaslt::ComputeType computeType, int64_t workspaceBytes)
      : libraries(libraries), cublas(libraries.getCublas()), call(std::move(descriptor)),
        computeType(computeType), cap(workspaceBytes), byRows(call.c.column == 1 || call.n == 1) {}

  Status prepare(const CallAlignments &alignments) {
    if (call.bias && alignments.operands[biasBuffer] < biasAlignment)
      return badInput("the bias begins at a multiple of " +
                      std::to_string(alignments.operands[biasBuffer]) + " bytes, cuBLASLt needs " +
                      std::to_string(biasAlignment));
    MEMOPT_RETURN_IF_ERROR(storeMatrices());
    MEMOPT_RETURN_IF_ERROR(describeProduct());
    return chooseAlgorithm(alignments);
  }

  int64_t workspaceBytes() const override { return int64_t(chosen.workspaceBytes); }

  Status start(ComputeStream &stream, void *const *buffers, ThreadPool &) override {
    MEMOPT_RETURN_IF_ERROR(libraries.getContext().makeCurrent());
    MEMOPT_RETURN_IF_ERROR(
        checkWorkspace(buffers[call.resultIndex() + 1], int64_t(chosen.workspaceBytes)));
    if (call.bias)
      MEMOPT_RETURN_IF_ERROR(setProduct(cublaslt::DESC_BIAS_POINTER, buffers[biasBuffer]));
    std::vector<int64_t> &index = outerIndex;
    std::fill(index.begin(), index.end(), 0);
    do
      MEMOPT_RETURN_IF_ERROR(multiply(static_cast<CudaStream &>(stream).get(), buffers));
    while (advance());
    return Status::ok();
  }

private:
  static constexpr int aBuffer = 0, bBuffer = 1, biasBuffer = 2;
  /// Its kernels load so much of a bias at a time, which no preference can tell them not to do.
  static constexpr int64_t biasAlignment = 16;

  /// The strides of the product's operands and result as cuBLASLt gets them.
  const MatrixStrides &left() const { return byRows ? call.b : call.a; }
  const MatrixStrides &right() const { return byRows ? call.a : call.b; }

  int64_t resultBytes() const { return call.wideResult ? 4 : getElementBytes(call.type); }
  cublaslt::DataType resultType() const {
    return call.wideResult ? cublaslt::R_32F : toCublasType(call.type);
  }

  Status storeMatrices() {
    if (call.bias && !byRows)
      return badInput("a product with a bias whose result lies by columns is not cuBLASLt's");
    int64_t rows = byRows ? call.n : call.m, columns = byRows ? call.m : call.n;
    // Of b^T and a^T rows are columns.
    auto place = [&](const char *name, int64_t m, int64_t n, const MatrixStrides &steps) {
      return byRows ? store(name, m, n, steps.column, steps.row)
                    : store(name, m, n, steps.row, steps.column);
    };
    MEMOPT_ASSIGN_OR_RETURN(a, place(byRows ? "b" : "a", rows, call.k, left()));
    MEMOPT_ASSIGN_OR_RETURN(b, place(byRows ? "a" : "b", call.k, columns, right()));
    MEMOPT_ASSIGN_OR_RETURN(d, place("c", rows, columns, call.c));
    if (d.isTransposed)
      return badInput("matrix c lies neither by rows nor by columns, which cuBLASLt needs");
    outerIndex.assign(call.batch.empty() ? 0 : call.batch.size() - 1, 0);
    MEMOPT_RETURN_IF_ERROR(makeLayout(aLayout, a, left(), toCublasType(call.type)));
    MEMOPT_RETURN_IF_ERROR(makeLayout(bLayout, b, right(), toCublasType(call.type)));
    return makeLayout(dLayout, d, call.c, resultType());
  }

  Status makeLayout(CublasObject &layout, const StoredMatrix &matrix, const MatrixStrides &strides,
                    cublaslt::DataType type) {
    MEMOPT_RETURN_IF_ERROR(cublas.explain(
        cublas.layoutCreate(layout.receive(cublas.layoutDestroy), type, uint64_t(matrix.rows),
                            uint64_t(matrix.columns), matrix.leading),
        "cublasLtMatrixLayoutCreate"));
    if (call.batch.empty())
      return Status::ok();
    auto count = int32_t(call.batch.back());
    int64_t stride = strides.batch.back();
    MEMOPT_RETURN_IF_ERROR(cublas.explain(
        cublas.layoutSet(layout.get(), cublaslt::LAYOUT_BATCH_COUNT, &count, sizeof count),
        "cublasLtMatrixLayoutSetAttribute"));
    return cublas.explain(
        cublas.layoutSet(layout.get(), cublaslt::LAYOUT_BATCH_STRIDE, &stride, sizeof stride),
        "cublasLtMatrixLayoutSetAttribute");
  }

  template <typename T> Status setProduct(cublaslt::DescriptorAttribute name, const T &value) {
    return cublas.explain(
        cublas.descSet(product.get(), name, static_cast<const void *>(&value), sizeof value),
        "cublasLtMatmulDescSetAttribute");
  }

  Status describeProduct() {
    bool isDouble = call.type == ElementType::F64;
    MEMOPT_RETURN_IF_ERROR(
        cublas.explain(cublas.descCreate(product.receive(cublas.descDestroy), computeType,
                                         isDouble ? cublaslt::R_64F : cublaslt::R_32F),
                       "cublasLtMatmulDescCreate"));
    MEMOPT_RETURN_IF_ERROR(
        setProduct(cublaslt::DESC_TRANSPOSE_A, a.isTransposed ? cublaslt::OP_T : cublaslt::OP_N));
    MEMOPT_RETURN_IF_ERROR(
        setProduct(cublaslt::DESC_TRANSPOSE_B, b.isTransposed ? cublaslt::OP_T : cublaslt::OP_N));
    return call.bias ? setProduct(cublaslt::DESC_EPILOGUE, cublaslt::EPILOGUE_BIAS) : Status::ok();
  }

  Status chooseAlgorithm(const CallAlignments &alignments) {
    CublasObject preference;
    MEMOPT_RETURN_IF_ERROR(
        cublas.explain(cublas.preferenceCreate(preference.receive(cublas.preferenceDestroy)),
                       "cublasLtMatmulPreferenceCreate"));
    auto set = [&](int name, auto value) {
      return cublas.explain(cublas.preferenceSet(preference.get(), name, &value, sizeof value),
                            "cublasLtMatmulPreferenceSetAttribute");
    };
    MEMOPT_RETURN_IF_ERROR(set(cublaslt::PREFERENCE_WORKSPACE, uint64_t(cap)));
    MEMOPT_RETURN_IF_ERROR(set(cublaslt::PREFERENCE_REDUCTIONS, cublaslt::REDUCTION_COMPUTE_TYPE));
    std::vector<uint32_t> bytes = getAlignments(alignments);
    for (size_t i = 0; i < bytes.size(); ++i)
      MEMOPT_RETURN_IF_ERROR(set(cublaslt::PREFERENCE_ALIGNMENT_A + int(i), bytes[i]));
    int count = 0;
    MEMOPT_RETURN_IF_ERROR(libraries.getContext().makeCurrent());
    int status = cublas.getHeuristic(libraries.getCublasHandle(), product.get(), aLayout.get(),
                                     bLayout.get(), dLayout.get(), dLayout.get(), preference.get(),
                                     1, &chosen, &count);
    if (status != 0 || count < 1 || chosen.state != 0)
      return environmentError("cuBLASLt has no kernel for this product with a workspace of " +
                              std::to_string(cap) + " bytes (status " + std::to_string(status) +
                              "); compile the model here");
    return Status::ok();
  }

  /// Of the operands, the addend and the result, in cuBLASLt's order; steps of loops count.
  std::vector<uint32_t> getAlignments(const CallAlignments &given) const {
    auto align = [&](int64_t base, const MatrixStrides &strides, int64_t size) {
      for (size_t dim = 0; dim + 1 < strides.batch.size(); ++dim)
        while (strides.batch[dim] * size % base != 0)
          base /= 2;
      return uint32_t(base);
    };
    int64_t size = getElementBytes(call.type);
    uint32_t first = align(given.operands[byRows ? bBuffer : aBuffer], left(), size);
    uint32_t second = align(given.operands[byRows ? aBuffer : bBuffer], right(), size);
    uint32_t result = align(given.result, call.c, resultBytes());
    uint32_t addend = call.accumulate
                          ? align(given.operands[size_t(call.addendIndex())], call.c, resultBytes())
                          : result;
    return {first, second, addend, result};
  }

  /// Puts the products of one index of the loops into the stream.
  Status multiply(CUstream stream, void *const *buffers) {
    auto at = [&](int buffer, const MatrixStrides &strides, int64_t size) {
      int64_t offset = 0;
      for (size_t dim = 0; dim < outerIndex.size(); ++dim)
        offset += outerIndex[dim] * strides.batch[dim];
      return static_cast<char *>(buffers[buffer]) + offset * size;
    };
    int64_t size = getElementBytes(call.type);
    void *first = at(byRows ? bBuffer : aBuffer, left(), size);
    void *second = at(byRows ? aBuffer : bBuffer, right(), size);
    void *result = at(call.resultIndex(), call.c, resultBytes());
    void *addend = call.accumulate ? at(call.addendIndex(), call.c, resultBytes()) : result;
    double one = 1, kept = call.accumulate ? 1 : 0;
    auto narrowOne = float(one), narrowKept = float(kept);
    bool isDouble = call.type == ElementType::F64;
    const void *alpha = isDouble ? static_cast<const void *>(&one) : &narrowOne;
    const void *beta = isDouble ? static_cast<const void *>(&kept) : &narrowKept;
    return cublas.explain(cublas.matmul(libraries.getCublasHandle(), product.get(), alpha, first,
                                        aLayout.get(), second, bLayout.get(), beta, addend,
                                        dLayout.get(), result, dLayout.get(), &chosen.algorithm,
                                        buffers[call.resultIndex() + 1], chosen.workspaceBytes,
                                        stream),
                          "cublasLtMatmul");
  }

  /// The next index of the loops; false behind the last.
  bool advance() {
    for (size_t dim = outerIndex.size(); dim-- > 0;) {
      if (++outerIndex[dim] < call.batch[dim])
        return true;
      outerIndex[dim] = 0;
    }
    return false;
  }

  const CudaLibraries &libraries;
  const CublasLt &cublas;
  MatmulDescriptor call;
  cublaslt::ComputeType computeType;
  int64_t cap;
  bool byRows; ///< the result lies by rows, and its transpose is computed
  StoredMatrix a{}, b{}, d{};
  CublasObject product, aLayout, bLayout, dLayout;
  CublasLtHeuristic chosen{};
  std::vector<int64_t> outerIndex;
};

} // namespace

/// Powers of two, one for each of `count` buffers.
static StatusOr<std::vector<int64_t>> readAlignments(const nlohmann::json &descriptor,
                                                     const char *key, int64_t count) {
  MEMOPT_ASSIGN_OR_RETURN(JsonView list, JsonView(descriptor).get(key));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<int64_t> alignments, list.asIntegers());
  if (int64_t(alignments.size()) != count)
    return list.failExpected(std::to_string(count) + " alignments");
  for (int64_t bytes : alignments)
    if (bytes < 1 || bytes > 256 || (bytes & (bytes - 1)))
      return list.failExpected("powers of two up to 256");
  return alignments;
}

static StatusOr<CallAlignments> readAlignments(const nlohmann::json &descriptor,
                                               const MatmulDescriptor &call) {
  CallAlignments all;
  MEMOPT_ASSIGN_OR_RETURN(all.operands,
                          readAlignments(descriptor, "operand_alignments", call.resultIndex()));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<int64_t> results,
                          readAlignments(descriptor, "result_alignments", 1));
  all.result = results.front();
  return all;
}

/// What products are made of: by default the operands' own type.
static StatusOr<cublaslt::ComputeType> readComputeType(const nlohmann::json &descriptor,
                                                       ElementType type) {
  if (type == ElementType::F64)
    return cublaslt::COMPUTE_64F;
  JsonView view(descriptor);
  if (!view.has("precision"))
    return cublaslt::COMPUTE_32F;
  MEMOPT_ASSIGN_OR_RETURN(JsonView precision, view.get("precision"));
  MEMOPT_ASSIGN_OR_RETURN(std::string word, view.getString("precision"));
  if (word != "highest" && word != "high" && word != "medium")
    return precision.failExpected("highest, high or medium");
  return word == "high"     ? cublaslt::COMPUTE_32F_FAST_TF32
         : word == "medium" ? cublaslt::COMPUTE_32F_FAST_16BF
                            : cublaslt::COMPUTE_32F;
}

StatusOr<std::unique_ptr<DeviceCall>> memopt::createCublasCall(CudaLibraries &libraries,
                                                               const nlohmann::json &descriptor) {
  MEMOPT_RETURN_IF_ERROR(libraries.openCublas());
  MEMOPT_ASSIGN_OR_RETURN(MatmulDescriptor call, MatmulDescriptor::parse(descriptor));
  MEMOPT_ASSIGN_OR_RETURN(int64_t cap, JsonView(descriptor).getInteger("workspace_bytes"));
  MEMOPT_ASSIGN_OR_RETURN(CallAlignments alignments, readAlignments(descriptor, call));
  MEMOPT_ASSIGN_OR_RETURN(cublaslt::ComputeType computeType,
                          readComputeType(descriptor, call.type));
  call.simplify();
  auto made = std::make_unique<CublasCall>(libraries, std::move(call), computeType, cap);
  MEMOPT_RETURN_IF_ERROR(made->prepare(alignments));
  return std::unique_ptr<DeviceCall>(std::move(made));
}
