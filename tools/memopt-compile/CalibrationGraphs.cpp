//===- CalibrationGraphs.cpp - steps to measure a machine by ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CalibrationGraphs.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstdint>

using namespace memopt::tool;

namespace {
/// Writes a step as a chain of layers; each takes the value that the one before it left.
class StepWriter {
public:
  using Shape = llvm::SmallVector<int64_t>;

  explicit StepWriter(Shape input) : shape(std::move(input)) {
    value = read(shape, "buffer", "0.5");
  }

  StepWriter &convolution(int64_t channels, int64_t kernel, int64_t stride = 1,
                          int64_t groups = 1) {
    int64_t padding = kernel / 2;
    std::string weight =
        read({channels, shape[1] / groups, kernel, kernel}, "parameter", std::nullopt);
    Shape result{shape[0], channels, (shape[2] + 2 * padding - kernel) / stride + 1,
                 (shape[3] + 2 * padding - kernel) / stride + 1};
    std::string attributes =
        llvm::formatv("dilations = array<i64: 1, 1>, groups = {0} : i64, padding_high = array<i64: "
                      "{1}, {1}>, padding_low = array<i64: {1}, {1}>, strides = array<i64: {2}, "
                      "{2}>",
                      groups, padding, stride);
    Shape weightShape{channels, shape[1] / groups, kernel, kernel};
    return apply("memopt.convolution", {{value, shape}, {weight, weightShape}}, attributes, result);
  }

  StepWriter &batchNorm() {
    Shape channels{shape[1]};
    return applyNorm("memopt.batch_norm", channels, channels, "");
  }
  StepWriter &layerNorm() {
    Shape leading(shape.begin(), shape.end() - 1);
    return applyNorm("memopt.layer_norm", {shape.back()}, leading,
                     "begin = " + std::to_string(shape.size() - 1) + " : i64, ");
  }

  StepWriter &relu() { return unary("memopt.relu"); }
  StepWriter &tanh() { return unary("math.tanh"); }
  StepWriter &maxPool() {
    Shape result{shape[0], shape[1], (shape[2] + 1) / 2, (shape[3] + 1) / 2};
    return apply("memopt.max_pool", {{value, shape}},
                 "dilations = array<i64: 1, 1>, kernel = array<i64: 3, 3>, padding_high = "
                 "array<i64: 1, 1>, padding_low = array<i64: 1, 1>, strides = array<i64: 2, 2>",
                 result, {type(result, "i8")});
  }

  StepWriter &linear(int64_t features) {
    Shape weight{shape.back(), features}, result{shape[0], features};
    apply("memopt.matmul", {{value, shape}, {read(weight, "parameter", std::nullopt), weight}}, "",
          result);
    std::string product = value, bias = read({features}, "parameter", "0.0");
    apply("memopt.broadcast", {{bias, {features}}}, "dimensions = array<i64: 1>", result);
    return binary("addf", product);
  }

  /// Causal attention of `batch` sequences; queries, keys and values are projected by one product.
  StepWriter &attention(int64_t batch, int64_t heads, bool isCausal) {
    int64_t tokens = shape[0] / batch, features = shape[1], width = features / heads;
    linear(3 * features);
    Shape fused = shape, part{shape[0], features}, split{batch, tokens, heads, width},
          moved{batch, heads, tokens, width};
    std::string all = value;
    llvm::SmallVector<std::pair<std::string, Shape>> operands;
    for (int64_t i = 0; i < 3; ++i) {
      std::string slice = name(), expanded = name();
      body += llvm::formatv("  {0} = tensor.extract_slice {1}[0, {2}] [{3}, {4}] [1, 1] : {5} to "
                            "{6}\n",
                            slice, all, i * features, part[0], features, type(fused), type(part));
      body += llvm::formatv("  {0} = tensor.expand_shape {1} [[0, 1], [2, 3]] output_shape [{2}] : "
                            "{3} into {4}\n",
                            expanded, slice, list(split), type(part), type(split));
      value = expanded;
      shape = split;
      apply("memopt.transpose", {{value, shape}}, "permutation = array<i64: 0, 2, 1, 3>", moved);
      operands.push_back({value, moved});
    }
    apply("memopt.attention", operands,
          std::string(isCausal ? "causal, " : "") +
              "operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 0.125 : f64",
          moved, {type({batch, heads, tokens})});
    apply("memopt.transpose", {{value, shape}}, "permutation = array<i64: 0, 2, 1, 3>", split);
    std::string collapsed = name();
    body += llvm::formatv("  {0} = tensor.collapse_shape {1} [[0, 1], [2, 3]] : {2} into {3}\n",
                          collapsed, value, type(split), type(part));
    value = collapsed;
    shape = part;
    return linear(features);
  }

  /// Adds what `layers` make of the value to the value.
  template <typename Layers> StepWriter &residual(Layers layers) {
    std::string before = value;
    layers(*this);
    return binary("addf", before);
  }

