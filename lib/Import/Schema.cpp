//===- Schema.cpp - torch.export's graph as plain structs -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Schema.h"
#include "AssignOrReturn.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/CheckedArithmetic.h"

using namespace llvm;
using namespace memopt::pt2;

//===----------------------------------------------------------------------===//
// Element types
//===----------------------------------------------------------------------===//

/// The schema's own codes, which are not c10's ScalarType.
static std::optional<DType> getDType(int64_t code) {
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

static std::string describeDTypeCode(int64_t code) {
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

/// A size: an integer, or an expression with the value it had when exported.
static Expected<int64_t> parseSymInt(const JsonCursor &json) {
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

static Error parseSymInts(const JsonCursor &json, SmallVectorImpl<int64_t> &values) {
  return json.forEachElement([&](const JsonCursor &element) -> Error {
    ASSIGN_OR_RETURN(int64_t value, parseSymInt(element));
    values.push_back(value);
    return Error::success();
  });
}

template <typename T, typename Read>
static Error parseList(const JsonCursor &json, std::vector<T> &values, Read read) {
  return json.forEachElement([&](const JsonCursor &element) -> Error {
    auto value = read(element);
    if (!value)
      return value.takeError();
    values.push_back(std::move(*value));
    return Error::success();
  });
}

static Expected<std::string> parseName(const JsonCursor &json) {
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

static Expected<DType> parseDType(const JsonCursor &json) {
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

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

StringRef memopt::pt2::getName(Argument::Kind kind) {
  switch (kind) {
  case Argument::Kind::None:
    return "none";
  case Argument::Kind::Tensor:
    return "a tensor";
  case Argument::Kind::Tensors:
    return "a list of tensors";
  case Argument::Kind::Int:
    return "an integer";
  case Argument::Kind::Ints:
    return "a list of integers";
  case Argument::Kind::Float:
    return "a number";
  case Argument::Kind::Floats:
    return "a list of numbers";
  case Argument::Kind::Bool:
    return "a boolean";
  case Argument::Kind::Bools:
    return "a list of booleans";
  case Argument::Kind::String:
    return "a string";
  case Argument::Kind::Strings:
    return "a list of strings";
  case Argument::Kind::ScalarType:
    return "an element type";
  case Argument::Kind::MemoryFormat:
    return "a memory format";
  case Argument::Kind::Layout:
    return "a layout";
  case Argument::Kind::Device:
    return "a device";
  case Argument::Kind::Graph:
    return "a graph";
  case Argument::Kind::CustomObject:
    return "a custom object";
  case Argument::Kind::Other:
    return "an argument of another kind";
  }
  llvm_unreachable("all kinds are named");
}

static Expected<Graph> parseGraph(const JsonCursor &json);

static Error parseOptionalTensor(const JsonCursor &json, Argument &argument) {
  ASSIGN_OR_RETURN(auto tagged, json.variant());
  argument.names.emplace_back();
  if (tagged.first == "as_none")
    return Error::success();
  if (tagged.first != "as_tensor")
    return json.expected("as_tensor or as_none");
  ASSIGN_OR_RETURN(argument.names.back(), parseName(tagged.second));
  return Error::success();
}

/// A size that may be the name of a value computed in the graph.
static Error parseSymIntArgument(const JsonCursor &json, Argument &argument) {
  ASSIGN_OR_RETURN(auto tagged, json.variant());
  argument.names.emplace_back();
  argument.ints.push_back(0);
  if (tagged.first == "as_name") {
    ASSIGN_OR_RETURN(argument.names.back(), tagged.second.string());
  } else if (tagged.first == "as_int") {
    ASSIGN_OR_RETURN(argument.ints.back(), tagged.second.integer());
  } else {
    return json.expected("as_name or as_int");
  }
  return Error::success();
}

static Error parseArgumentValue(StringRef tag, const JsonCursor &value, Argument &argument) {
  using Kind = Argument::Kind;
  auto readInt = [](const JsonCursor &json) { return json.integer(); };
  auto one = [&](Kind kind) -> Error {
    argument.kind = kind;
    ASSIGN_OR_RETURN(int64_t number, value.integer());
    argument.ints.push_back(number);
    return Error::success();
  };
  argument.kind = StringSwitch<Kind>(tag)
                      .Case("as_none", Kind::None)
                      .Cases({"as_tensor", "as_optional_tensor"}, Kind::Tensor)
                      .Cases({"as_tensors", "as_optional_tensors"}, Kind::Tensors)
                      .Cases({"as_int", "as_sym_int"}, Kind::Int)
                      .Cases({"as_ints", "as_sym_ints"}, Kind::Ints)
                      .Case("as_float", Kind::Float)
                      .Case("as_floats", Kind::Floats)
                      .Case("as_bool", Kind::Bool)
                      .Case("as_bools", Kind::Bools)
                      .Case("as_string", Kind::String)
                      .Case("as_strings", Kind::Strings)
                      .Case("as_device", Kind::Device)
                      .Case("as_graph", Kind::Graph)
                      .Case("as_custom_obj", Kind::CustomObject)
                      .Default(Kind::Other);
  if (tag == "as_tensor") {
    ASSIGN_OR_RETURN(std::string name, parseName(value));
    argument.names.push_back(std::move(name));
  } else if (tag == "as_optional_tensor") {
    return parseOptionalTensor(value, argument);
  } else if (tag == "as_tensors") {
    return parseList(value, argument.names, parseName);
  } else if (tag == "as_optional_tensors") {
    return value.forEachElement(
        [&](const JsonCursor &element) { return parseOptionalTensor(element, argument); });
  } else if (tag == "as_int") {
    return one(Kind::Int);
  } else if (tag == "as_ints") {
    return parseList(value, argument.ints, readInt);
  } else if (tag == "as_sym_int") {
    return parseSymIntArgument(value, argument);
  } else if (tag == "as_sym_ints") {
    return value.forEachElement(
        [&](const JsonCursor &element) { return parseSymIntArgument(element, argument); });
  } else if (tag == "as_float") {
    ASSIGN_OR_RETURN(double number, value.number());
    argument.floats.push_back(number);
  } else if (tag == "as_floats") {
    return parseList(value, argument.floats, [](const JsonCursor &json) { return json.number(); });
  } else if (tag == "as_bool") {
    ASSIGN_OR_RETURN(bool flag, value.boolean());
    argument.ints.push_back(flag);
  } else if (tag == "as_bools") {
    return parseList(value, argument.ints, [](const JsonCursor &json) -> Expected<int64_t> {
      ASSIGN_OR_RETURN(bool flag, json.boolean());
      return int64_t(flag);
    });
  } else if (tag == "as_string") {
    ASSIGN_OR_RETURN(argument.text, value.string());
  } else if (tag == "as_device") {
    ASSIGN_OR_RETURN(JsonCursor type, value.field("type"));
    ASSIGN_OR_RETURN(argument.text, type.string());
  } else if (tag == "as_scalar_type") {
    ASSIGN_OR_RETURN(DType type, parseDType(value));
    argument.kind = Kind::ScalarType;
    argument.ints.push_back(int64_t(type));
  } else if (tag == "as_memory_format") {
    return one(Kind::MemoryFormat);
  } else if (tag == "as_layout") {
    return one(Kind::Layout);
  } else if (tag == "as_graph") {
    ASSIGN_OR_RETURN(JsonCursor body, value.field("graph"));
    ASSIGN_OR_RETURN(Graph graph, parseGraph(body));
    argument.graph = std::make_shared<Graph>(std::move(graph));
  } else if (tag == "as_custom_obj") {
    ASSIGN_OR_RETURN(std::string name, parseName(value));
    argument.names.push_back(std::move(name));
  } else if (argument.kind == Kind::Other) {
    argument.text = tag.str(); // refused by whoever needs it
  }
  return Error::success();
}

static Expected<Argument> parseArgument(const JsonCursor &json) {
  ASSIGN_OR_RETURN(auto tagged, json.variant());
  Argument argument;
  if (Error err = parseArgumentValue(tagged.first, tagged.second, argument))
    return std::move(err);
  return argument;
}

//===----------------------------------------------------------------------===//
// Graph
//===----------------------------------------------------------------------===//

/// The path and the type in the last entry of "key,path,type;key,path,type;...", where types may
/// hold commas in brackets.
static std::pair<std::string, std::string> parseModule(StringRef stack) {
  StringRef last = stack.rsplit(';').second;
  if (last.empty())
    last = stack;
  SmallVector<StringRef, 3> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= last.size(); ++i) {
    char c = i < last.size() ? last[i] : ',';
    depth += (c == '[' || c == '(') - (c == ']' || c == ')');
    if (c == ',' && (depth <= 0 || i == last.size())) {
      parts.push_back(last.slice(begin, i));
      begin = i + 1;
    }
  }
  parts.resize(std::max<size_t>(parts.size(), 3));
  return {parts[1].str(), parts[2].str()};
}

static Expected<Node> parseNode(const JsonCursor &json) {
  Node node;
  ASSIGN_OR_RETURN(JsonCursor target, json.field("target"));
  ASSIGN_OR_RETURN(node.target, target.string());
  if (StringRef(node.target).starts_with("torch.ops."))
    node.target.erase(0, StringRef("torch.ops.").size());
  if (auto name = json.optionalField("name")) {
    ASSIGN_OR_RETURN(node.name, name->string());
  }
  if (auto metadata = json.optionalField("metadata")) {
    if (auto stack = metadata->optionalField("nn_module_stack")) {
      ASSIGN_OR_RETURN(std::string text, stack->string());
      std::tie(node.modulePath, node.moduleClass) = parseModule(text);
    }
    if (auto function =
            metadata->optionalField("torch_fn")) { // "detach_1;method_descriptor.detach"
      ASSIGN_OR_RETURN(std::string text, function->string());
      node.caller = StringRef(text).rsplit(';').second.str();
    }
  }
  ASSIGN_OR_RETURN(JsonCursor inputs, json.field("inputs"));
  Error err =
      parseList(inputs, node.inputs, [](const JsonCursor &element) -> Expected<NamedArgument> {
        NamedArgument argument;
        ASSIGN_OR_RETURN(argument.name, parseName(element));
        ASSIGN_OR_RETURN(JsonCursor value, element.field("arg"));
        ASSIGN_OR_RETURN(argument.value, parseArgument(value));
        return argument;
      });
  if (err)
    return std::move(err);
  ASSIGN_OR_RETURN(JsonCursor outputs, json.field("outputs"));
  if (Error failed = parseList(outputs, node.outputs, parseArgument))
    return std::move(failed);
  return node;
}

/// Whether a size depends on the data: an expression that had no value when the graph was traced.
static bool hasUnknownSize(const JsonCursor &json) {
  bool isUnknown = false;
  auto sizes = json.optionalField("sizes");
  Error failed =
      !sizes ? Error::success() : sizes->forEachElement([&](const JsonCursor &element) -> Error {
        ASSIGN_OR_RETURN(auto tagged, element.variant());
        isUnknown |= tagged.first == "as_expr" && !tagged.second.optionalField("hint");
        return Error::success();
      });
  consumeError(std::move(failed)); // whatever else is wrong is found when the sizes are read
  return isUnknown;
}

/// Reads one value's meta data. What has no form here is remembered by name, so that the error can
/// be raised where the value is used, together with unsupported ops.
static Error parseTensorValue(StringRef name, const JsonCursor &json, Graph &graph) {
  ASSIGN_OR_RETURN(JsonCursor dtype, json.field("dtype"));
  ASSIGN_OR_RETURN(int64_t code, dtype.integer());
  if (!getDType(code)) {
    graph.unsupportedTensors[name] = "element type " + describeDTypeCode(code);
    return Error::success();
  }
  if (hasUnknownSize(json)) {
    graph.unsupportedTensors[name] = "a size that depends on the data";
    return Error::success();
  }
  ASSIGN_OR_RETURN(TensorMeta meta, parseTensorMeta(json));
  graph.tensors[name] = std::move(meta);
  return Error::success();
}

static Expected<Graph> parseGraph(const JsonCursor &json) {
  Graph graph;
  ASSIGN_OR_RETURN(JsonCursor inputs, json.field("inputs"));
  if (Error err = parseList(inputs, graph.inputs, parseArgument))
    return std::move(err);
  ASSIGN_OR_RETURN(JsonCursor outputs, json.field("outputs"));
  if (Error err = parseList(outputs, graph.outputs, parseArgument))
    return std::move(err);
  ASSIGN_OR_RETURN(JsonCursor nodes, json.field("nodes"));
  if (Error err = parseList(nodes, graph.nodes, parseNode))
    return std::move(err);
  if (graph.nodes.size() > limits::nodes)
    return nodes.expected("at most " + Twine(limits::nodes) + " nodes");
  ASSIGN_OR_RETURN(JsonCursor tensors, json.field("tensor_values"));
  Error err = tensors.forEachField([&](StringRef name, const JsonCursor &value) {
    return parseTensorValue(name, value, graph);
  });
  if (err)
    return std::move(err);
  if (auto symInts = json.optionalField("sym_int_values")) {
    Error failed = symInts->forEachField([&](StringRef name, const JsonCursor &value) -> Error {
      // One that depends on the data has no value: an error where it is used.
      ASSIGN_OR_RETURN(auto tagged, value.variant());
      if (tagged.first == "as_expr" && !tagged.second.optionalField("hint"))
        return Error::success();
      ASSIGN_OR_RETURN(graph.symInts[name], parseSymInt(value));
      return Error::success();
    });
    if (failed)
      return std::move(failed);
  }
  return graph;
}

//===----------------------------------------------------------------------===//
// Signature
//===----------------------------------------------------------------------===//

static Error readBareArgument(const JsonCursor &spec, std::string &value) {
  ASSIGN_OR_RETURN(JsonCursor argument, spec.field("arg"));
  ASSIGN_OR_RETURN(value, parseName(argument));
  return Error::success();
}

static Error readString(const JsonCursor &json, StringRef key, std::string &value) {
  ASSIGN_OR_RETURN(JsonCursor field, json.field(key));
  ASSIGN_OR_RETURN(value, field.string());
  return Error::success();
}

static Expected<InputSpec> parseInputSpec(const JsonCursor &json) {
  ASSIGN_OR_RETURN(auto tagged, json.variant());
  const auto &[tag, spec] = tagged;
  InputSpec result;
  if (tag == "user_input") {
    ASSIGN_OR_RETURN(JsonCursor value, spec.field("arg"));
    ASSIGN_OR_RETURN(Argument argument, parseArgument(value));
    if (argument.kind != Argument::Kind::Tensor)
      return value.expected("as_tensor (inputs of the step are tensors)");
    result.value = argument.names.front();
    return result;
  }
  if (tag == "constant_input") {
    result.kind = InputSpec::Kind::ConstantInput;
    if (Error err = readString(spec, "name", result.value))
      return std::move(err);
    return result;
  }
  StringRef key;
  if (tag == "parameter") {
    result.kind = InputSpec::Kind::Parameter;
    key = "parameter_name";
  } else if (tag == "buffer") {
    result.kind = InputSpec::Kind::Buffer;
    key = "buffer_name";
    ASSIGN_OR_RETURN(JsonCursor persistent, spec.field("persistent"));
    ASSIGN_OR_RETURN(result.persistent, persistent.boolean());
  } else if (tag == "tensor_constant") {
    result.kind = InputSpec::Kind::TensorConstant;
    key = "tensor_constant_name";
  } else {
    return json.error("inputs of kind '" + tag + "' are not supported");
  }
  if (Error err = readString(spec, key, result.target))
    return std::move(err);
  if (Error err = readBareArgument(spec, result.value))
    return std::move(err);
  return result;
}

static Expected<OutputSpec> parseOutputSpec(const JsonCursor &json) {
  ASSIGN_OR_RETURN(auto tagged, json.variant());
  const auto &[tag, spec] = tagged;
  OutputSpec result;
  if (tag == "user_output") {
    ASSIGN_OR_RETURN(JsonCursor value, spec.field("arg"));
    ASSIGN_OR_RETURN(result.value, parseArgument(value));
    return result;
  }
  StringRef key;
  if (tag == "buffer_mutation") {
    result.kind = OutputSpec::Kind::BufferMutation;
    key = "buffer_name";
  } else if (tag == "user_input_mutation") {
    result.kind = OutputSpec::Kind::InputMutation;
    key = "user_input_name";
  } else if (tag != "loss_output") {
    return json.error("outputs of kind '" + tag +
                      "' are not supported; export the forward pass and the loss only");
  }
  if (!key.empty())
    if (Error err = readString(spec, key, result.target))
      return std::move(err);
  result.value.kind = Argument::Kind::Tensor;
  result.value.names.emplace_back();
  if (Error err = readBareArgument(spec, result.value.names.back()))
    return std::move(err);
  return result;
}

static Error checkVersion(const JsonCursor &json) {
  ASSIGN_OR_RETURN(JsonCursor version, json.field("schema_version"));
  ASSIGN_OR_RETURN(JsonCursor major, version.field("major"));
  ASSIGN_OR_RETURN(int64_t number, major.integer());
  if (number != 8)
    return major.expected("schema version 8 (PyTorch 2.6 and newer)");
  return Error::success();
}

Expected<ExportedProgram> memopt::pt2::parseExportedProgram(const JsonCursor &json) {
  if (Error err = checkVersion(json))
    return std::move(err);
  ExportedProgram program;
  if (auto version = json.optionalField("torch_version")) {
    ASSIGN_OR_RETURN(program.torchVersion, version->string());
  }
  ASSIGN_OR_RETURN(JsonCursor module, json.field("graph_module"));
  ASSIGN_OR_RETURN(JsonCursor graph, module.field("graph"));
  ASSIGN_OR_RETURN(program.graph, parseGraph(graph));
  ASSIGN_OR_RETURN(JsonCursor signature, module.field("signature"));
  ASSIGN_OR_RETURN(JsonCursor inputs, signature.field("input_specs"));
  if (Error err = parseList(inputs, program.inputs, parseInputSpec))
    return std::move(err);
  ASSIGN_OR_RETURN(JsonCursor outputs, signature.field("output_specs"));
  if (Error err = parseList(outputs, program.outputs, parseOutputSpec))
    return std::move(err);
  if (program.inputs.size() != program.graph.inputs.size())
    return inputs.error("expected one spec for each of the graph's " +
                        Twine(program.graph.inputs.size()) + " inputs, found " +
                        Twine(program.inputs.size()));
  if (program.outputs.size() != program.graph.outputs.size())
    return outputs.error("expected one spec for each of the graph's " +
                         Twine(program.graph.outputs.size()) + " outputs, found " +
                         Twine(program.outputs.size()));
  return program;
}
