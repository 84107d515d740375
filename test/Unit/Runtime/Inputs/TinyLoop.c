/*===- TinyLoop.c - a program with a repeat and transfers --------------------===
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * What a compiled program with gradient accumulation and offloaded state looks like to the runtime.
 * Macros make programs that misbehave: LOOP_WAITS_FIRST      waits for a transfer that it did not
 * start LOOP_STARTS_TWICE     starts a transfer that is in flight LOOP_RUNS_ON          runs its
 * repeat once more than its manifest says LOOP_LEAVES           leaves its step with a transfer in
 * flight LOOP_FAULTS_LATE      meets an index out of range after its commit
 *
 *===----------------------------------------------------------------------===*/

#include "TinyLoop.h"
#include "memopt-runtime/interface/ProgramInterface.h"

const uint32_t memopt_program_version = MEMOPT_PROGRAM_INTERFACE_VERSION;

#ifdef LOOP_RUNS_ON
enum { ITERATIONS = LOOP_COUNT + 1 };
#else
enum { ITERATIONS = LOOP_COUNT };
#endif

#define LEAVE_UNLESS_ZERO(call)                                                                    \
  do {                                                                                             \
    int32_t code = (call);                                                                         \
    if (code)                                                                                      \
      return code;                                                                                 \
  } while (0)

static float *floats(const memopt_step *step, int64_t offset) {
  return (float *)(step->arena[MEMOPT_SPACE_DEVICE] + offset);
}

/* The word keeps the lowest; there is one thread here. */
static void noteFault(const memopt_step *step, int64_t index) {
  uint64_t *word = (uint64_t *)(step->arena[MEMOPT_SPACE_DEVICE] + LOOP_FAULT);
  uint64_t fault = (uint64_t)LOOP_SITE << 48 | ((uint64_t)index & (((uint64_t)1 << 48) - 1));
  if (fault < *word)
    *word = fault;
}

static void addSamples(const memopt_step *step) {
  int64_t first = *(int64_t *)(step->arena[MEMOPT_SPACE_DEVICE] + LOOP_SAMPLE_OFFSET);
  for (int64_t row = 0; row < LOOP_ROWS; ++row) {
    float x = floats(step, LOOP_X)[row];
    if (x > LOOP_LARGEST || x < -LOOP_LARGEST)
      noteFault(step, x > 1e15f ? INT64_MAX : x < -1e15f ? INT64_MIN : (int64_t)x);
    floats(step, LOOP_LOSS)[0] += x * (float)(1 + first + row);
  }
}

int32_t memopt_program_step(const memopt_step *step) {
  const memopt_runtime_functions *runtime = step->runtime;
  void *session = step->session;
  floats(step, LOOP_LOSS)[0] = 0;
  for (int64_t i = 0; i < ITERATIONS; ++i) {
    LEAVE_UNLESS_ZERO(runtime->next_batch(session, i));
    LEAVE_UNLESS_ZERO(runtime->begin_instruction(session, LOOP_WEIGH_INSTRUCTION));
    LEAVE_UNLESS_ZERO(runtime->begin_instruction(session, LOOP_ADD_INSTRUCTION));
    addSamples(step);
  }
#ifdef LOOP_WAITS_FIRST
  LEAVE_UNLESS_ZERO(runtime->wait(session, LOOP_STORE));
#endif
  /* Fetching changes nothing, so it may begin before the commit. */
  LEAVE_UNLESS_ZERO(runtime->begin_instruction(session, LOOP_FETCH_INSTRUCTION));
  LEAVE_UNLESS_ZERO(runtime->start(session, LOOP_FETCH));
#ifdef LOOP_STARTS_TWICE
  LEAVE_UNLESS_ZERO(runtime->start(session, LOOP_FETCH));
#endif
#ifdef LOOP_LEAVES
  return 9;
#endif
  LEAVE_UNLESS_ZERO(runtime->commit(session));
  LEAVE_UNLESS_ZERO(runtime->begin_instruction(session, LOOP_UPDATE_INSTRUCTION));
  LEAVE_UNLESS_ZERO(runtime->wait(session, LOOP_FETCH));
  floats(step, LOOP_STATE)[0] += floats(step, LOOP_LOSS)[0];
#ifdef LOOP_FAULTS_LATE
  noteFault(step, 7);
#endif
  LEAVE_UNLESS_ZERO(runtime->begin_instruction(session, LOOP_STORE_INSTRUCTION));
  LEAVE_UNLESS_ZERO(runtime->start(session, LOOP_STORE));
  LEAVE_UNLESS_ZERO(runtime->wait(session, LOOP_STORE));
  return runtime->begin_instruction(session, LOOP_INSTRUCTIONS);
}
