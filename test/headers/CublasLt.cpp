//===- CublasLt.cpp - cuBLASLt's functions and numbers, against cublasLt.h ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CublasLt.h"
#include "Declarations.h"
#include <cublasLt.h>

namespace ours = memopt::cuda;

#define MEMOPT_CUBLASLT_FUNCTION(field, symbol, parameters) SAME_CALL(ours::CublasLt, field, symbol)
#include "memopt-runtime/device/cuda/CublasLt.def"

#define SAME(name, theirs) static_assert(int(ours::cublaslt::name) == int(theirs), #theirs);
SAME(COMPUTE_32F, CUBLAS_COMPUTE_32F)
SAME(COMPUTE_64F, CUBLAS_COMPUTE_64F)
SAME(COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_16BF)
SAME(COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F_FAST_TF32)
SAME(R_32F, CUDA_R_32F)
SAME(R_64F, CUDA_R_64F)
SAME(R_16F, CUDA_R_16F)
SAME(R_16BF, CUDA_R_16BF)
SAME(OP_N, CUBLAS_OP_N)
SAME(OP_T, CUBLAS_OP_T)
SAME(EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS)
SAME(REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
SAME(DESC_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA)
SAME(DESC_TRANSPOSE_B, CUBLASLT_MATMUL_DESC_TRANSB)
SAME(DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE)
SAME(DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER)
SAME(LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
SAME(LAYOUT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
SAME(PREFERENCE_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
SAME(PREFERENCE_REDUCTIONS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
SAME(PREFERENCE_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
SAME(PREFERENCE_ALIGNMENT_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
SAME(PREFERENCE_ALIGNMENT_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
SAME(PREFERENCE_ALIGNMENT_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)

static_assert(sizeof(ours::CublasLtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(ours::CublasLtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(ours::CublasLtHeuristic, workspaceBytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(ours::CublasLtHeuristic, state) ==
              offsetof(cublasLtMatmulHeuristicResult_t, state));
