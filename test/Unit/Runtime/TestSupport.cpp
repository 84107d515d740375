//===- TestSupport.cpp - packages and files for runtime tests -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

using namespace memopt;
using nlohmann::json;

namespace memopt::testing {

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

TemporaryFolder::TemporaryFolder() {
  path = (std::filesystem::temp_directory_path() / "memopt-test-XXXXXX").string();
  if (!::mkdtemp(path.data()))
    std::abort();
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

void writeFile(const std::string &path, const std::string &content) {
  std::ofstream(path, std::ios::binary) << content;
}

void writeGzip(const std::string &path, const std::string &content) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  ::gzwrite(file, content.data(), unsigned(content.size()));
  ::gzclose(file);
}

void writeRawSafetensors(const std::string &path, const std::string &header,
                         const std::string &data) {
  std::string length;
  for (int i = 0; i < 8; ++i)
    length += char(uint64_t(header.size()) >> 8 * i & 255);
  writeFile(path, length + header + data);
}

std::string makeIdx(const std::vector<int> &shape, const std::string &content) {
  std::string text = {0, 0, 8, char(shape.size())};
  for (int size : shape)
    text += {char(size >> 24), char(size >> 16), char(size >> 8), char(size)};
  return text + content;
}

//===----------------------------------------------------------------------===//
// Packages
//===----------------------------------------------------------------------===//

static json place(const std::string &name, const std::string &dtype, const std::vector<int> &shape,
                  int offset, const char *spaceKey = "space") {
  int bytes = dtype == "i64" ? 8 : 4;
  for (int size : shape)
    bytes *= size;
  return {{"name", name},     {"dtype", dtype}, {"shape", shape},
          {"offset", offset}, {"bytes", bytes}, {spaceKey, "device"}};
}

static json variable(const std::string &name, const std::string &role, const std::string &dtype,
                     const std::vector<int> &shape, int offset, const std::string &init) {
  json result = place(name, dtype, shape, offset, "placement");
  result.update({{"role", role}, {"init", init}, {"trainable", role == "parameter"}});
  result["names"] = role == "parameter" || role == "buffer" ? json{name} : json::array();
  return result;
}

static json instruction(const std::string &name, const std::string &module, const json &output) {
  json result = {{"name", name}, {"kind", "kernel"}, {"module", module}, {"ops", name}};
  result["outputs"] = {{{"space", "device"},
                        {"offset", output["offset"]},
                        {"bytes", output["bytes"]},
                        {"dtype", output["dtype"]}}};
  result["live_bytes"] = {{"device", TINY_ARENA}};
  return result;
}

static json getHead(const std::string &mode, int arenaBytes) {
  return {{"format", "memopt-package"},
          {"version", 2},
          {"program_interface_version", MEMOPT_PROGRAM_INTERFACE_VERSION},
          {"instrumented", true},
          {"target", "cpu"},
          {"threads", 2},
          {"mode", mode},
          {"arena_bytes", {{"device", arenaBytes}, {"host", 0}}},
          {"predicted_peak_bytes", {{"device", arenaBytes}, {"host", 0}, {"disk", 0}}},
          {"regions", json::array()},
          {"transfers", json::array()},
          {"library_calls", json::array()}};
}

json getTinyManifest() {
  json manifest = getHead("train", TINY_ARENA);
  json x = place("x", "f32", {TINY_BATCH, TINY_FEATURES}, TINY_X);
  json label = place("label", "i64", {TINY_BATCH}, TINY_LABEL);
  label["valid_range"] = {{"min", 0}, {"max", TINY_CLASSES - 1}, {"reason", "classes of net.loss"}};
  x["batch_dim"] = label["batch_dim"] = 0;
  manifest["inputs"] = {x, label};
  json loss = place("loss", "f32", {}, TINY_LOSS);
  loss["role"] = "loss";
  manifest["outputs"] = {loss};
  json weight = variable("net.fc.weight", "parameter", "f32", {TINY_CLASSES, TINY_FEATURES},
                         TINY_WEIGHT, "weights");
  weight["names"] = {"net.fc.weight", "net.tied.weight"};
  manifest["variables"] = {
      weight,
      variable("net.fc.bias", "parameter", "f32", {TINY_CLASSES}, TINY_BIAS, "weights"),
      variable("net.counter", "buffer", "i64", {}, TINY_COUNTER, "zeros"),
      variable("optimizer.momentum.net.fc.weight", "optimizer_state", "f32",
               {TINY_CLASSES, TINY_FEATURES}, TINY_WEIGHT_MOMENTUM, "zeros"),
      variable("optimizer.momentum.net.fc.bias", "optimizer_state", "f32", {TINY_CLASSES},
               TINY_BIAS_MOMENTUM, "zeros"),
      variable("lr", "hyperparameter", "f32", {}, TINY_LR, "zeros"),
      variable("step", "hyperparameter", "i64", {}, TINY_STEP, "zeros"),
      variable("seed", "hyperparameter", "i64", {}, TINY_SEED, "zeros")};
  json weightGradient =
      place("net.fc.weight", "f32", {TINY_CLASSES, TINY_FEATURES}, TINY_WEIGHT_GRADIENT);
  json biasGradient = place("net.fc.bias", "f32", {TINY_CLASSES}, TINY_BIAS_GRADIENT);
  weightGradient["ready_after"] = biasGradient["ready_after"] = TINY_GRADIENT_INSTRUCTION;
  manifest["gradients"] = {weightGradient, biasGradient};
  json logits = place("", "f32", {TINY_BATCH, TINY_CLASSES}, TINY_LOGITS);
  manifest["instructions"] = {
      instruction("logits", "net.fc", logits), instruction("loss", "net.loss", loss),
      instruction("gradient", "net.fc", weightGradient), instruction("update", "", weight)};
  manifest["optimizer"] = {{"name", "sgd"}, {"lr", 0.1}};
  return manifest;
}

json getEvalManifest() {
  json manifest = getHead("eval", 448);
  json label = place("label", "i64", {4}, 256);
  label["valid_range"] = {{"min", 0}, {"max", 3}, {"ignore", -100}};
  manifest["inputs"] = {place("image", "f32", {4, 1, 4, 4}, 0), label};
  json loss = place("loss", "f32", {}, 320), scores = place("scores", "f32", {4, 4}, 384);
  loss["role"] = "loss";
  scores["role"] = "prediction";
  manifest["outputs"] = {loss, scores};
  manifest["variables"] = json::array();
  manifest["instructions"] = {instruction("scores", "net", scores)};
  return manifest;
}

json getLoopManifest() {
  json manifest = getHead("train", LOOP_ARENA);
  manifest["arena_bytes"]["host"] = manifest["predicted_peak_bytes"]["host"] = LOOP_HOST_ARENA;
  json x = place("x", "f32", {LOOP_ROWS}, LOOP_X), loss = place("loss", "f32", {}, LOOP_LOSS);
  x["batch_dim"] = 0;
  loss["role"] = "loss";
  manifest["inputs"] = {x};
  manifest["outputs"] = {loss};
  json state = variable("optimizer.state", "optimizer_state", "f32", {}, LOOP_STATE_HOME, "zeros");
  state["placement"] = "host";
  manifest["variables"] = {
      state, variable("sample_offset", "hyperparameter", "i64", {}, LOOP_SAMPLE_OFFSET, "zeros"),
      variable("fault", "index_fault", "i64", {}, LOOP_FAULT, "zeros")};
  for (const char *name : {"weigh", "add", "fetch", "update", "store"})
    manifest["instructions"].push_back(instruction(name, "net", loss));
  manifest["regions"] = {{{"begin", 0}, {"end", 2}, {"count", LOOP_COUNT}, {"inputs", {"x"}}}};
  json home = {{"space", "host"}, {"offset", LOOP_STATE_HOME}},
       copy = {{"space", "device"}, {"offset", LOOP_STATE}};
  manifest["transfers"] = {{{"from", home}, {"to", copy}, {"bytes", 4}, {"resource", "copy_in"}},
                           {{"from", copy}, {"to", home}, {"bytes", 4}, {"resource", "copy_out"}}};
  manifest["index_sites"] = {{{"module", "net.other"}, {"op", "gather"}, {"min", 0}, {"max", 3}},
                             {{"module", "net.table"},
                              {"op", "embedding"},
                              {"min", -LOOP_LARGEST},
                              {"max", LOOP_LARGEST},
                              {"what", "rows of the table"}}};
  return manifest;
}

std::string writePackage(const TemporaryFolder &folder, const json &manifest,
                         const std::string &program) {
  std::string path = folder / "tiny.memopt";
  std::filesystem::create_directories(path);
  writeFile(path + "/manifest.json", manifest.dump());
  // A new file: the old one may be mapped by a session.
  std::filesystem::remove(path + "/program.so");
  std::filesystem::copy_file(std::string(TEST_PROGRAMS) + "/" + program + ".so",
                             path + "/program.so");
  std::vector<float> weight, bias;
  for (int i = 0; i < TINY_CLASSES * TINY_FEATURES; ++i)
    weight.push_back(0.01f * float(i % 7) - 0.02f);
  for (int i = 0; i < TINY_CLASSES; ++i)
    bias.push_back(0.1f * float(i));
  Status status =
      writeSafetensors(path + "/weights.safetensors",
                       {{"net.fc.weight", DType::F32, {TINY_CLASSES, TINY_FEATURES}, weight.data()},
                        {"net.fc.bias", DType::F32, {TINY_CLASSES}, bias.data()}});
  EXPECT_TRUE(status.isOk()) << status.getMessage();
  return path;
}

/// Adds the two variables of PackageFormat.h, behind all that a program touches.
static void reserveExchange(json &manifest) {
  constexpr int64_t behind = TINY_WORKSPACE + TINY_WORKSPACE_BYTES + 128;
  int64_t samples = 0, exchanged = 0;
  for (const char *list : {"inputs", "outputs", "variables"})
    for (const json &tensor : manifest[list]) {
      std::string role = tensor.value("role", "");
      bool isSample = list == std::string("inputs") || tensor["name"] == "sample_offset",
           isVariable = list == std::string("variables");
      if (isSample)
        placeInExchange(samples, tensor["bytes"]);
      if (!isVariable || role == "hyperparameter" || role == "index_fault")
        placeInExchange(exchanged, tensor["bytes"]);
    }
  auto add = [&](const char *name, const char *space, int64_t offset, int64_t bytes) {
    json variable = {{"name", name},       {"names", json::array()}, {"role", "hyperparameter"},
                     {"trainable", false}, {"init", "zeros"},        {"placement", space},
                     {"dtype", "i8"},      {"shape", {bytes}},       {"offset", offset},
                     {"bytes", bytes}};
    manifest["variables"].push_back(variable);
    manifest["arena_bytes"][space] = manifest["predicted_peak_bytes"][space] = offset + bytes;
  };
  add(nextSamplesName, "device", behind, samples);
  add(exchangeName, "host", behind, exchanged);
}

json forCuda(json manifest) {
  reserveExchange(manifest);
  manifest["target"] = {{"name", "cuda"}, {"chip", "sm_90"}, {"sms", 4}, {"image", "kernels.bc"}};
  manifest["kernels"] = {"compute_logits", "compute_loss", "count_step",  "compute_gradients",
                         "update",         "clear_number", "add_samples", "add_number"};
  return manifest;
}

std::string writeCudaPackage(const TemporaryFolder &folder, const json &manifest,
                             const std::string &program) {
  std::string path = writePackage(folder, manifest, program);
  writeFile(path + "/kernels.bc", readFile(TEST_INPUTS "/TinyKernels.ll"));
  return path;
}

std::string writeBatches(const TemporaryFolder &folder, int count) {
  std::vector<std::vector<float>> x;
  std::vector<std::vector<int64_t>> labels;
  for (int step = 0; step < count; ++step) {
    x.emplace_back();
    labels.emplace_back();
    for (int i = 0; i < TINY_BATCH * TINY_FEATURES; ++i)
      x.back().push_back(float((i * 5 + step * 3) % 11) / 11);
    for (int i = 0; i < TINY_BATCH; ++i)
      labels.back().push_back((i + step) % TINY_CLASSES);
  }
  std::vector<TensorToWrite> tensors;
  for (int step = 0; step < count; ++step) {
    std::string prefix = "step" + std::to_string(step) + ".";
    tensors.push_back({prefix + "x", DType::F32, {TINY_BATCH, TINY_FEATURES}, x[step].data()});
    tensors.push_back({prefix + "label", DType::I64, {TINY_BATCH}, labels[step].data()});
  }
  Status status = writeSafetensors(folder / "batches.safetensors", tensors);
  EXPECT_TRUE(status.isOk()) << status.getMessage();
  return folder / "batches.safetensors";
}

StatusOr<std::unique_ptr<LibraryCall>> refuseCalls(const json &, int) {
  return badInput("no library here");
}

std::unique_ptr<Session> openSession(const std::string &package, const SessionOptions &options,
                                     const LibraryCallFactory &factory) {
  auto loaded = Package::load(package);
  EXPECT_TRUE(loaded.isOk()) << loaded.getMessage();
  if (!loaded.isOk())
    return nullptr;
  auto session = Session::create(*std::move(loaded), getCpu(), factory, options);
  EXPECT_TRUE(session.isOk()) << session.getMessage();
  return session.isOk() ? *std::move(session) : nullptr;
}

Device &getCpu() {
  static std::unique_ptr<Device> device = *openDevice("cpu");
  return *device;
}

//===----------------------------------------------------------------------===//
// Processes
//===----------------------------------------------------------------------===//

[[noreturn]] static void execute(const std::vector<std::string> &command,
                                 const ProcessOptions &options, int out, int err) {
  for (auto [resource, value] : options.limits) {
    rlimit limit{rlim_t(value), rlim_t(value)};
    ::setrlimit(__rlimit_resource(resource), &limit);
  }
  // Whoever started the tests may ignore some: a shell does for what runs in its background.
  for (int signal : {SIGHUP, SIGINT, SIGTERM})
    ::signal(signal, SIG_DFL);
  if (options.ignoredSignal)
    ::signal(options.ignoredSignal, SIG_IGN);
  if (!options.environment.empty())
    ::putenv(const_cast<char *>(options.environment.c_str()));
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::close_range(3, ~0u, 0);
  std::vector<char *> arguments;
  for (const std::string &argument : command)
    arguments.push_back(const_cast<char *>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

ProcessResult runProcess(const std::vector<std::string> &command, const ProcessOptions &options) {
  int out[2], err[2];
  if (::pipe(out) || ::pipe(err))
    std::abort();
  pid_t child = ::fork();
  if (child == 0)
    execute(command, options, out[1], err[1]);
  ::close(out[1]);
  ::close(err[1]);
  ProcessResult result{};
  bool isDone = options.waitFor.empty();
  pollfd files[] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  std::string *texts[] = {&result.output, &result.errors};
  for (int open = 2; open > 0;) {
    ::poll(files, 2, -1);
    for (int i = 0; i < 2; ++i) {
      if (files[i].fd < 0 || !files[i].revents)
        continue;
      char buffer[4096];
      ssize_t count = ::read(files[i].fd, buffer, sizeof buffer);
      if (count > 0) {
        texts[i]->append(buffer, size_t(count));
      } else {
        files[i].fd = -1;
        --open;
      }
    }
    if (!isDone && result.output.find(options.waitFor) != std::string::npos) {
      options.then(child);
      isDone = true;
    }
  }
  int status;
  ::waitpid(child, &status, 0);
  ::close(out[0]);
  ::close(err[0]);
  result.exitCode = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return result;
}

void expectMessage(const std::string &message, const std::vector<std::string> &parts) {
  for (const std::string &part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "expected '" << part << "' in: " << message;
}

} // namespace memopt::testing
