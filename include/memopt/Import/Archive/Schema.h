//===- Schema.h - torch.export's graph as plain structs -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The parts of torch.export's JSON schema (major version 8) that a training step needs, read into
// plain structs. Lowering to MLIR is a later, separate step; what is checked here is shape, not
// meaning: required keys, tags, ranges, that a tensor's size fits 64 bits. Symbolic sizes are
// replaced by the hint that the exporter recorded.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_ARCHIVE_SCHEMA_H
#define MEMOPT_IMPORT_ARCHIVE_SCHEMA_H

#include "memopt/Import/Archive/JsonCursor.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

#include <memory>
#include <string>
#include <vector>

namespace memopt::pt2 {

/// Element types that the dialect has a form for; the schema's others are refused when read.
enum class DType { U8, I8, I16, I32, I64, F16, F32, F64, Bool, BF16 };
llvm::StringRef getName(DType type); ///< as in a package's manifest: "f32", "i1", ...
unsigned getByteWidth(DType type);
inline bool isFloat(DType type) {
  return type == DType::F16 || type == DType::F32 || type == DType::F64 || type == DType::BF16;
}
/// Types that values are stored in, while arithmetic is done in F32.
inline bool isHalf(DType type) { return type == DType::F16 || type == DType::BF16; }

struct TensorMeta {
  DType dtype = DType::F32;
  llvm::SmallVector<int64_t, 4> sizes;
  llvm::SmallVector<int64_t, 4> strides; ///< in elements
  int64_t storageOffset = 0;             ///< in elements
  bool requiresGrad = false;             ///< meaningful for parameters only

  int64_t getNumElements() const;
};

struct Graph;

/// A tagged union. `names` holds value names: one for Tensor and CustomObject, several for Tensors,
/// where an empty name stands for an absent tensor; for SymInts an empty name means that `ints` has
/// the value.
struct Argument {
  enum class Kind {
    None,
    Tensor,
    Tensors,
    Int,
    Ints,
    Float,
    Floats,
    Bool,
    Bools,
    String,
    Strings,
    ScalarType,
    MemoryFormat,
    Layout,
    Device,
    Graph,
    CustomObject,
    Other
  };
  Kind kind = Kind::None;
  std::vector<std::string> names;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::string text; ///< String, the device's type, the tag of Other
  std::shared_ptr<Graph> graph;
};
llvm::StringRef getName(Argument::Kind kind);

struct NamedArgument {
  std::string name; ///< empty for higher-order ops
  Argument value;
};

struct Node {
  std::string name;        ///< may be empty in older files
  std::string target;      ///< without "torch.ops."
  std::string modulePath;  ///< fully qualified, "" for the root module
  std::string moduleClass; ///< of that module, with its Python package; may be unknown
  std::string line;        ///< of the model's source, as "model.py:12"; may be unknown
  std::string caller; ///< what the model's code called, as "method_descriptor.view"; "" if unknown
  std::vector<NamedArgument> inputs;
  std::vector<Argument> outputs;
};

struct Graph {
  std::vector<Argument> inputs, outputs;
  std::vector<Node> nodes;
  llvm::StringMap<TensorMeta> tensors;
  /// Tensors that we have no form for, with the reason (an element type, an unknown size): an error
  /// only when one is used.
  llvm::StringMap<std::string> unsupportedTensors;
  llvm::StringMap<int64_t> symInts;
};

struct InputSpec {
  enum class Kind { User, Parameter, Buffer, TensorConstant, ConstantInput };
  Kind kind = Kind::User;
  std::string value;      ///< name in the graph
  std::string target;     ///< fully qualified name, empty for User
  bool persistent = true; ///< buffers only
};

struct OutputSpec {
  enum class Kind { User, StateMutation, InputMutation };
  Kind kind = Kind::User;
  Argument value;
  std::string target; ///< what is mutated
};

struct ExportedProgram {
  Graph graph;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::string torchVersion;
  /// Traced in evaluation mode by a tool that says so (the member extra/memopt_mode).
  bool tracedInEvaluation = false;
  /// Sources of operators of the user's (extra/memopt_operators), by their file names.
  llvm::StringMap<std::string> operators;
};

llvm::Expected<TensorMeta> parseTensorMeta(const JsonCursor &json);
/// Reads models/model.json. Refuses other major versions of the schema.
llvm::Expected<ExportedProgram> parseExportedProgram(const JsonCursor &json);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_ARCHIVE_SCHEMA_H
