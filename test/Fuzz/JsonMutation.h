//===- JsonMutation.h - changes that leave JSON whole -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Damaged bytes rarely get past a parser. These mutations change values inside a document, so that
// what reads it meets the wrong kind, a hostile number, another place's value, or nothing.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_FUZZ_JSONMUTATION_H
#define MEMOPT_TEST_FUZZ_JSONMUTATION_H

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <random>
#include <string>
#include <vector>

namespace memopt::testing {

inline void collectValues(llvm::json::Value &value, std::vector<llvm::json::Value *> &all) {
  all.push_back(&value);
  if (llvm::json::Array *array = value.getAsArray())
    for (llvm::json::Value &element : *array)
      collectValues(element, all);
  if (llvm::json::Object *object = value.getAsObject())
    for (auto &entry : *object)
      collectValues(entry.second, all);
}

/// Gives one value of the document another one.
inline void mutateValue(llvm::json::Value &document, std::mt19937 &random) {
  namespace json = llvm::json;
  std::vector<json::Value *> all;
  collectValues(document, all);
  json::Value &target = *all[random() % all.size()];
  constexpr int64_t numbers[] = {0,         1,        -1, 2, 3, 7, 64, 1 << 20, int64_t(1) << 31,
                                 INT64_MAX, INT64_MIN};
  int64_t number = numbers[random() % std::size(numbers)];
  switch (random() % 7) {
  case 0:
  case 1:
    target = number;
    break;
  case 2:
    target = json::Value(*all[random() % all.size()]);
    break;
  case 3:
    target = nullptr;
    break;
  case 4:
    if (json::Array *array = target.getAsArray(); array && !array->empty())
      array->erase(array->begin() + random() % array->size());
    else
      target = json::Array{};
    break;
  case 5:
    if (json::Array *array = target.getAsArray(); array && !array->empty())
      array->push_back(json::Value((*array)[random() % array->size()]));
    else
      target = random() % 2 ? json::Value(1e300) : json::Value("text");
    break;
  default:
    target = json::Object{{"as_ints", json::Array{number, -1}}};
  }
}

/// The text with one or two values changed; no change to what is no JSON.
inline std::string mutateJson(llvm::StringRef text, unsigned seed) {
  llvm::Expected<llvm::json::Value> document = llvm::json::parse(text);
  if (!document) {
    llvm::consumeError(document.takeError());
    return text.str();
  }
  std::mt19937 random(seed);
  for (unsigned count = 1 + random() % 2; count != 0; --count)
    mutateValue(*document, random);
  return llvm::formatv("{0}", *document);
}

} // namespace memopt::testing

#endif // MEMOPT_TEST_FUZZ_JSONMUTATION_H
