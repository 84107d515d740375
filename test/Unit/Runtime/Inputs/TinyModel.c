/*===- TinyModel.c - a program written by hand ------------------------------===
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * What a compiled program looks like to the runtime. Macros make programs that misbehave:
 *   TINY_VERSION=N        claims another interface version
 *   TINY_WRITES_BEHIND    writes the byte after its arena
 *   TINY_LEAVES_ARENA     writes a page further
 *   TINY_ALLOCATES        allocates 8 KiB in a step
 *   TINY_CALLS_LIBRARY    computes its logits in library call 0
 *   TINY_FAILS            ends its steps with code 7
 *   TINY_SILENT           does not report its instructions
 *   TINY_FORGETS_COMMIT   changes its state without asking
 *   TINY_REPORTS_TWICE    reports its second instruction again
 *   TINY_LAUNCHES         launches a kernel, which it has none of
 *   TINY_DIGEST           says that it is of a package whose digest is 0123456789 four times
 *   TINY_DIVIDES          divides an integer by zero
 *   TINY_RECURSES         calls itself in a parallel loop until the stack ends
 *
 *===----------------------------------------------------------------------===*/

#include "TinyModel.h"
#include "memopt-runtime/interface/ProgramInterface.h"
#include <stdlib.h>

#ifndef TINY_VERSION
#define TINY_VERSION MEMOPT_PROGRAM_INTERFACE_VERSION
#endif

const uint32_t memopt_program_version = TINY_VERSION;
#ifdef TINY_DIGEST
const char memopt_program_digest[] = "0123456789012345678901234567890123456789";
#endif

static float *floats(const memopt_step *step, int64_t offset) {
  return (float *)(step->arena[MEMOPT_SPACE_DEVICE] + offset);
}
static int64_t *integers(const memopt_step *step, int64_t offset) {
  return (int64_t *)(step->arena[MEMOPT_SPACE_DEVICE] + offset);
}

#ifdef TINY_RECURSES
static int64_t recurse(volatile char *above) {
  volatile char frame[1024];
  frame[0] = *above;
  if (frame[0])
    return 0;
  return 1 + recurse(frame) + frame[0];
}
#endif

#ifndef TINY_CALLS_LIBRARY
static void computeLogits(void *closure, int64_t begin, int64_t end) {
  const memopt_step *step = (const memopt_step *)closure;
  const float *x = floats(step, TINY_X), *weight = floats(step, TINY_WEIGHT);
#ifdef TINY_RECURSES
  volatile char top = 0;
  begin += recurse(&top);
#endif
  for (int64_t i = begin; i < end; ++i)
    for (int64_t c = 0; c < TINY_CLASSES; ++c) {
      float sum = floats(step, TINY_BIAS)[c];
      for (int64_t f = 0; f < TINY_FEATURES; ++f)
        sum += x[i * TINY_FEATURES + f] * weight[c * TINY_FEATURES + f];
      floats(step, TINY_LOGITS)[i * TINY_CLASSES + c] = sum;
    }
}
#endif

/* Half the squared distance of the label's logit from 1, averaged. */
static void computeLoss(const memopt_step *step) {
  float loss = 0;
  for (int64_t i = 0; i < TINY_BATCH; ++i) {
    float error = floats(step, TINY_LOGITS)[i * TINY_CLASSES + integers(step, TINY_LABEL)[i]] - 1;
    loss += error * error / 2;
  }
  floats(step, TINY_LOSS)[0] = loss / TINY_BATCH;
}

static void computeGradients(const memopt_step *step) {
  float *weight = floats(step, TINY_WEIGHT_GRADIENT), *bias = floats(step, TINY_BIAS_GRADIENT);
  for (int64_t i = 0; i < TINY_CLASSES * TINY_FEATURES; ++i)
    weight[i] = 0;
  for (int64_t c = 0; c < TINY_CLASSES; ++c)
    bias[c] = 0;
  for (int64_t i = 0; i < TINY_BATCH; ++i) {
    int64_t label = integers(step, TINY_LABEL)[i];
    float error = (floats(step, TINY_LOGITS)[i * TINY_CLASSES + label] - 1) / TINY_BATCH;
    for (int64_t f = 0; f < TINY_FEATURES; ++f)
      weight[label * TINY_FEATURES + f] += error * floats(step, TINY_X)[i * TINY_FEATURES + f];
    bias[label] += error;
  }
}

