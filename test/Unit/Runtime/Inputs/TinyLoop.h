/*===- TinyLoop.h - places of a program with a repeat --*- C -*-===
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * A step of three batches of two numbers. The loss is the sum over all numbers of number * (1 + its
 * sample's number in the step); the state, which has its home in the host's memory, becomes the sum
 * of all losses.
 *
 *===----------------------------------------------------------------------===*/

#ifndef TINYLOOP_H
#define TINYLOOP_H

enum {
  LOOP_ROWS = 2,
  LOOP_COUNT = 3,
  /* Byte offsets in the device arena. */
  LOOP_X = 0,
  LOOP_SAMPLE_OFFSET = 64,
  LOOP_LOSS = 128,
  LOOP_STATE = 192, /* a copy of the state, for one step */
  LOOP_FAULT = 256,
  LOOP_ARENA = 320,
  /* In the host arena. */
  LOOP_STATE_HOME = 0,
  LOOP_HOST_ARENA = 64,
  /* Instructions. The first two are repeated. */
  LOOP_WEIGH_INSTRUCTION = 0,
  LOOP_ADD_INSTRUCTION = 1,
  LOOP_FETCH_INSTRUCTION = 2,
  LOOP_UPDATE_INSTRUCTION = 3,
  LOOP_STORE_INSTRUCTION = 4,
  LOOP_INSTRUCTIONS = 5,
  /* Transfers. */
  LOOP_FETCH = 0,
  LOOP_STORE = 1,
  /* A number beyond this counts as an index out of range, met at this site. */
  LOOP_LARGEST = 100,
  LOOP_SITE = 1
};

#endif
