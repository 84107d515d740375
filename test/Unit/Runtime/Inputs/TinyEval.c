/*===- TinyEval.c - the forward of TinyModel.c alone ------------------------===
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * Classifies padded 4 x 4 images by their brightest pixel's row, so that a test knows the accuracy.
 *
 *===----------------------------------------------------------------------===*/

#include "memopt-runtime/interface/ProgramInterface.h"

enum { BATCH = 4, PIXELS = 16, IMAGE = 0, LABEL = 256, LOSS = 320, SCORES = 384 };

const uint32_t memopt_program_version = MEMOPT_PROGRAM_INTERFACE_VERSION;

int32_t memopt_program_step(const memopt_step *step) {
  int32_t code = step->runtime->begin_instruction(step->session, 0);
  char *arena = step->arena[MEMOPT_SPACE_DEVICE];
  const float *image = (const float *)(arena + IMAGE);
  const int64_t *label = (const int64_t *)(arena + LABEL);
  float *scores = (float *)(arena + SCORES), *loss = (float *)(arena + LOSS);
  float sum = 0, valid = 0;
  if (code)
    return code;
  for (int i = 0; i < BATCH; ++i) {
    for (int row = 0; row < 4; ++row) {
      scores[4 * i + row] = 0;
      for (int x = 0; x < 4; ++x)
        scores[4 * i + row] += image[PIXELS * i + 4 * row + x];
    }
    if (label[i] < 0)
      continue;
    sum += (float)label[i];
    valid += 1;
  }
  *loss = valid > 0 ? sum / valid : 0; /* a mean over valid targets, as cross entropy's */
  if ((code = step->runtime->commit(step->session)))
    return code;
  return step->runtime->begin_instruction(step->session, 1);
}