  /// The sum of squares.
  std::string finishWithSquares() {
    binary("mulf", value);
    llvm::SmallVector<int64_t> all;
    for (size_t dim = 0; dim < shape.size(); ++dim)
      all.push_back(static_cast<int64_t>(dim));
    apply("memopt.reduce", {{value, shape}},
          "kind = #memopt.reduce<add>, dimensions = array<i64: " + list(all) + ">", {});
    return finish();
  }

  /// Cross entropy against the first class.
  std::string finishWithClasses() {
    std::string labels = read({shape[0]}, "buffer", "0.0", "i64");
    std::string result = name();
    body += llvm::formatv("  {0}:4 = memopt.cross_entropy {1}, {2} : ({3}, {4}) -> (tensor<f32>, "
                          "tensor<f32>, {5}, {5})\n",
                          result, value, labels, type(shape), type({shape[0]}, "i64"),
                          type({shape[0]}));
    value = result + "#0";
    return finish();
  }

private:
  std::string name() { return "%" + std::to_string(nextName++); }

  static std::string list(llvm::ArrayRef<int64_t> numbers) {
    std::string text;
    for (int64_t number : numbers)
      text += (text.empty() ? "" : ", ") + std::to_string(number);
    return text;
  }
  static std::string type(llvm::ArrayRef<int64_t> shape, const std::string &element = "f32") {
    std::string text = "tensor<";
    for (int64_t size : shape)
      text += std::to_string(size) + "x";
    return text + element + ">";
  }

  /// A variable of its own; parameters are trained, and start with `initial` or at random.
  std::string read(const Shape &shape, const std::string &role, std::optional<std::string> initial,
                   const std::string &element = "f32") {
    std::string symbol = "@v" + std::to_string(nextVariable++), result = name();
    variables += "memopt.variable " + symbol + " : " + type(shape, element) + " role <" + role +
                 "> {" + (role == "parameter" ? "trainable" : "transient") +
                 (initial ? ", init_value = " + *initial + " : f64" : "") + "}\n";
    body += "  " + result + " = memopt.read " + symbol + " : " + type(shape, element) + "\n";
    return result;
  }

  StepWriter &apply(const std::string &op, llvm::ArrayRef<std::pair<std::string, Shape>> operands,
                    const std::string &attributes, const Shape &resultShape,
                    llvm::ArrayRef<std::string> furtherResults = {}) {
    std::string result = name(), names, types;
    for (const auto &[operand, operandShape] : operands) {
      names += (names.empty() ? "" : ", ") + operand;
      types += (types.empty() ? "" : ", ") + type(operandShape);
    }
    std::string results = type(resultShape);
    for (const std::string &further : furtherResults)
      results += ", " + further;
    body += "  " + result;
    if (!furtherResults.empty())
      body += ":" + std::to_string(1 + furtherResults.size());
    body += " = " + op + " " + names;
    if (!attributes.empty())
      body += " {" + attributes + "}";
    body += " : (" + types + ") -> (" + results + ")\n";
    value = furtherResults.empty() ? result : result + "#0";
    shape = resultShape;
    return *this;
  }

  StepWriter &applyNorm(const std::string &op, const Shape &affine, const Shape &statistics,
                        const std::string &attributes) {
    std::string scale = read(affine, "parameter", "1.0"), offset = read(affine, "parameter", "0.0");
    return apply(op, {{value, shape}, {scale, affine}, {offset, affine}},
                 attributes + "eps = 1.0e-05 : f64, operandSegmentSizes = array<i32: 1, 1, 1>",
                 shape, {type(statistics), type(statistics)});
  }

  StepWriter &unary(const std::string &op) {
    std::string result = name();
    body += "  " + result + " = " + op + " " + value + " : " + type(shape) + "\n";
    value = result;
    return *this;
  }
  StepWriter &binary(const std::string &op, const std::string &other) {
    std::string result = name();
    body +=
        "  " + result + " = arith." + op + " " + value + ", " + other + " : " + type(shape) + "\n";
    value = result;
    return *this;
  }

  std::string finish() {
    return variables +
           "func.func @train_step() -> (tensor<f32> {memopt.name = \"loss\", memopt.role = "
           "\"loss\"}) {\n" +
           body + "  return " + value + " : tensor<f32>\n}\n";
  }

  std::string variables, body, value;
  Shape shape;
  int nextName = 0, nextVariable = 0;
};
} // namespace

static std::string makeResidualNetwork(int64_t batch, int64_t channels, int64_t size,
                                       int64_t blocks = 1) {
  StepWriter step({batch, channels, size, size});
  step.convolution(channels, 3).batchNorm().relu();
  for (int64_t block = 0; block < blocks; ++block) {
    step.residual([&](StepWriter &inner) {
      inner.convolution(2 * channels, 1).batchNorm().relu();
      inner.convolution(2 * channels, 3).batchNorm().relu();
      inner.convolution(channels, 1).batchNorm();
    });
    step.relu();
  }
  step.maxPool().convolution(2 * channels, 3, /*stride=*/2).batchNorm().relu();
  return step.finishWithSquares();
}

