/*===- TinyCuda.c - programs for a GPU, written by hand ---------------------===
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * What TinyModel.c and, with TINY_CUDA_LOOP, TinyLoop.c do, by kernels of TinyKernels.cu. Macros
 * make programs that misbehave:
 *   TINY_CUDA_STRAYS      a gradient goes beyond the arena
 *   TINY_CUDA_MISSES      launches a kernel that there is not
 *   TINY_CUDA_TOO_LARGE   launches more threads than a block has
 *   TINY_CUDA_LOOKS       works on the host between its kernels
 *   TINY_CALLS_LIBRARY    computes its logits in library call 0
 *   LOOP_FORGETS_WAIT     does not wait for what it has fetched
 *
 *===----------------------------------------------------------------------===*/

#include "TinyLoop.h"
#include "TinyModel.h"
#include "memopt-runtime/interface/ProgramInterface.h"

const uint32_t memopt_program_version = MEMOPT_PROGRAM_INTERFACE_VERSION;

/* As the manifest numbers them. */
enum { LOGITS, LOSS, COUNT, GRADIENTS, UPDATE, CLEAR, ADD_SAMPLES, ADD_NUMBER };

#define LEAVE_UNLESS_ZERO(call)                                                                    \
  do {                                                                                             \
    int32_t code = (call);                                                                         \
    if (code)                                                                                      \
      return code;                                                                                 \
  } while (0)

enum { MOST = 6 };

/* Launches a kernel on places in the device's arena. */
static int32_t launch(const memopt_step *step, int32_t kernel, int32_t blocks, int32_t threads,
                      const int64_t *offsets, int count) {
  char *places[MOST];
  void *arguments[MOST];
  for (int i = 0; i < count; ++i) {
    places[i] = step->arena[MEMOPT_SPACE_DEVICE] + offsets[i];
    arguments[i] = &places[i];
  }
  return step->runtime->launch(step->session, kernel, blocks, threads, 0, arguments);
}

#define LAUNCH(kernel, blocks, threads, ...)                                                       \
  do {                                                                                             \
    const int64_t offsets[] = {__VA_ARGS__};                                                       \
    LEAVE_UNLESS_ZERO(                                                                             \
        launch(step, kernel, blocks, threads, offsets, sizeof offsets / sizeof offsets[0]));       \
  } while (0)
#define BEGIN(instruction)                                                                         \
  LEAVE_UNLESS_ZERO(step->runtime->begin_instruction(step->session, instruction))

#ifdef TINY_CUDA_LOOP

int32_t memopt_program_step(const memopt_step *step) {
  const memopt_runtime_functions *runtime = step->runtime;
  void *session = step->session;
  LAUNCH(CLEAR, 1, 1, LOOP_LOSS);
  for (int64_t i = 0; i < LOOP_COUNT; ++i) {
    LEAVE_UNLESS_ZERO(runtime->next_batch(session, i));
    BEGIN(LOOP_WEIGH_INSTRUCTION);
    BEGIN(LOOP_ADD_INSTRUCTION);
    LAUNCH(ADD_SAMPLES, 1, 1, LOOP_X, LOOP_SAMPLE_OFFSET, LOOP_LOSS, LOOP_FAULT);
  }
  BEGIN(LOOP_FETCH_INSTRUCTION);
  LEAVE_UNLESS_ZERO(runtime->start(session, LOOP_FETCH));
  LEAVE_UNLESS_ZERO(runtime->commit(session));
  BEGIN(LOOP_UPDATE_INSTRUCTION);
#ifndef LOOP_FORGETS_WAIT
  LEAVE_UNLESS_ZERO(runtime->wait(session, LOOP_FETCH));
#endif
  LAUNCH(ADD_NUMBER, 1, 1, LOOP_STATE, LOOP_LOSS);
  BEGIN(LOOP_STORE_INSTRUCTION);
  LEAVE_UNLESS_ZERO(runtime->start(session, LOOP_STORE));
  LEAVE_UNLESS_ZERO(runtime->wait(session, LOOP_STORE));
  BEGIN(LOOP_INSTRUCTIONS);
  return 0;
}

#else

static int32_t computeLogits(const memopt_step *step) {
#ifdef TINY_CALLS_LIBRARY
  char *arena = step->arena[MEMOPT_SPACE_DEVICE];
  void *buffers[] = {arena + TINY_X, arena + TINY_WEIGHT, arena + TINY_BIAS, arena + TINY_LOGITS,
                     arena + TINY_WORKSPACE};
  return step->runtime->library_call(step->session, 0, buffers);
#else
  LAUNCH(LOGITS, TINY_BATCH, TINY_CLASSES, TINY_X, TINY_WEIGHT, TINY_BIAS, TINY_LOGITS);
  return 0;
#endif
}

#ifdef TINY_CUDA_LOOKS
static void look(void *closure, int64_t begin, int64_t end) {}
#endif

int32_t memopt_program_step(const memopt_step *step) {
#ifdef TINY_CUDA_LOOKS
  step->runtime->parallel_for(step->session, 1, 1, look, 0);
#endif
  BEGIN(TINY_LOGITS_INSTRUCTION);
  LEAVE_UNLESS_ZERO(computeLogits(step));
  BEGIN(TINY_LOSS_INSTRUCTION);
  LAUNCH(LOSS, 1, 1, TINY_LOGITS, TINY_LABEL, TINY_LOSS);
  LEAVE_UNLESS_ZERO(step->runtime->commit(step->session));
  LAUNCH(COUNT, 1, 1, TINY_COUNTER);
  BEGIN(TINY_GRADIENT_INSTRUCTION);
#ifdef TINY_CUDA_MISSES
  LAUNCH(99, 1, 1, TINY_LOSS);
#endif
#ifdef TINY_CUDA_TOO_LARGE
  LAUNCH(GRADIENTS, 1, 4096, TINY_X, TINY_LOGITS, TINY_LABEL, TINY_WEIGHT_GRADIENT,
         TINY_BIAS_GRADIENT);
#endif
#ifdef TINY_CUDA_STRAYS
  enum { TINY_TARGET = 4096 };
#else
  enum { TINY_TARGET = TINY_WEIGHT_GRADIENT };
#endif
  LAUNCH(GRADIENTS, 1, TINY_CLASSES, TINY_X, TINY_LOGITS, TINY_LABEL, TINY_TARGET,
         TINY_BIAS_GRADIENT);
  BEGIN(TINY_UPDATE_INSTRUCTION);
  LAUNCH(UPDATE, 1, TINY_CLASSES * TINY_FEATURES, TINY_WEIGHT, TINY_WEIGHT_MOMENTUM,
         TINY_WEIGHT_GRADIENT, TINY_LR, TINY_STEP, TINY_SEED);
  LAUNCH(UPDATE, 1, TINY_CLASSES, TINY_BIAS, TINY_BIAS_MOMENTUM, TINY_BIAS_GRADIENT, TINY_LR,
         TINY_STEP, TINY_SEED);
  BEGIN(TINY_INSTRUCTIONS);
  return 0;
}

#endif
