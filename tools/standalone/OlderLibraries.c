/*===- OlderLibraries.c - functions that older systems lack -----*- C -*-===*
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===*
 *
 * LLVM's archives ask for versions of symbols that the system has which they were built on. Where
 * one alone keeps programs from an older system, it is replaced here, by the linker's --wrap.
 *
 *===----------------------------------------------------------------------===*/

#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* arc4random of GLIBC_2.36, which LLVM names temporary files with. */
uint32_t __wrap_arc4random(void) {
  uint32_t number;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    abort();
  return number;
}

/* LLVM was built with Polly in it, which is an archive of its own. lld's optimizer would call it,
   for link-time optimization; no object file here is bitcode. */
void _Z18getPollyPluginInfov(void); /* NOLINT: getPollyPluginInfo() */
void _Z18getPollyPluginInfov(void) { abort(); }
