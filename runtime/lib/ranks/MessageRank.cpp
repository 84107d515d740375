//===- MessageRank.cpp - one rank over messages ---------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/MessageRank.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/ranks/Neighbours.h"
#include <algorithm>
#include <cstring>
#include <thread>

using namespace memopt;

StatusOr<std::unique_ptr<MessageRank>> MessageRank::join(const LaunchedRank &self,
                                                         RankMeeting::Patience patience) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Messages> messages,
                          openMessages(self.startsMpi ? Transport::Mpi : Transport::Ucx));
  if (messages->getRank() != self.rank || messages->getRanks() != self.ranks) {
    Status status = environmentError(
        self.launcher + " started this process as rank " + std::to_string(self.rank) + " of " +
        std::to_string(self.ranks) + ", but MPI takes it for " +
        std::to_string(messages->getRank()) + " of " + std::to_string(messages->getRanks()) +
        ": the library is built against another MPI than the launcher's; build one with its "
        "compiler and name it by MEMOPT_MPI_PLUGIN");
    messages->finish();
    return status;
  }
  double seconds = patience.seconds;
  std::unique_ptr<MessageRank> rank(new MessageRank(self, std::move(patience)));
  MEMOPT_ASSIGN_OR_RETURN(rank->communicator,
                          MessageCommunicator::create(std::move(messages), seconds));
  return rank;
}

/// An MPI makes its buffers when they are first needed, which should not be in a step: for messages
/// of each size that takes another way, and for those that come before they are waited for. So the
/// ranks of even and those of odd numbers are late in turn.
Status MessageRank::warmUp() {
  constexpr int64_t most = 4 << 20;
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool, ThreadPool::create(1, 1));
  std::vector<char> mine(most / size_t(self.ranks)), all(mine.size() * size_t(self.ranks));
  for (auto bytes = int64_t(mine.size()); bytes > 0; bytes /= 2)
    for (int64_t late : {0, 1}) {
      if (self.rank % 2 == late)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      MEMOPT_RETURN_IF_ERROR(
          communicator->allGather(mine.data(), bytes, all.data(), bytes * self.ranks, *pool));
    }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Before the run
//===----------------------------------------------------------------------===//

/// The first gets the texts of all ranks, the others nothing.
StatusOr<std::vector<std::string>> MessageRank::collectTexts(const std::string &mine) {
  auto ranks = size_t(self.ranks);
  auto size = int64_t(mine.size());
  std::vector<int64_t> sizes(ranks);
  MEMOPT_RETURN_IF_ERROR(communicator->exchange(&size, sizeof size, sizes.data()));
  auto longest = size_t(*std::max_element(sizes.begin(), sizes.end()));
  std::string padded = mine + std::string(longest - mine.size(), '\0');
  std::string all(isFirst() ? ranks * longest : 0, '\0');
  MEMOPT_RETURN_IF_ERROR(communicator->collect(padded.data(), int64_t(longest), all.data()));
  std::vector<std::string> texts;
  for (size_t rank = 0; isFirst() && rank < ranks; ++rank)
    texts.push_back(all.substr(rank * longest, size_t(sizes[rank])));
  return texts;
}

Status MessageRank::compare(const RankTask &task) {
  MEMOPT_RETURN_IF_ERROR(warmUp());
  MEMOPT_ASSIGN_OR_RETURN(placement, findPlacement(*communicator));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> texts, collectTexts(writeTask(task)));
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    MEMOPT_ASSIGN_OR_RETURN(RankTask other, readTask(texts[rank]));
    if (std::string text = findDisagreement(int64_t(rank), task, other); !text.empty())
      return environmentError(std::move(text));
  }
  return Status::ok();
}

/// Tells the others a text of the first's, and hears it; empty: there is none yet.
StatusOr<std::string> MessageRank::listen(const std::string &word) {
  constexpr size_t most = Communicator::mostExchangedBytes;
  if (word.size() >= most)
    return badInput("the path of the package is too long to be told to other ranks");
  char mine[most] = {};
  std::copy(word.begin(), word.end(), mine);
  std::vector<char> all(size_t(self.ranks) * most);
  MEMOPT_RETURN_IF_ERROR(communicator->exchange(mine, most, all.data()));
  return std::string(all.data(), ::strnlen(all.data(), most));
}

void MessageRank::keepWaiting() {
  auto now = std::chrono::steady_clock::now();
  if (now - lastWord < std::chrono::milliseconds(200))
    return;
  lastWord = now;
  (void)listen(""); // who is lost is noticed when there is something to tell
}

StatusOr<std::string> MessageRank::share(const std::string &text) {
  for (;;) {
    MEMOPT_ASSIGN_OR_RETURN(std::string told, listen(isFirst() ? text : ""));
    if (!told.empty())
      return told;
  }
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Communicator &MessageRank::getCommunicator() {
  return twoLevels ? static_cast<Communicator &>(*twoLevels) : *communicator;
}

StatusOr<std::string> MessageRank::shareMemory(int64_t arenaBytes, bool isChecked) {
  MEMOPT_ASSIGN_OR_RETURN(Neighbours found, memopt::shareMemory(*communicator, *placement, self,
                                                                arenaBytes, isChecked, patience));
  if (!found.group)
    return found.refusal;
  neighbours = std::move(found.group);
  twoLevels = std::make_unique<TwoLevelCommunicator>(*communicator, *neighbours, *placement);
  MEMOPT_RETURN_IF_ERROR(twoLevels->warmUp());
  return std::string();
}

//===----------------------------------------------------------------------===//
// Behind it
//===----------------------------------------------------------------------===//

Status MessageRank::end(const Status &status, const std::function<void(const Status &)> &say) {
  hasEnded = true;
  Status conclusion = communicator->conclude(status);
  if (!conclusion.isOk())
    say(conclusion);
  communicator->end();
  return Status(conclusion.getCode(), "");
}

/// What may still move keeps its place to the end of the process.
MessageRank::~MessageRank() {
  if (!hasEnded && communicator && !getCommunicator().close()) {
    [[maybe_unused]] MessageCommunicator *kept = communicator.release();
  }
}
