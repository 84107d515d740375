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

#include "Settings.h"
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
using nlohmann::json;

static const char *const help =
    "memopt-emulate [options] COMMAND [ARGUMENTS]\n"
    "Runs a command on an emulated NVIDIA device that does what it is told as late, and in as odd\n"
    "an order, as it may. Races end it with 1.\n\n"
    "  --seed=N                  of the order of all work (0)\n"
    "  --seeds=N                 runs the command with each of the seeds 1 to N\n"
    "  --device=FILE.json        description of the device\n"
    "  --races=FILE.json         writes what races were found\n"
    "  --fail=FUNCTION:N=ERROR   the N-th call of a function of the driver, or the N-th kernel "
    "that\n"
    "                            runs (FUNCTION is 'kernel'), gives the error of that number; may\n"
    "                            be given several times\n"
    "  --help                    prints this\n";

[[noreturn]] static void fail(int code, const std::string &message) {
  std::fprintf(stderr, "memopt-emulate: error: %s\n", message.c_str());
  std::exit(code);
}

namespace {
struct Options {
  std::string seed = "0", seeds, device, races, faults;
  char **command = nullptr;
};
} // namespace

static bool takeOption(const std::string &argument, Options &options) {
  auto take = [&](const char *name, std::string &value) {
    size_t size = std::strlen(name);
    if (argument.compare(0, size, name) != 0)
      return false;
    value = argument.substr(size);
    return true;
  };
  std::string fault;
  if (take("--fail=", fault)) {
    options.faults += (options.faults.empty() ? "" : ",") + fault;
    return true;
  }
  return take("--seed=", options.seed) || take("--seeds=", options.seeds) ||
         take("--device=", options.device) || take("--races=", options.races);
}

static Options parse(char **arguments) {
  Options options;
  for (; *arguments && std::strncmp(*arguments, "--", 2) == 0; ++arguments) {
    if (std::strcmp(*arguments, "--help") == 0) {
      std::fputs(help, stdout);
      std::exit(0);
    }
    if (!takeOption(*arguments, options))
      fail(1, "unknown option '" + std::string(*arguments) + "'; --help lists those there are");
  }
  options.command = arguments;
  if (!*arguments)
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

static void setEnvironment(const Options &options) {
  const char *before = std::getenv("LD_LIBRARY_PATH");
  std::string path = findLibrary() + (before && *before ? ":" + std::string(before) : "");
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  ::setenv(faultsVariable, options.faults.c_str(), 1);
  ::setenv(deviceVariable, options.device.c_str(), 1);
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
  Options options = parse(argv + 1);
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
