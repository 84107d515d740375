//===- SessionRegistry.h - the sessions of this process ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For handlers of faults, which may neither lock nor allocate: they look at places that are made
// once and never go away. A session has one of them while it lives.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_SESSION_SESSIONREGISTRY_H
#define MEMOPT_RUNTIME_LIB_SESSION_SESSIONREGISTRY_H

#include "memopt-runtime/session/Session.h"
#include <atomic>

namespace memopt {

/// A session's place in the list, from its begin to its end.
class SessionEntry {
public:
  explicit SessionEntry(const Session *session);
  ~SessionEntry() { place->session = nullptr; }
  SessionEntry(const SessionEntry &) = delete;
  SessionEntry &operator=(const SessionEntry &) = delete;

  /// The first session for which matches(session), or null.
  template <typename Predicate> static const Session *find(Predicate matches) {
    for (Place *place = first.load(); place; place = place->next)
      if (const Session *session = place->session.load(); session && matches(*session))
        return session;
    return nullptr;
  }

private:
  struct Place {
    std::atomic<const Session *> session;
    Place *next;
  };

  static std::atomic<Place *> first;
  Place *place;
};

/// The calling thread works for a session while this lives.
class WorkFor {
public:
  explicit WorkFor(const Session *session) : before(current) { current = session; }
  ~WorkFor() { current = before; }
  WorkFor(const WorkFor &) = delete;
  WorkFor &operator=(const WorkFor &) = delete;

  static thread_local const Session *current;

private:
  const Session *before;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_SESSION_SESSIONREGISTRY_H
