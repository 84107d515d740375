//===- Dimensions.cpp - symbolic sizes of an archive -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Archive/Dimensions.h"

#include "memopt/Import/Archive/Limits.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"

#include <limits>
#include <optional>

using namespace llvm;
using namespace memopt::pt2;

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

namespace {
/// A size in SymPy's constructor notation: Mul(Integer(2), Symbol('s0', integer=True)).
class Expression {
public:
  Expression(StringRef text, const StringMap<int64_t> &values) : rest(text), values(values) {}

  /// Nothing for what is no such expression, or has no value of 64 bits.
  std::optional<int64_t> evaluate() {
    std::optional<int64_t> value = parse(0);
    return value && rest.trim().empty() ? value : std::nullopt;
  }

private:
  static constexpr int kMostNested = 64;

  std::optional<int64_t> parse(int depth) {
    rest = rest.ltrim();
    int64_t number;
    if (depth > kMostNested)
      return std::nullopt;
    if (!rest.consumeInteger(10, number))
      return number;
    StringRef name = rest.take_while([](char c) { return isAlnum(c) || c == '_'; });
    rest = rest.drop_front(name.size());
    if (name.empty())
      return std::nullopt;
    if (!rest.consume_front("("))
      return find(name);
    if (name == "Symbol")
      return parseSymbol();
    SmallVector<int64_t> operands;
    while (!rest.consume_front(")")) {
      std::optional<int64_t> operand = parse(depth + 1);
      if (!operand)
        return std::nullopt;
      operands.push_back(*operand);
      rest = rest.ltrim();
      rest.consume_front(",");
    }
    return apply(name, operands);
  }

  /// 'NAME', and assumptions up to the parenthesis.
  std::optional<int64_t> parseSymbol() {
    auto [inside, behind] = rest.split(')');
    rest = behind;
    return find(inside.split(',').first.trim().trim("'\""));
  }

  std::optional<int64_t> find(StringRef symbol) const {
    auto found = values.find(symbol);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  }

  static std::optional<int64_t> power(int64_t base, int64_t exponent) {
    std::optional<int64_t> result = 1;
    for (; exponent > 0 && result; --exponent)
      if (int64_t product; MulOverflow(*result, base, product))
        result.reset();
      else
        result = product;
    return exponent < 0 ? std::nullopt : result;
  }

  static std::optional<int64_t> apply(StringRef name, ArrayRef<int64_t> x) {
    if (x.empty())
      return std::nullopt;
    if (name == "Integer" && x.size() == 1)
      return x[0];
    if (name == "Pow" && x.size() == 2)
      return x[1] > 63 && x[0] != 0 && x[0] != 1 ? std::nullopt
                                                 : power(x[0], std::min<int64_t>(x[1], 63));
    bool isDivision = name == "FloorDiv" || name == "CleanDiv";
    if ((isDivision || name == "Mod" || name == "PythonMod") && x.size() == 2) {
      if (x[1] <= 0 || x[0] < 0) // sizes and strides
        return std::nullopt;
      return isDivision ? x[0] / x[1] : x[0] % x[1];
    }
    std::optional<int64_t> result = x[0];
    for (int64_t operand : x.drop_front()) {
      int64_t next = 0;
      bool isTooLarge = false;
      if (name == "Add")
        isTooLarge = AddOverflow(*result, operand, next);
      else if (name == "Mul")
        isTooLarge = MulOverflow(*result, operand, next);
      else if (name == "Max")
        next = std::max(*result, operand);
      else if (name == "Min")
        next = std::min(*result, operand);
      else
        return std::nullopt;
      if (isTooLarge)
        return std::nullopt;
      result = next;
    }
    bool isKnown = name == "Add" || name == "Mul" || name == "Max" || name == "Min";
    return isKnown ? result : std::nullopt;
  }

  StringRef rest;
  const StringMap<int64_t> &values;
};

//===----------------------------------------------------------------------===//
// Dimensions
//===----------------------------------------------------------------------===//

struct Dimension {
  std::string symbol, name;
  int64_t least = 0, most = std::numeric_limits<int64_t>::max();
  std::vector<std::pair<std::string, size_t>> places; ///< inputs, and which dimension of each

  bool isCalled(StringRef other) const {
    return other == name || other == symbol || llvm::any_of(places, [&](const auto &place) {
             return other == place.first + "." + std::to_string(place.second);
           });
  }

  std::string describe() const {
    std::string text = name + " (";
    for (const auto &[input, dim] : places)
      text += (text.back() == '(' ? "" : ", ") + input + "." + std::to_string(dim);
    text += ", " + std::to_string(least) + " to ";
    return text + (most == std::numeric_limits<int64_t>::max() ? "any" : std::to_string(most)) +
           ")";
  }
};
} // namespace

/// The symbol that a size is, by itself.
static StringRef getSymbol(const json::Value &size) {
  const json::Object *object = size.getAsObject();
  const json::Object *expression = object ? object->getObject("as_expr") : nullptr;
  StringRef text = expression ? expression->getString("expr_str").value_or("") : "";
  if (!text.consume_front("Symbol('"))
    return "";
  return text.split('\'').first;
}

