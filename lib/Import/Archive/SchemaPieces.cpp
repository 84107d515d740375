//===- SchemaPieces.cpp - element types, sizes and tensors of the schema -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SchemaPieces.h"
#include "memopt/Import/Archive/AssignOrReturn.h"

#include "llvm/Support/CheckedArithmetic.h"

using namespace llvm;
using namespace memopt::pt2;

//===----------------------------------------------------------------------===//
// Element types
//===----------------------------------------------------------------------===//

std::optional<DType> memopt::pt2::getDType(int64_t code) {
  switch (code) {
  case 1:
    return DType::U8;
  case 2:
    return DType::I8;
  case 3:
    return DType::I16;
  case 4:
    return DType::I32;
  case 5:
    return DType::I64;
  case 6:
    return DType::F16;
  case 7:
    return DType::F32;
  case 8:
    return DType::F64;
  case 12:
    return DType::Bool;
  case 13:
    return DType::BF16;
  default:
    return std::nullopt;
  }
}

std::string memopt::pt2::describeDTypeCode(int64_t code) {
  static constexpr StringLiteral names[] = {"unknown",   "u8",         "i8",   "i16", "i32",
                                            "i64",       "f16",        "f32",  "f64", "complex32",
                                            "complex64", "complex128", "bool", "bf16"};
  static constexpr StringLiteral later[] = {"u16",        "f8e4m3fn",  "f8e5m2", "f8e4m3fnuz",
                                            "f8e5m2fnuz", "f8e8m0fnu", "u32",    "u64"};
  if (code >= 0 && code < int64_t(std::size(names)))
    return names[code].str();
  if (code >= 28 && code < 28 + int64_t(std::size(later)))
    return later[code - 28].str();
  return ("with the unknown code " + Twine(code)).str();
}

StringRef memopt::pt2::getName(DType type) {
  switch (type) {
  case DType::U8:
    return "u8";
  case DType::I8:
    return "i8";
  case DType::I16:
    return "i16";
  case DType::I32:
    return "i32";
  case DType::I64:
    return "i64";
  case DType::F16:
    return "f16";
  case DType::F32:
    return "f32";
  case DType::F64:
    return "f64";
  case DType::Bool:
    return "i1";
  case DType::BF16:
    return "bf16";
  }
  llvm_unreachable("all types are named");
}

unsigned memopt::pt2::getByteWidth(DType type) {
  switch (type) {
  case DType::U8:
  case DType::I8:
  case DType::Bool:
    return 1;
  case DType::I16:
  case DType::F16:
  case DType::BF16:
    return 2;
  case DType::I32:
  case DType::F32:
    return 4;
  case DType::I64:
  case DType::F64:
    return 8;
  }
  llvm_unreachable("all types have a width");
}

int64_t TensorMeta::getNumElements() const {
  int64_t count = 1;
  for (int64_t size : sizes)
    count *= size; // cannot overflow: checked when read
  return count;
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

Expected<int64_t> memopt::pt2::parseSymInt(const JsonCursor &json) {
  ASSIGN_OR_RETURN(auto tagged, json.variant());
  const JsonCursor &value = tagged.second;
  if (tagged.first == "as_int")
    return value.integer();
  if (tagged.first != "as_expr")
    return json.expected("as_int or as_expr");
  auto hint = value.optionalField("hint");
  if (!hint)
    return value.error("a symbolic size without a hint; export with static shapes");
  return parseSymInt(*hint);
}

Error memopt::pt2::parseSymInts(const JsonCursor &json, SmallVectorImpl<int64_t> &values) {
  return json.forEachElement([&](const JsonCursor &element) -> Error {
    ASSIGN_OR_RETURN(int64_t value, parseSymInt(element));
    values.push_back(value);
    return Error::success();
  });
}

Expected<std::string> memopt::pt2::parseName(const JsonCursor &json) {
  ASSIGN_OR_RETURN(JsonCursor name, json.field("name"));
  return name.string();
}

/// Sizes, strides and their product, without the element type.
static Error parseShape(const JsonCursor &json, TensorMeta &meta) {
  ASSIGN_OR_RETURN(JsonCursor sizes, json.field("sizes"));
  if (Error err = parseSymInts(sizes, meta.sizes))
    return err;
  ASSIGN_OR_RETURN(JsonCursor strides, json.field("strides"));
  if (Error err = parseSymInts(strides, meta.strides))
    return err;
  if (auto offset = json.optionalField("storage_offset")) {
    ASSIGN_OR_RETURN(meta.storageOffset, parseSymInt(*offset));
    if (meta.storageOffset < 0)
      return offset->expected("an offset of at least 0");
  }
  if (meta.sizes.size() > limits::rank)
    return sizes.expected("at most " + Twine(limits::rank) + " dimensions");
  if (meta.strides.size() != meta.sizes.size())
    return strides.error("expected " + Twine(meta.sizes.size()) +
                         " strides, as many as sizes, found " + Twine(meta.strides.size()));
  int64_t count = 1;
  for (int64_t size : meta.sizes) {
    std::optional<int64_t> product = checkedMul(count, size);
    if (size < 0 || !product || *product > limits::elements)
      return sizes.error("expected sizes from 0 to " + Twine(limits::elements) +
                         " elements together, found size " + Twine(size) + " after " +
                         Twine(count) + " elements");
    count = *product;
  }
  return Error::success();
}

Expected<DType> memopt::pt2::parseDType(const JsonCursor &json) {
  ASSIGN_OR_RETURN(int64_t code, json.integer());
  if (auto type = getDType(code))
    return *type;
  return json.error("element type " + describeDTypeCode(code) + " is not supported");
}

Expected<TensorMeta> memopt::pt2::parseTensorMeta(const JsonCursor &json) {
  TensorMeta meta;
  ASSIGN_OR_RETURN(JsonCursor dtype, json.field("dtype"));
  ASSIGN_OR_RETURN(meta.dtype, parseDType(dtype));
  if (auto layout = json.optionalField("layout")) {
    ASSIGN_OR_RETURN(int64_t code, layout->integer());
    if (code != 7)
      return layout->expected("7, a strided tensor");
  }
  if (auto grad = json.optionalField("requires_grad")) {
    ASSIGN_OR_RETURN(meta.requiresGrad, grad->boolean());
  }
  if (Error err = parseShape(json, meta))
    return std::move(err);
  return meta;
}
