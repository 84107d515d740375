//===- MemoptEnums.td - words that interfaces and dialect share -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_INTERFACES_MEMOPTENUMS_TD
#define MEMOPT_INTERFACES_MEMOPTENUMS_TD

include "mlir/IR/EnumAttr.td"

class Memopt_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::mlir::memopt";
  let genSpecializedAttr = 0;
}

def Memopt_Space : Memopt_Enum<"Space", "a memory space", [
  I32EnumAttrCase<"Device", 0, "device">, I32EnumAttrCase<"Host", 1, "host">,
  I32EnumAttrCase<"Disk", 2, "disk">]>;

/// Instructions on one resource run one after the other; those on different ones may overlap.
def Memopt_Resource : Memopt_Enum<"Resource", "what an instruction occupies while it runs", [
  I32EnumAttrCase<"Compute", 0, "compute">, I32EnumAttrCase<"Host", 1, "host">,
  I32EnumAttrCase<"CopyIn", 2, "copy_in">, I32EnumAttrCase<"CopyOut", 3, "copy_out">,
  I32EnumAttrCase<"Network", 4, "network">, I32EnumAttrCase<"Disk", 5, "disk">]>;

/// How much of an operand's order in memory a view keeps.
def Memopt_ViewKind : Memopt_Enum<"ViewKind", "what a view does with elements", [
  I32EnumAttrCase<"Reshape", 0, "reshape">, I32EnumAttrCase<"Strided", 1, "strided">,
  I32EnumAttrCase<"Assembled", 2, "assembled">]>;

def Memopt_Phase : Memopt_Enum<"Phase", "the part of a step that an op belongs to", [
  I32EnumAttrCase<"Forward", 0, "forward">, I32EnumAttrCase<"Backward", 1, "backward">,
  I32EnumAttrCase<"Optimizer", 2, "optimizer">]>;

def Memopt_Role : Memopt_Enum<"Role", "what a variable is for", [
  I32EnumAttrCase<"Parameter", 0, "parameter">, I32EnumAttrCase<"Buffer", 1, "buffer">,
  I32EnumAttrCase<"OptimizerState", 2, "optimizer_state">, I32EnumAttrCase<"Gradient", 3, "gradient">,
  I32EnumAttrCase<"Hyperparameter", 4, "hyperparameter">,
  I32EnumAttrCase<"IndexFault", 5, "index_fault">, I32EnumAttrCase<"LossScale", 6, "loss_scale">]>;

def Memopt_Layout : Memopt_Enum<"Layout", "order of an activation's dimensions", [
  I32EnumAttrCase<"ChannelsFirst", 0, "channels_first">,
  I32EnumAttrCase<"ChannelsLast", 1, "channels_last">]>;

def Memopt_ReduceKind : Memopt_Enum<"ReduceKind", "combiner of a reduction", [
  I32EnumAttrCase<"Add", 0, "add">, I32EnumAttrCase<"Mul", 1, "mul">,
  I32EnumAttrCase<"Max", 2, "max">, I32EnumAttrCase<"Min", 3, "min">]>;

def Memopt_ConvolutionKind : Memopt_Enum<"ConvolutionKind", "which of a convolution's three products", [
  I32EnumAttrCase<"Forward", 0, "forward">, I32EnumAttrCase<"BackwardData", 1, "backward_data">,
  I32EnumAttrCase<"BackwardWeights", 2, "backward_weights">]>;

def Memopt_AttentionKind : Memopt_Enum<"AttentionKind", "attention or its gradient", [
  I32EnumAttrCase<"Forward", 0, "forward">, I32EnumAttrCase<"Backward", 1, "backward">]>;

def Memopt_LinearAlgebraKind : Memopt_Enum<"LinearAlgebraKind", "what is computed of matrices", [
  I32EnumAttrCase<"Cholesky", 0, "cholesky">, I32EnumAttrCase<"Eigenvectors", 1, "eigenvectors">,
  I32EnumAttrCase<"SingularVectors", 2, "singular_vectors">, I32EnumAttrCase<"Reflections", 3, "reflections">,
  I32EnumAttrCase<"ReflectionProduct", 4, "reflection_product">, I32EnumAttrCase<"Lu", 5, "lu">,
  I32EnumAttrCase<"LuSolve", 6, "lu_solve">, I32EnumAttrCase<"TriangularSolve", 7, "triangular_solve">,
  I32EnumAttrCase<"TriangularProduct", 8, "triangular_product">]>;

def Memopt_Resampling : Memopt_Enum<"Resampling", "how a resized element is made", [
  I32EnumAttrCase<"Nearest", 0, "nearest">, I32EnumAttrCase<"NearestExact", 1, "nearest_exact">,
  I32EnumAttrCase<"Linear", 2, "linear">, I32EnumAttrCase<"Cubic", 3, "cubic">, I32EnumAttrCase<"Area", 4, "area">,
  I32EnumAttrCase<"LinearAntialias", 5, "linear_antialias">,
  I32EnumAttrCase<"CubicAntialias", 6, "cubic_antialias">]>;

def Memopt_Distribution : Memopt_Enum<"Distribution", "of random numbers", [
  I32EnumAttrCase<"Uniform", 0, "uniform">, I32EnumAttrCase<"Normal", 1, "normal">,
  I32EnumAttrCase<"Exponential", 2, "exponential">]>;

def Memopt_ScatterKind : Memopt_Enum<"ScatterKind", "what a scatter does with elements", [
  I32EnumAttrCase<"Set", 0, "set">, I32EnumAttrCase<"Add", 1, "add">, I32EnumAttrCase<"Mul", 2, "mul">,
  I32EnumAttrCase<"Max", 3, "max">, I32EnumAttrCase<"Min", 4, "min">]>;

def Memopt_CollectiveKind : Memopt_Enum<"CollectiveKind", "what the ranks do together", [
  I32EnumAttrCase<"AllReduce", 0, "all_reduce">, I32EnumAttrCase<"ReduceScatter", 1, "reduce_scatter">,
  I32EnumAttrCase<"AllGather", 2, "all_gather">, I32EnumAttrCase<"OwnShard", 3, "own_shard">,
  I32EnumAttrCase<"AllToAll", 4, "all_to_all">]>;

#endif // MEMOPT_INTERFACES_MEMOPTENUMS_TD
