/*===- TinyModel.h - places of a program written by hand --*- C -*-===
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * A linear layer from 3 features to 5 classes on batches of 4, trained by SGD with momentum. The
 * manifest that the tests write and the program itself take its places from here.
 *
 *===----------------------------------------------------------------------===*/

#ifndef TINYMODEL_H
#define TINYMODEL_H

enum {
  TINY_BATCH = 4,
  TINY_FEATURES = 3,
  TINY_CLASSES = 5,
  /* Byte offsets in the device arena. */
  TINY_X = 0,
  TINY_LABEL = 64,
  TINY_WEIGHT = 128,
  TINY_BIAS = 192,
  TINY_WEIGHT_MOMENTUM = 256,
  TINY_BIAS_MOMENTUM = 320,
  TINY_LR = 384,
  TINY_STEP = 392,
  TINY_SEED = 400,
  TINY_LOSS = 448,
  TINY_LOGITS = 512,
  TINY_WEIGHT_GRADIENT = 640,
  TINY_BIAS_GRADIENT = 704,
  TINY_COUNTER = 768,
  TINY_ARENA = 776, /* not a multiple of 64 */
  /* A program with a library call has its workspace at the end, at a multiple of 256. */
  TINY_WORKSPACE = 1024,
  TINY_WORKSPACE_BYTES = 128,
  /* Instructions. */
  TINY_LOGITS_INSTRUCTION = 0,
  TINY_LOSS_INSTRUCTION = 1,
  TINY_GRADIENT_INSTRUCTION = 2,
  TINY_UPDATE_INSTRUCTION = 3,
  TINY_INSTRUCTIONS = 4
};

#endif