/* SGD with momentum; a little noise that follows from seed and step stands for dropout. */
static void update(const memopt_step *step, int64_t value, int64_t momentum, int64_t gradient,
                   int64_t count) {
  float rate = floats(step, TINY_LR)[0];
  int64_t noise = (integers(step, TINY_SEED)[0] * 31 + integers(step, TINY_STEP)[0]) % 7;
  for (int64_t i = 0; i < count; ++i) {
    float *velocity = floats(step, momentum) + i;
    *velocity = 0.9f * *velocity + floats(step, gradient)[i] * (1 + 0.001f * (float)noise);
    floats(step, value)[i] -= rate * *velocity;
  }
}

static int32_t begin(const memopt_step *step, int64_t instruction) {
#ifdef TINY_SILENT
  return 0;
#else
  return step->runtime->begin_instruction(step->session, instruction);
#endif
}

int32_t memopt_program_step(const memopt_step *step) {
  const memopt_runtime_functions *runtime = step->runtime;
  int32_t code;
  if ((code = begin(step, TINY_LOGITS_INSTRUCTION)))
    return code;
#ifdef TINY_CALLS_LIBRARY
  void *buffers[] = {floats(step, TINY_X), floats(step, TINY_WEIGHT), floats(step, TINY_BIAS),
                     floats(step, TINY_LOGITS), floats(step, TINY_WORKSPACE)};
  if ((code = runtime->library_call(step->session, 0, buffers)))
    return code;
#else
  memopt_step closure = *step;
  runtime->parallel_for(step->session, TINY_BATCH, 1, computeLogits, &closure);
#endif
  if ((code = begin(step, TINY_LOSS_INSTRUCTION)))
    return code;
#ifdef TINY_REPORTS_TWICE
  if ((code = begin(step, TINY_LOSS_INSTRUCTION)))
    return code;
#endif
  computeLoss(step);
#ifdef TINY_FAILS
  return 7;
#endif
#ifdef TINY_LAUNCHES
  if ((code = runtime->launch(step->session, 0, 1, 32, 0, 0)))
    return code;
#endif
#ifdef TINY_DIVIDES
  volatile int64_t zero = 0;
  integers(step, TINY_COUNTER)[0] /= zero;
#endif
#ifdef TINY_ALLOCATES
  void *volatile hidden = malloc(8192);
  free(hidden);
#endif
#ifdef TINY_WRITES_BEHIND
  step->arena[MEMOPT_SPACE_DEVICE][TINY_ARENA] = 1;
#endif
#ifdef TINY_LEAVES_ARENA
  ((volatile char *)step->arena[MEMOPT_SPACE_DEVICE])[TINY_ARENA + 4096] = 1;
#endif
#ifndef TINY_FORGETS_COMMIT
  if ((code = runtime->commit(step->session)))
    return code;
#endif
  integers(step, TINY_COUNTER)[0] += 1;
  if ((code = begin(step, TINY_GRADIENT_INSTRUCTION)))
    return code;
  computeGradients(step);
  if ((code = begin(step, TINY_UPDATE_INSTRUCTION)))
    return code;
  update(step, TINY_WEIGHT, TINY_WEIGHT_MOMENTUM, TINY_WEIGHT_GRADIENT,
         TINY_CLASSES * TINY_FEATURES);
  update(step, TINY_BIAS, TINY_BIAS_MOMENTUM, TINY_BIAS_GRADIENT, TINY_CLASSES);
  return begin(step, TINY_INSTRUCTIONS);
}
