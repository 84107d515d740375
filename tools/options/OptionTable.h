//===- OptionTable.h - the options of a tool ------------------ -*- C++ -*- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What all tools share of their command lines: a table of options, from which words are read, the
// text of --help and suggestions are made. A tool gives values a meaning, and says which options go
// together. Nothing here throws, and nothing is needed but the standard library.
//
// An option is written --name=VALUE, --name VALUE, or --name where it takes none. One dash will do
// (-name), and underscores for the dashes in a name (--output_dir), as other programs have them.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_OPTIONS_OPTIONTABLE_H
#define MEMOPT_TOOLS_OPTIONS_OPTIONTABLE_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace memopt::options {

struct Option {
  std::string name;  ///< with its dashes
  std::string value; ///< how that is written; empty: it takes none, "[X]": it may be left out
  std::string help;
  std::string group;                     ///< heading that it stands under in --help
  std::vector<std::string> aliases = {}; ///< other names, with their dashes
  std::string initial = {};              ///< for --help: what goes for one that is not given
  bool isRepeatable = false;             ///< several of it add up

  bool takesValue() const { return !value.empty(); }
  bool needsValue() const { return takesValue() && value.front() != '['; }
};

/// A name that other programs have, and what this one wants instead.
struct Hint {
  std::string name, instead;
};

class OptionTable {
public:
  /// `usage` is the first line of --help, `about` the text below it, `end` its last.
  OptionTable(std::string tool, std::string usage, std::string about, std::vector<Option> options,
              std::string end, std::vector<Hint> hints = {});

  const std::string &getTool() const { return tool; }
  const std::vector<Option> &getOptions() const { return options; }

  /// The option of a name or another name of it, null where there is none.
  const Option *find(const std::string &name) const;

  /// ", did you mean '--steps'?" for a name that is nearly a known one, ", write '...'" for one of
  /// another program; else nothing.
  std::string suggest(const std::string &name) const;

  /// The text of --help for lines of so many columns.
  std::string getHelp(int columns) const;
  std::string getHelp() const; ///< for those of the terminal

private:
  std::string tool, usage, about, end;
  std::vector<Option> options;
  std::vector<Hint> hints;
};

/// Goes through the words behind a tool's name.
class OptionReader {
public:
  enum class Kind {
    Place,   ///< a word that is no option: `text`
    Given,   ///< an option of the table, with its value
    Unknown, ///< an option that the table does not have: `text`
    Wrong    ///< `message` says what is wrong
  };
  struct Item {
    Kind kind;
    std::string text; ///< the word, as it stands
    const Option *option = nullptr;
    std::string value = {}, message = {};
  };

  OptionReader(const OptionTable &table, std::vector<std::string> words)
      : table(table), words(std::move(words)) {}

  bool isAtEnd() const { return at == words.size(); }
  /// What is next; one that needs a value takes the next word where it has none itself. Where an
  /// option has another value already, and does not add up, a note on stderr says so.
  Item next();
  /// The number of the word that is next.
  size_t getPlace() const { return at; }

private:
  const OptionTable &table;
  const std::vector<std::string> words;
  void noteAgain(const Option &option, const std::string &written);

  std::vector<std::pair<const Option *, std::string>> seen; ///< and how it was written last
  size_t at = 0;
};

/// "--optimzer", without a value.
std::string getName(const std::string &word);
/// "--batch-size=8" for "-batch_size=8", for those that look for an option by its name.
std::string normalize(const std::string &word);

/// The message about an option that nobody knows.
std::string describeUnknown(const OptionTable &table, const std::string &word);

/// Reads "4096", "1.5MiB", "512MiB", "16GiB" or "1TiB". What is wrong with it, or nothing: the
/// message says which unit "8G" and "8GB" may have meant.
std::string parseBytes(const std::string &text, int64_t &bytes);

/// The version that all tools have, "0.1.0".
std::string getVersion();
/// The line of --version.
std::string describeVersion(const std::string &tool);

/// Columns of the terminal on standard output; 100 where there is none.
int getColumns();
/// A text in lines of so many columns, each behind `indent` blanks.
std::string wrap(const std::string &text, int columns, int indent);

} // namespace memopt::options

#endif // MEMOPT_TOOLS_OPTIONS_OPTIONTABLE_H
