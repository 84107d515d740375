//===- Schema.cpp - arguments and graphs of torch.export as plain structs -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Archive/Schema.h"
#include "SchemaPieces.h"
#include "memopt/Import/Archive/AssignOrReturn.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace memopt::pt2;

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
  } else if (tag == "as_sym_bool" || tag == "as_sym_float") {
    argument.text = tag.str();
    if (auto name = value.optionalField("as_name")) {
      ASSIGN_OR_RETURN(argument.names.emplace_back(), name->string());
    }
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

Expected<Argument> memopt::pt2::parseArgument(const JsonCursor &json) {
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

/// The innermost line of a trace that is not PyTorch's own: of `File "model.py", line 12, in
/// forward` for each call, or of what memopt.export makes of it, `model.py:12`.
static std::string parseSourceLine(StringRef trace) {
  std::string line;
  if (!trace.contains("File \""))
    line = trace.trim().str();
  while (trace.contains("File \"")) {
    StringRef file = trace.split("File \"").second, number;
    std::tie(file, trace) = file.split('"');
    number = trace;
    if (number.consume_front(", line ") && !file.contains("/torch/"))
      line = (file + ":" + number.take_while(isDigit)).str();
  }
  constexpr size_t longest = 512;
  bool isPrintable = all_of(line, [](char c) { return isPrint(c) || (c & 0x80); });
  return isPrintable && line.size() <= longest ? line : std::string();
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
    if (auto trace = metadata->optionalField("stack_trace")) {
      ASSIGN_OR_RETURN(std::string text, trace->string());
      node.line = parseSourceLine(text);
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

Expected<Graph> memopt::pt2::parseGraph(const JsonCursor &json) {
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