static std::string makeDepthwiseNetwork(int64_t batch, int64_t channels, int64_t size) {
  StepWriter step({batch, channels, size, size});
  step.convolution(channels, 3, 1, channels).batchNorm().relu();
  step.convolution(channels, 1).batchNorm().relu();
  step.convolution(channels, 3, /*stride=*/2, channels).batchNorm().relu();
  return step.finishWithSquares();
}

static std::string makeTransformer(int64_t batch, int64_t tokens, int64_t features, int64_t heads,
                                   int64_t classes, bool isCausal) {
  StepWriter step({batch * tokens, features});
  step.residual([&](StepWriter &inner) { inner.layerNorm().attention(batch, heads, isCausal); });
  step.residual(
      [&](StepWriter &inner) { inner.layerNorm().linear(4 * features).tanh().linear(features); });
  step.layerNorm().linear(classes);
  return step.finishWithClasses();
}

static std::string makePointwise(int64_t rows, int64_t features) {
  StepWriter step({rows, features});
  step.residual([&](StepWriter &inner) { inner.layerNorm().tanh(); });
  return step.finishWithSquares();
}

std::vector<CalibrationGraph> memopt::tool::makeCalibrationGraphs() {
  return {
      {"convolutions, tiny", "sgd", 60, makeResidualNetwork(4, 16, 8)},
      {"convolutions, small", "adamw", 30, makeResidualNetwork(8, 32, 24)},
      {"convolutions, deep", "sgd", 12, makeResidualNetwork(8, 128, 14)},
      {"convolutions, wide", "sgd", 6, makeResidualNetwork(8, 64, 56)},
      // What the backward pass reads was written so long ago that no cache has it, as in any model.
      {"convolutions, wide, of many layers", "sgd", 3, makeResidualNetwork(32, 64, 56, 3)},
      {"convolutions, of many channels", "sgd", 6, makeResidualNetwork(4, 512, 7)},
      {"depthwise convolutions, small", "sgd", 30, makeDepthwiseNetwork(4, 96, 14)},
      {"depthwise convolutions, large", "sgd", 8, makeDepthwiseNetwork(8, 128, 56)},
      {"convolutions, deep, bf16", "sgd", 12, makeResidualNetwork(8, 128, 14), "bf16"},
      {"convolutions, wide, bf16", "sgd", 4, makeResidualNetwork(8, 64, 56), "bf16"},
      {"transformer, tiny", "adamw", 60, makeTransformer(2, 32, 32, 4, 64, true)},
      {"transformer, small", "adamw", 30, makeTransformer(4, 128, 128, 4, 512, true)},
      {"transformer, large", "adamw", 6, makeTransformer(2, 512, 768, 12, 8192, true)},
      {"transformer, small, bf16", "adamw", 30, makeTransformer(4, 128, 128, 4, 512, true), "bf16"},
      {"transformer, large, bf16", "sgd", 5, makeTransformer(2, 512, 768, 12, 2048, true), "bf16"},
      {"transformer over patches", "sgd", 10, makeTransformer(8, 196, 384, 6, 1000, false)},
      {"elementwise, small", "sgd", 200, makePointwise(128, 256)},
      {"elementwise, in cache", "sgd", 60, makePointwise(1024, 768)},
      {"elementwise, out of cache", "sgd", 8, makePointwise(16384, 768)},
  };
}

/// Samples grow with the multiprocessors; extents with their root, so that work for each of them
/// grows, too: a device with many is a fast one, and should not be measured by its launches alone.
std::vector<CalibrationGraph> memopt::tool::makeCalibrationGraphs(int64_t sms) {
  int64_t samples = std::max<int64_t>(1, sms / 4), extent = 1;
  while (extent * extent < samples)
    ++extent;
  return {
      {"convolutions, small", "sgd", 12, makeResidualNetwork(samples, 16, 8)},
      {"convolutions, large", "sgd", 6, makeResidualNetwork(samples, 16 * extent, 8 * extent)},
      {"depthwise convolutions", "sgd", 6, makeDepthwiseNetwork(samples, 32 * extent, 8 * extent)},
      {"transformer, small", "adamw", 12, makeTransformer(samples, 16, 64, 4, 256, true)},
      {"transformer, large", "adamw", 6,
       makeTransformer(samples, 32 * extent, 64 * extent, 4, 256 * samples, true)},
      {"convolutions, large, bf16", "sgd", 6, makeResidualNetwork(samples, 16 * extent, 8 * extent),
       "bf16"},
      {"transformer, large, bf16", "adamw", 6,
       makeTransformer(samples, 32 * extent, 64 * extent, 4, 256 * samples, true), "bf16"},
      {"elementwise, small", "sgd", 20, makePointwise(8 * samples, 256)},
      {"elementwise, in cache", "sgd", 12, makePointwise(32 * samples, 256 * extent)},
      {"elementwise, out of cache", "sgd", 6, makePointwise(512 * samples, 256 * extent)},
  };
}
