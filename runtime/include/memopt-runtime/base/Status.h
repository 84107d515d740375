//===- Status.h - failure as a value ------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What every fallible function of the runtime returns. A Status is a code, which a tool turns into
// its exit code, and a message, to which each caller on the way up may add where it was:
//
//   if (Status status = readHeader(file); !status.isOk())
//     return status.withContext("reading '" + path + "'");
//
// gives "reading 'a.safetensors': the header claims 9 bytes, 3 are left". Success costs no
// allocation. Neither type throws; both may be moved between threads, not shared.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_BASE_STATUS_H
#define MEMOPT_RUNTIME_BASE_STATUS_H

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace memopt {

/// Says who can help. The numbers are the exit codes of the tools.
enum class StatusCode {
  Ok = 0,
  BadInput = 1,    ///< a file, option or value from outside is wrong; the user can correct it
  DoesNotFit = 2,  ///< a memory budget is too small
  Environment = 3, ///< the machine lacks something: device, library, disk space, rank
  NotFinite = 4,   ///< the loss, or what an update left, is infinite or not a number
  Interrupted = 5, ///< a signal asked to stop, which was done after a whole step
  Cancelled = 130, ///< a signal came before there was anything to keep; it ends the process
};

/// The code of a failure that another process tells of. A number that is none stands for a process
/// that is out of order.
inline StatusCode toFailureCode(int64_t number) {
  for (StatusCode code : {StatusCode::BadInput, StatusCode::DoesNotFit, StatusCode::NotFinite,
                          StatusCode::Interrupted, StatusCode::Cancelled})
    if (number == int64_t(code))
      return code;
  return StatusCode::Environment;
}

class [[nodiscard]] Status {
public:
  Status() = default;
  Status(StatusCode code, std::string message) {
    if (code != StatusCode::Ok)
      failure = std::make_unique<Failure>(Failure{code, std::move(message)});
  }

  static Status ok() { return Status(); }

  bool isOk() const { return !failure; }
  StatusCode getCode() const { return failure ? failure->code : StatusCode::Ok; }
  std::string getMessage() const { return failure ? failure->message : std::string(); }

  /// Puts "`context`: " before the message; success stays success.
  Status withContext(const std::string &context) && {
    if (failure)
      failure->message = context + ": " + failure->message;
    return std::move(*this);
  }
  Status withContext(const std::string &context) & { return std::move(*this).withContext(context); }

private:
  struct Failure {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Failure> failure;
};

inline Status badInput(std::string message) {
  return Status(StatusCode::BadInput, std::move(message));
}
inline Status notFinite(std::string message) {
  return Status(StatusCode::NotFinite, std::move(message));
}
inline Status environmentError(std::string message) {
  return Status(StatusCode::Environment, std::move(message));
}

/// A value or the reason why there is none. Reading the value of a failure is a mistake of the
/// caller, as with std::optional.
template <typename T> class [[nodiscard]] StatusOr {
public:
  StatusOr(Status status) : status(std::move(status)) {}
  StatusOr(T value) : value(std::move(value)) {}
  template <typename U, typename = std::enable_if_t<std::is_convertible_v<U &&, T> &&
                                                    !std::is_same_v<std::decay_t<U>, Status> &&
                                                    !std::is_same_v<std::decay_t<U>, StatusOr<T>>>>
  StatusOr(U &&value) : value(T(std::forward<U>(value))) {}

  bool isOk() const { return value.has_value(); }
  StatusCode getCode() const { return status.getCode(); }
  std::string getMessage() const { return status.getMessage(); }

  /// Moves the failure out, to be returned or extended by the caller.
  Status takeStatus() { return std::move(status); }

  T &operator*() & { return *value; }
  const T &operator*() const & { return *value; }
  T operator*() && { return std::move(*value); } // by value: safe in a range-based for
  T *operator->() { return &*value; }
  const T *operator->() const { return &*value; }

private:
  Status status;
  std::optional<T> value;
};

#define MEMOPT_CONCATENATE_IMPL(a, b) a##b
#define MEMOPT_CONCATENATE(a, b) MEMOPT_CONCATENATE_IMPL(a, b)

/// Leaves the function with the failure of `expression`, if it is one.
#define MEMOPT_RETURN_IF_ERROR(expression)                                                         \
  do {                                                                                             \
    if (::memopt::Status memoptStatus = (expression); !memoptStatus.isOk())                        \
      return memoptStatus;                                                                         \
  } while (false)

/// `declaration` = the value of `expression` (a StatusOr), or leaves the function with its failure.
#define MEMOPT_ASSIGN_OR_RETURN(declaration, expression)                                           \
  MEMOPT_ASSIGN_OR_RETURN_IMPL(MEMOPT_CONCATENATE(memoptResult, __LINE__), declaration, expression)
#define MEMOPT_ASSIGN_OR_RETURN_IMPL(result, declaration, expression)                              \
  auto result = (expression);                                                                      \
  if (!result.isOk())                                                                              \
    return result.takeStatus();                                                                    \
  declaration = *std::move(result)

} // namespace memopt

#endif // MEMOPT_RUNTIME_BASE_STATUS_H
