//===- Signature.cpp - an exported program and the roles of its values -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SchemaPieces.h"
#include "memopt/Import/Archive/AssignOrReturn.h"

using namespace llvm;
using namespace memopt::pt2;

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
  if (tag == "buffer_mutation" || tag == "parameter_mutation") {
    result.kind = OutputSpec::Kind::StateMutation;
    key = tag == "buffer_mutation" ? "buffer_name" : "parameter_name";
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
