//===- SolutionCache.h - solutions found again -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Questions and answers as numbers in the order of their fields. What is found is judged by the
// validator of its kind before anybody sees it. What is stored has a function passFields(fields,
// value) in its own namespace, which hands its fields over in a fixed order.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_UTILS_SOLUTIONCACHE_H
#define MEMOPT_PLANNING_UTILS_SOLUTIONCACHE_H

#include "memopt/Support/Cache.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Endian.h"

namespace memopt::planning {

/// Writes fields behind one another.
class FieldWriter {
public:
  std::string text;

  template <typename... Fields> void operator()(const Fields &...fields) { (write(fields), ...); }

private:
  void write(int64_t number) {
    char bytes[sizeof number];
    llvm::support::endian::write64le(bytes, number);
    text.append(bytes, sizeof bytes);
  }
  void write(const std::string &string) {
    write(static_cast<int64_t>(string.size()));
    text += string;
  }
  template <typename Item> void write(const std::vector<Item> &items) {
    write(static_cast<int64_t>(items.size()));
    for (const Item &item : items)
      write(item);
  }
  template <typename Struct> std::enable_if_t<std::is_class_v<Struct>> write(const Struct &fields) {
    passFields(*this, const_cast<Struct &>(fields)); // which a writer leaves as they are
  }
};

/// Reads them again, from text that nobody vouches for.
class FieldReader {
public:
  explicit FieldReader(llvm::StringRef text) : text(text) {}
  /// Whether there was what was asked for, and no more.
  bool isDone() const { return isWhole && text.empty(); }

  template <typename... Fields> void operator()(Fields &...fields) { (read(fields), ...); }

private:
  template <typename Number> std::enable_if_t<std::is_arithmetic_v<Number>> read(Number &number) {
    int64_t wide = 0;
    isWhole &= text.size() >= sizeof wide;
    if (isWhole)
      wide = static_cast<int64_t>(llvm::support::endian::read64le(text.data()));
    text = text.drop_front(std::min(text.size(), sizeof wide));
    number = static_cast<Number>(wide);
    isWhole &= static_cast<int64_t>(number) == wide;
  }
  void read(std::string &string) {
    string = text.take_front(readCount()).str();
    text = text.drop_front(string.size());
  }
  template <typename Item> void read(std::vector<Item> &items) {
    items.resize(readCount());
    for (Item &item : items)
      read(item);
  }
  template <typename Struct> std::enable_if_t<std::is_class_v<Struct>> read(Struct &fields) {
    passFields(*this, fields);
  }
  /// At most as many as there are bytes left.
  size_t readCount() {
    uint64_t count = 0;
    read(count);
    isWhole &= count <= text.size();
    return isWhole ? count : 0;
  }

  llvm::StringRef text;
  bool isWhole = true;
};

/// The answer that the cache has to the question, if `verify` lets it pass, or else that of
/// `solve`, which the cache then has. `question` adds all that the answer depends on.
template <typename Solution>
llvm::Expected<Solution> findOrSolve(Cache *cache, llvm::StringRef kind,
                                     llvm::function_ref<void(FieldWriter &)> question,
                                     llvm::function_ref<llvm::Error(const Solution &)> verify,
                                     llvm::function_ref<llvm::Expected<Solution>()> solve) {
  if (!cache)
    return solve();
  FieldWriter asked;
  question(asked);
  Cache::Key key = Cache::getKey(kind, asked.text);
  if (std::optional<std::string> found = cache->find(key)) {
    Solution solution;
    FieldReader reader(*found);
    reader(solution);
    llvm::Error wrong = reader.isDone()
                            ? verify(solution)
                            : llvm::createStringError("its fields are not those of a " + kind);
    if (!wrong)
      return solution;
    cache->reject(key, llvm::toString(std::move(wrong)));
  }
  llvm::Expected<Solution> solution = solve();
  if (!solution)
    return solution;
  FieldWriter answer;
  answer(*solution);
  cache->store(key, answer.text);
  return solution;
}

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_UTILS_SOLUTIONCACHE_H
