//===- SessionRegistry.cpp - the sessions of this process -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SessionRegistry.h"

using namespace memopt;

std::atomic<SessionEntry::Place *> SessionEntry::first{nullptr};
thread_local const Session *WorkFor::current = nullptr;

SessionEntry::SessionEntry(const Session *session) {
  for (place = first.load(); place; place = place->next) {
    const Session *nobody = nullptr;
    if (place->session.compare_exchange_strong(nobody, session))
      return;
  }
  place = new Place{{session}, first.load()};
  while (!first.compare_exchange_weak(place->next, place))
    ;
}

const Session *Session::getCurrent() { return WorkFor::current; }

const Session *Session::findGuarding(const void *address) {
  return SessionEntry::find([&](const Session &session) { return session.isGuard(address); });
}
