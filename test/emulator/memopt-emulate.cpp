//===- memopt-emulate.cpp - a command on an emulated device ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   memopt-emulate [options] COMMAND [ARGUMENTS]
//
// Runs a command where libcuda.so.1 is the emulator, once or with several seeds, and says which
// races were found: any makes it end with 1, if the command did not end worse.
//
//===----------------------------------------------------------------------===//

#include "emulator/base/Settings.h"
#include "options/OptionTable.h"
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

using namespace memopt::emulator;
using namespace memopt::options;
using nlohmann::json;

static const OptionTable &getTable() {
  static const char work[] = "What the device does", told[] = "Output";
  static const OptionTable table(
      "memopt-emulate", "memopt-emulate [options] COMMAND [ARGUMENTS]",
      "Runs a command on an emulated NVIDIA device, which executes work as late and in as unusual "
      "an order as it is allowed to. With a race the exit code is 1.",
      {{"--seed", "N", "seed of the order of all work", work, {}, "0"},
       {"--seeds", "N", "run the command with each of the seeds 1 to N", work},
       {"--device", "FILE.json", "description of the device", work},
       {"--driver", "VERSION", "CUDA version of the driver, such as 12.2", work},
       {"--fail",
        "FUNCTION:N=ERROR",
        "the N-th call of this driver function returns the error with this number; FUNCTION "
        "'kernel': the N-th kernel that runs",
        work,
        {},
        "",
        /*isRepeatable=*/true},
       {"--races", "FILE.json", "write the races that were found", told},
       {"--version", "", "the version of memopt", told},
       {"--help", "", "this text", told, {"-h"}}},
      "");
  return table;
}

[[noreturn]] static void fail(int code, const std::string &message) {
  std::fprintf(stderr, "memopt-emulate: error: %s\n", message.c_str());
  std::exit(code);
}

namespace {
struct Options {
  std::string seed = "0", seeds, device, driver, races, faults;
  char **command = nullptr;
};
} // namespace

/// Takes an option; one that prints something ends the program.
static void take(const OptionReader::Item &item, Options &options) {
  const std::string &name = item.option->name;
  if (!item.option->takesValue()) {
    std::string text = name == "--help" ? getTable().getHelp() : describeVersion("memopt-emulate");
    std::fputs(text.c_str(), stdout);
    std::exit(0);
  }
  if (name == "--fail")
    options.faults += (options.faults.empty() ? "" : ",") + item.value;
  else
    (name == "--seed"     ? options.seed
     : name == "--seeds"  ? options.seeds
     : name == "--device" ? options.device
     : name == "--driver" ? options.driver
                          : options.races) = item.value;
}

/// Options end where the command begins, which has its own.
static Options parse(char **arguments, size_t count) {
  Options options;
  OptionReader reader(getTable(), {arguments, arguments + count});
  while (!options.command && !reader.isAtEnd()) {
    size_t place = reader.getPlace();
    OptionReader::Item item = reader.next();
    if (item.kind == OptionReader::Kind::Place)
      options.command = arguments + place;
    else if (item.kind == OptionReader::Kind::Given)
      take(item, options);
    else
      fail(1, item.kind == OptionReader::Kind::Wrong ? item.message
                                                     : describeUnknown(getTable(), item.text));
  }
  if (!options.command)
    fail(1, "no command is given; --help says how");
  for (const std::string *number : {&options.seed, &options.seeds})
    if (number->find_first_not_of("0123456789") != std::string::npos || number->size() > 18)
      fail(1, "seeds are numbers, not '" + *number + "'");
  return options;
}

/// The emulator's library lies beside this executable's folder.
static std::string findLibrary() {
  std::error_code error;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::filesystem::path folder = self.parent_path().parent_path() / "lib" / "emulator";
  if (!std::filesystem::exists(folder / "libcuda.so.1"))
    fail(3, "'" + (folder / "libcuda.so.1").string() + "' is not there; build MemoptEmulator");
  return folder.string();
}

/// 12.2 as 12020; the text is checked.
static std::string countVersion(const std::string &version) {
  if (version.empty())
    return "";
  int major = 0, minor = 0, end = 0;
  if (std::sscanf(version.c_str(), "%2d.%2d%n", &major, &minor, &end) != 2 ||
      size_t(end) != version.size())
    fail(1, "a version of CUDA is MAJOR.MINOR, not '" + version + "'");
  return std::to_string(1000 * major + 10 * minor);
}

static void setEnvironment(const Options &options) {
  const char *before = std::getenv("LD_LIBRARY_PATH");
  std::string path = findLibrary() + (before && *before ? ":" + std::string(before) : "");
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  ::setenv(faultsVariable, options.faults.c_str(), 1);
  ::setenv(deviceVariable, options.device.c_str(), 1);
  ::setenv(driverVariable, countVersion(options.driver).c_str(), 1);
}

static int runCommand(char **command) {
  pid_t child = ::fork();
  if (child == 0) {
    ::execvp(command[0], command);
    std::fprintf(stderr, "memopt-emulate: error: '%s' cannot be run: %s\n", command[0],
                 std::strerror(errno));
    ::_exit(3);
  }
  // What a terminal sends goes to the command too, which ends as it sees fit.
  std::signal(SIGINT, SIG_IGN);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Of all processes that the command started.
static void collectRaces(const std::string &folder, uint64_t seed, json &races) {
  for (const auto &entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    json found = json::parse(file, nullptr, /*allow_exceptions=*/false);
    for (json &race : found) {
      race["seed"] = seed;
      races.push_back(std::move(race));
    }
  }
}

/// Runs the command and adds the races that were found; what it ended with, or 1 for a race.
static int runWithSeed(const Options &options, uint64_t seed, json &races) {
  std::string folder = (std::filesystem::temp_directory_path() / "memopt-races-XXXXXX").string();
  if (!::mkdtemp(folder.data()))
    fail(3, "'" + folder + "' cannot be made");
  ::setenv(seedVariable, std::to_string(seed).c_str(), 1);
  ::setenv(racesVariable, folder.c_str(), 1);
  int code = runCommand(options.command);
  size_t before = races.size();
  collectRaces(folder, seed, races);
  std::filesystem::remove_all(folder);
  if (races.size() == before)
    return code;
  std::fprintf(stderr, "memopt-emulate: error: %zu races with seed %llu\n", races.size() - before,
               static_cast<unsigned long long>(seed));
  return std::max(code, 1);
}

static void writeRaces(const std::string &path, const json &races) {
  json report = {{"format", "memopt-races"}, {"version", 1}, {"races", races}};
  if (!(std::ofstream(path) << report.dump(2) << "\n"))
    fail(3, "'" + path + "' cannot be written");
}

int main(int argc, char **argv) {
  Options options = parse(argv + 1, size_t(argc - 1));
  setEnvironment(options);
  json races = json::array();
  int code = 0;
  if (options.seeds.empty())
    code = runWithSeed(options, std::strtoull(options.seed.c_str(), nullptr, 10), races);
  uint64_t last = std::strtoull(options.seeds.c_str(), nullptr, 10);
  for (uint64_t seed = 1; seed <= last; ++seed)
    code = std::max(code, runWithSeed(options, seed, races));
  if (!options.races.empty())
    writeRaces(options.races, races);
  return code;
}
