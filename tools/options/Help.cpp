//===- Help.cpp - the text of --help -------------------------------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "options/OptionTable.h"
#include <algorithm>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace memopt::options;

int memopt::options::getColumns() {
  constexpr int least = 60, otherwise = 100;
  winsize size{};
  bool isKnown = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return isKnown ? std::max<int>(least, size.ws_col) : otherwise;
}

std::string memopt::options::wrap(const std::string &text, int columns, int indent) {
  std::string lines, line(size_t(indent), ' ');
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    bool isFirst = line.find_first_not_of(' ') == std::string::npos;
    if (!isFirst && line.size() + 1 + word.size() > size_t(columns)) {
      lines += line + "\n";
      line.assign(size_t(indent), ' ');
      isFirst = true;
    }
    line += (isFirst ? "" : " ") + word;
  }
  return lines + line + "\n";
}

/// "--frontier=N", "--calibrate[=FILE.json]"
static std::string describeUse(const Option &option) {
  if (!option.takesValue())
    return option.name;
  if (option.needsValue())
    return option.name + (option.name[1] == '-' ? "=" : " ") + option.value;
  return option.name + "[=" + option.value.substr(1);
}

static std::string describeEffect(const Option &option) {
  std::string text = option.help;
  if (!option.initial.empty())
    text += " (default " + option.initial + ")";
  if (option.isRepeatable)
    text += "; may be repeated";
  std::string others;
  for (const std::string &alias : option.aliases)
    others += (others.empty() ? "" : ", ") + alias;
  return others.empty() ? text : text + " (also " + others + ")";
}

/// A list of choices that is longer than a line goes on below its first one.
static std::string breakChoices(const std::string &use, int columns) {
  std::string lines, line = "  ";
  size_t indent = 2 + use.find('=') + 1;
  std::istringstream choices(use);
  for (std::string choice; std::getline(choices, choice, '|');) {
    bool isLast = choices.eof();
    if (line.size() + choice.size() + 1 > size_t(columns)) {
      lines += line + "\n";
      line.assign(indent, ' ');
    }
    line += choice + (isLast ? "" : "|");
  }
  return lines + line;
}

static std::string describe(const Option &option, int columns) {
  constexpr int indent = 28;
  std::string left = breakChoices(describeUse(option), columns),
              right = wrap(describeEffect(option), columns, indent);
  if (left.size() + 2 > indent)
    return left + "\n" + right;
  return left + right.substr(left.size());
}

/// Groups stand in the order in which they first occur.
std::string OptionTable::getHelp(int columns) const {
  std::vector<std::string> groups;
  for (const Option &option : options)
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end())
      groups.push_back(option.group);
  std::string text = "usage: " + usage + "\n\n" + wrap(about, columns, 0);
  for (const std::string &group : groups) {
    text += "\n" + group + ":\n";
    for (const Option &option : options)
      if (option.group == group)
        text += describe(option, columns);
  }
  return text + (end.empty() ? "" : "\n" + wrap(end, columns, 0));
}

std::string OptionTable::getHelp() const { return getHelp(getColumns()); }
