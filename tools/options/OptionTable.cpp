//===- OptionTable.cpp - the options of a tool ---------------------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "options/OptionTable.h"
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <numeric>

using namespace memopt::options;

static bool startsWith(const std::string &text, const std::string &head) {
  return text.compare(0, head.size(), head) == 0;
}

static std::string quote(const std::string &text) { return "'" + text + "'"; }

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// Without the dashes in front, and with dashes inside.
static std::string getStem(const std::string &name) {
  std::string stem = name.substr(std::min(name.size(), name.find_first_not_of('-')));
  std::replace(stem.begin(), stem.end(), '_', '-');
  return stem;
}

std::string memopt::options::getName(const std::string &word) {
  return word.substr(0, word.find('='));
}

std::string memopt::options::normalize(const std::string &word) {
  std::string name = getName(word);
  return "--" + getStem(name) + word.substr(name.size());
}

OptionTable::OptionTable(std::string tool, std::string usage, std::string about,
                         std::vector<Option> options, std::string end, std::vector<Hint> hints)
    : tool(std::move(tool)), usage(std::move(usage)), about(std::move(about)), end(std::move(end)),
      options(std::move(options)), hints(std::move(hints)) {}

const Option *OptionTable::find(const std::string &name) const {
  std::string stem = getStem(name);
  auto isNamed = [&](const std::string &known) { return getStem(known) == stem; };
  for (const Option &option : options)
    if (isNamed(option.name) || std::any_of(option.aliases.begin(), option.aliases.end(), isNamed))
      return &option;
  return nullptr;
}

/// Letters to change, add or leave out that lead from one word to the other (Levenshtein).
static size_t countEdits(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1],
                               std::min({diagonal + (a[i] != b[j]), row[j] + 1, row[j + 1] + 1}));
  }
  return row.back();
}

std::string OptionTable::suggest(const std::string &name) const {
  std::string stem = getStem(name), nearest;
  constexpr size_t slip = 2;
  size_t least = slip + 1;
  auto look = [&](const std::string &known, const std::string &answer) {
    std::string other = getStem(known);
    size_t edits = countEdits(stem, other);
    if (edits < least && other.size() > slip) {
      least = edits;
      nearest = answer;
    }
  };
  for (const Option &option : options) {
    look(option.name, ", did you mean " + quote(option.name) + "?");
    for (const std::string &alias : option.aliases)
      look(alias, ", did you mean " + quote(alias) + ", which is " + quote(option.name) + "?");
  }
  for (const Hint &hint : hints)
    look(hint.name, ", write " + quote(hint.instead));
  return nearest;
}

std::string memopt::options::describeUnknown(const OptionTable &table, const std::string &word) {
  std::string name = getName(word);
  return "option " + quote(name) + " is unknown" + table.suggest(name) + "; see " +
         table.getTool() + " --help";
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

OptionReader::Item OptionReader::next() {
  Item item{Kind::Place, words[at++]};
  if (item.text.size() < 2 || item.text[0] != '-')
    return item;
  size_t equals = item.text.find('=');
  bool hasValue = equals != std::string::npos;
  item.option = table.find(getName(item.text));
  item.kind = item.option ? Kind::Given : Kind::Unknown;
  if (!item.option)
    return item;
  auto refuse = [&](std::string message) {
    item.kind = Kind::Wrong;
    item.message = std::move(message);
    return item;
  };
  const Option &option = *item.option;
  if (hasValue && !option.takesValue())
    return refuse(option.name + " takes no value");
  std::string written = item.text;
  if (hasValue) {
    item.value = item.text.substr(equals + 1);
  } else if (option.needsValue()) {
    if (isAtEnd() || startsWith(words[at], "--"))
      return refuse(option.name + " needs a value: " + option.name + "=" + option.value);
    item.value = words[at++];
    written += " " + item.value;
  }
  if (option.isRepeatable || !option.takesValue())
    return item;
  noteAgain(option, written);
  return item;
}

/// Scripts put options of their own behind those of a caller: the last one counts, but not in
/// silence.
void OptionReader::noteAgain(const Option &option, const std::string &written) {
  for (auto &[known, before] : seen)
    if (known == &option) {
      if (before != written)
        std::fprintf(stderr,
                     "%s: note: %s is given twice, as %s and as %s; the last one is taken\n",
                     table.getTool().c_str(), option.name.c_str(), quote(before).c_str(),
                     quote(written).c_str());
      before = written;
      return;
    }
  seen.emplace_back(&option, written);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

namespace {
struct Unit {
  const char *name;
  int shift;
};
} // namespace

static constexpr Unit units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};

static bool equalsIgnoringCase(const std::string &a, const std::string &b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return std::tolower(static_cast<unsigned char>(x)) ==
                  std::tolower(static_cast<unsigned char>(y));
         });
}

/// What "8G" and "8GB" may have meant.
static std::string suggestUnit(const std::string &number, const std::string &given) {
  for (const Unit &unit : units) {
    std::string letter(1, unit.name[0]), decimal = letter + "B";
    if (equalsIgnoringCase(given, letter) || equalsIgnoringCase(given, decimal) ||
        equalsIgnoringCase(given, unit.name))
      return ": write " + number + unit.name + ", of which one is 2^" + std::to_string(unit.shift) +
             " bytes";
  }
  return "";
}

std::string memopt::options::parseBytes(const std::string &text, int64_t &bytes) {
  size_t digits = std::min(text.size(), text.find_first_not_of("0123456789."));
  std::string number = text.substr(0, digits), given = text.substr(digits);
  given = given.substr(std::min(given.size(), given.find_first_not_of(' ')));
  double factor = given.empty() ? 1 : 0;
  for (const Unit &unit : units)
    if (given == unit.name)
      factor = double(int64_t(1) << unit.shift);
  char *behind = nullptr;
  double value = std::strtod(number.c_str(), &behind);
  constexpr double most = 9e18;
  if (number.empty() || *behind || factor == 0 || value * factor > most)
    return "expected bytes such as 4096, 512MiB, 16GiB or 1TiB, found " + quote(text) +
           suggestUnit(number, given);
  // A double does not hold every large whole number.
  bool isWhole = number.find('.') == std::string::npos;
  bytes =
      isWhole && factor == 1 ? std::strtoll(number.c_str(), nullptr, 10) : int64_t(value * factor);
  return "";
}

std::string memopt::options::getVersion() { return MEMOPT_VERSION; }

std::string memopt::options::describeVersion(const std::string &tool) {
  return tool + " " + getVersion() + "\n";
}