static std::vector<Dimension> findDimensions(const json::Object &model) {
  std::vector<Dimension> dimensions;
  const json::Object *ranges = model.getObject("range_constraints");
  const json::Object *module = model.getObject("graph_module");
  const json::Object *graph = module ? module->getObject("graph") : nullptr;
  const json::Object *tensors = graph ? graph->getObject("tensor_values") : nullptr;
  const json::Array *inputs = graph ? graph->getArray("inputs") : nullptr;
  if (!ranges || !tensors || !inputs)
    return dimensions;
  for (const json::Value &input : *inputs) {
    const json::Object *argument = input.getAsObject();
    const json::Object *tensor = argument ? argument->getObject("as_tensor") : nullptr;
    StringRef name = tensor ? tensor->getString("name").value_or("") : "";
    const json::Object *meta = tensors->getObject(name);
    const json::Array *sizes = meta ? meta->getArray("sizes") : nullptr;
    if (!sizes)
      continue;
    for (auto [place, size] : llvm::enumerate(*sizes)) {
      StringRef symbol = getSymbol(size);
      const json::Object *range = symbol.empty() ? nullptr : ranges->getObject(symbol);
      if (!range)
        continue;
      auto found =
          llvm::find_if(dimensions, [&](const Dimension &d) { return d.symbol == symbol; });
      if (found == dimensions.end()) {
        Dimension dimension{
            symbol.str(),
            "",
            range->getInteger("min_val").value_or(0),
            range->getInteger("max_val").value_or(std::numeric_limits<int64_t>::max()),
            {}};
        found = dimensions.insert(dimensions.end(), std::move(dimension));
      }
      found->places.emplace_back(name.str(), place);
    }
  }
  return dimensions;
}

static void nameDimensions(std::vector<Dimension> &dimensions) {
  auto isTaken = [&](StringRef name) {
    return llvm::any_of(dimensions, [&](const Dimension &d) { return d.name == name; });
  };
  for (Dimension &dimension : dimensions) {
    bool isFirst =
        llvm::all_of(dimension.places, [](const auto &place) { return place.second == 0; });
    const auto &[input, place] = dimension.places.front();
    if (isFirst && !isTaken("batch"))
      dimension.name = "batch";
    else
      dimension.name = isTaken(input) ? input + "." + std::to_string(place) : input;
  }
}

static std::string listDimensions(ArrayRef<Dimension> dimensions) {
  return llvm::join(llvm::map_range(dimensions, [](const Dimension &d) { return d.describe(); }),
                    ", ");
}

/// Values of all symbols.
static Expected<StringMap<int64_t>> chooseSizes(ArrayRef<Dimension> dimensions,
                                                const DimensionSizes &sizes, StringRef file) {
  std::vector<std::optional<int64_t>> chosen(dimensions.size());
  SmallVector<std::pair<std::string, int64_t>> others;
  for (const auto &given : sizes) {
    const auto *found =
        llvm::find_if(dimensions, [&](const Dimension &d) { return d.isCalled(given.first); });
    if (found == dimensions.end())
      others.push_back(given);
    else
      chosen[found - dimensions.begin()] = given.second;
  }
  // Names that somebody has given to torch.export, which keeps none.
  auto missing = llvm::count(chosen, std::nullopt);
  if (static_cast<size_t>(missing) != others.size())
    return makeError(file + ": the model has symbolic dimensions: " + listDimensions(dimensions) +
                     "; give each its sizes, --dim=" + dimensions.front().name + "=N,N,...");
  auto next = others.begin();
  StringMap<int64_t> values;
  for (auto [dimension, size] : llvm::zip_equal(dimensions, chosen)) {
    if (!size)
      size = (next++)->second;
    if (*size < dimension.least || *size > dimension.most)
      return makeError(file + ": --dim gives " + dimension.describe() + " the size " +
                       Twine(*size) + ", which is out of its range");
    values[dimension.symbol] = *size;
  }
  return values;
}

/// Puts values in the place of expressions, all the way down.
static Error substitute(json::Value &value, const StringMap<int64_t> &values, StringRef file) {
  if (json::Array *array = value.getAsArray()) {
    for (json::Value &element : *array)
      if (Error error = substitute(element, values, file))
        return error;
    return Error::success();
  }
  json::Object *object = value.getAsObject();
  if (!object)
    return Error::success();
  const json::Object *expression = object->size() == 1 ? object->getObject("as_expr") : nullptr;
  if (!expression) {
    for (auto &[key, field] : *object)
      if (Error error = substitute(field, values, file))
        return error;
    return Error::success();
  }
  std::string text = expression->getString("expr_str").value_or("").str();
  std::optional<int64_t> size = Expression(text, values).evaluate();
  if (!size && !expression->get("hint"))
    return Error::success(); // one that depends on the data, which is refused where it is used
  if (!size)
    return makeError(file + ": the size " + text + " is no expression that can be given a value");
  value = json::Object{{"as_int", *size}};
  return Error::success();
}

Error memopt::pt2::giveSizes(json::Value &model, const DimensionSizes &sizes, StringRef file) {
  const json::Object *root = model.getAsObject();
  std::vector<Dimension> dimensions;
  if (root)
    dimensions = findDimensions(*root);
  if (dimensions.empty())
    return sizes.empty() ? Error::success()
                         : makeError(file + ": --dim=" + sizes.front().first +
                                     "=...: the model has no symbolic dimensions; export it with "
                                     "torch.export.Dim");
  nameDimensions(dimensions);
  Expected<StringMap<int64_t>> values = chooseSizes(dimensions, sizes, file);
  if (!values)
    return values.takeError();
  return substitute(model, *values, file);
}
