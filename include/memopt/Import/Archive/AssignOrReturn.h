//===- AssignOrReturn.h - unpack an Expected or pass its error on -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_ARCHIVE_ASSIGNORRETURN_H
#define MEMOPT_IMPORT_ARCHIVE_ASSIGNORRETURN_H

#define ASSIGN_OR_RETURN_IMPL(temporary, target, expression)                                       \
  auto temporary = (expression);                                                                   \
  if (!temporary)                                                                                  \
    return temporary.takeError();                                                                  \
  target = std::move(*temporary)
#define ASSIGN_OR_RETURN_CONCAT_IMPL(a, b) a##b
#define ASSIGN_OR_RETURN_CONCAT(a, b) ASSIGN_OR_RETURN_CONCAT_IMPL(a, b)

/// `target = expression's value`, or return the expression's error from the enclosing function. Not
/// for use as the only statement of an `if`.
#define ASSIGN_OR_RETURN(target, expression)                                                       \
  ASSIGN_OR_RETURN_IMPL(ASSIGN_OR_RETURN_CONCAT(expected, __LINE__), target, expression)

#define RETURN_IF_ERROR(expression)                                                                \
  do {                                                                                             \
    if (llvm::Error failed = (expression))                                                         \
      return failed;                                                                               \
  } while (false)

#endif // MEMOPT_IMPORT_ARCHIVE_ASSIGNORRETURN_H
