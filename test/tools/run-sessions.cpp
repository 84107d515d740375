//===- run-sessions.cpp - several sessions in one process -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   run-sessions STEPS PACKAGE DATA.safetensors [PACKAGE DATA.safetensors]...
//
// Trains each package alone, then twice each of them all at once, on threads of their own, and
// twice inside of a parallel region of libgomp. Fails unless every state has the bits of the one
// that was trained alone.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/data/Data.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include "memopt-runtime/session/Session.h"
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

using namespace memopt;

extern "C" void GOMP_parallel(void (*function)(void *), void *data, unsigned threads,
                              unsigned flags);

namespace {
struct Job {
  std::shared_ptr<const Package> package;
  std::string data, expected; ///< bytes of the state after training alone
};
} // namespace

[[noreturn]] static void fail(const std::string &message) {
  std::fprintf(stderr, "run-sessions: %s\n", message.c_str());
  std::exit(1);
}

static void check(const Status &status) {
  if (!status.isOk())
    fail(status.getMessage());
}

template <typename T> static T take(StatusOr<T> value) {
  if (!value.isOk())
    fail(value.getMessage());
  return *std::move(value);
}

static std::string train(const Job &job, int steps) {
  std::unique_ptr<Device> device = take(openDevice("cpu"));
  std::unique_ptr<Session> session =
      take(Session::create(job.package, *device, &LibraryCall::create, {}));
  const Manifest &manifest = session->getManifest();
  std::vector<std::string> notices;
  auto data = take(DataSource::open({job.data}, manifest.inputs, {}, notices));
  check(session->initializeFromWeights([](const VariableSpec &) { return false; }));
  int64_t position = 0;
  session->setBatches([&](int64_t iteration, const std::vector<char *> &targets) {
    return data->fill(position + iteration, targets);
  });
  for (int step = 1; step <= steps; ++step, ++position) {
    session->setHyperparameters(0.01, step, 0);
    check(session->runStep());
  }
  std::string state;
  for (const VariableSpec &variable : manifest.variables)
    if (variable.isState())
      state.append(session->getAddress(variable), size_t(variable.bytes));
  return state;
}

int main(int argc, char **argv) {
  if (argc < 4 || argc % 2)
    fail("expected STEPS and pairs of a package and its data");
  int steps = std::atoi(argv[1]);
  std::vector<Job> jobs;
  for (int i = 2; i < argc; i += 2) {
    jobs.push_back({take(Package::load(argv[i])), argv[i + 1], ""});
    jobs.back().expected = train(jobs.back(), steps);
  }
  std::atomic<int> wrong{0}, sessions{0};
  auto compare = [&](const Job &job) {
    wrong += train(job, steps) != job.expected;
    ++sessions;
  };
  std::vector<std::thread> threads;
  for (const Job &job : jobs)
    for (int twin = 0; twin < 2; ++twin)
      threads.emplace_back([&] { compare(job); });
  for (std::thread &thread : threads)
    thread.join();
  auto region = [&] {
    for (const Job &job : jobs)
      compare(job);
  };
  GOMP_parallel([](void *data) { (*static_cast<decltype(region) *>(data))(); }, &region, 2, 0);
  std::printf("%d sessions, %d with other bits than alone\n", sessions.load(), wrong.load());
  return wrong != 0;
}
