//===- RankMeeting.cpp - processes of one start find each other -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sockets of whole messages (unix(7), SOCK_SEQPACKET) at an abstract address, which the kernel
// frees with the process. Every message is a JSON object; the one with the preparation carries the
// memory's file (SCM_RIGHTS).
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/RankMeeting.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/numbers/Random.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

using namespace memopt;
using nlohmann::json;

/// A wait looks up so often for what else may end it.
static constexpr int sliceMilliseconds = 50;
/// What a system carries in one message by default, and so more than arrives.
static constexpr size_t mostMessageBytes = 256 << 10;

std::string memopt::describeFile(const std::string &path) {
  struct stat facts;
  if (::stat(path.c_str(), &facts) != 0)
    return "";
  bool isFolder = S_ISDIR(facts.st_mode); // whose time changes with what is written into it
  std::string text = std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino);
  return isFolder ? text
                  : text + ":" + std::to_string(facts.st_size) + ":" +
                        std::to_string(facts.st_mtim.tv_sec) + "." +
                        std::to_string(facts.st_mtim.tv_nsec);
}

/// A number for the bytes, of which a large file gives samples at even distances.
static uint64_t hashContent(std::string_view text) {
  constexpr size_t sample = 64 << 10, most = 256 * sample;
  if (text.size() <= most)
    return hashName(text);
  uint64_t hash = 0;
  for (size_t i = 0; i < most / sample; ++i) {
    size_t begin = (text.size() - sample) / (most / sample - 1) * i;
    hash = hash * 31 + hashName(text.substr(begin, sample));
  }
  return hash;
}

std::string memopt::describeContent(const std::string &path) {
  if (isFolder(path)) {
    std::string text;
    StatusOr<std::vector<std::string>> names = listFolder(path);
    for (const std::string &name : names.isOk() ? *names : std::vector<std::string>())
      if (std::string file = path + "/" + name; !isFolder(file))
        text += name + " " + describeContent(file) + " ";
    return text;
  }
  StatusOr<MappedFile> file = MappedFile::open(path);
  return file.isOk()
             ? std::to_string(file->size()) + ":" + std::to_string(hashContent(file->text()))
             : "";
}

//===----------------------------------------------------------------------===//
// Sockets
//===----------------------------------------------------------------------===//

static std::pair<sockaddr_un, socklen_t> getAddress(const LaunchedRank &self) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string key = std::to_string(::getuid()) + " " + self.launcher + " " + self.start;
  char name[sizeof address.sun_path];
  int length = std::snprintf(name, sizeof name, "memopt-ranks-%016llx%016llx",
                             static_cast<unsigned long long>(hashName(key)),
                             static_cast<unsigned long long>(hashName(key + " again")));
  std::memcpy(address.sun_path + 1, name, size_t(length)); // a zero in front: no file
  return {address, socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(length))};
}

static Descriptor makeSocket() {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

static bool isOurs(const Descriptor &socket) {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
         who.uid == ::getuid();
}

/// Whether there is something to read, or somebody to let in, before a time is over.
static bool hasInput(int socket, int milliseconds = 0) {
  pollfd wanted{socket, POLLIN, 0};
  return ::poll(&wanted, 1, milliseconds) > 0;
}

/// Never waits. Nothing is said about failures: who cannot be reached is found to be lost.
static bool sendMessage(const Descriptor &socket, const json &message, int file = -1) {
  std::string text = message.dump(-1, ' ', false, json::error_handler_t::replace);
  iovec part{text.data(), text.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
  if (file >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  return ::sendmsg(socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) == ssize_t(text.size());
}

namespace {
struct Message {
  bool isEnd = false; ///< the other side is gone
  json content;       ///< null where there was none
  Descriptor file;
};
} // namespace

/// What there is to read at once.
static Message receiveMessage(const Descriptor &socket) {
  Message message;
  if (!hasInput(socket.get()))
    return message;
  std::vector<char> text(mostMessageBytes);
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t length = ::recvmsg(socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  message.isEnd = length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR);
  if (length <= 0)
    return message;
  cmsghdr *rights = CMSG_FIRSTHDR(&header);
  if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
    int file;
    std::memcpy(&file, CMSG_DATA(rights), sizeof file);
    message.file = Descriptor(file);
  }
  if (StatusOr<json> content = parseJson({text.data(), size_t(length)}, 4); content.isOk())
    message.content = *std::move(content);
  return message;
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

/// What ends a wait without a result.
Status RankMeeting::checkTime(Waiting &waiting, const std::string &whom) const {
  if (patience.isInterrupted())
    return Status(StatusCode::Cancelled, "stopped while waiting for " + whom);
  if (waiting.getSeconds() <= patience.seconds)
    return Status::ok();
  return environmentError(
      "rank " + std::to_string(self.rank) + " waited " + std::to_string(int64_t(patience.seconds)) +
      " s for " + whom + " of the " + std::to_string(self.ranks) + " processes that " +
      self.launcher + " starts on this host; --rank-timeout=SECONDS gives them longer");
}

//===----------------------------------------------------------------------===//
// The first
//===----------------------------------------------------------------------===//

std::string memopt::findDisagreement(int64_t number, const RankTask &mine, const RankTask &theirs) {
  std::string rank = std::to_string(number);
  size_t common = std::min(mine.arguments.size(), theirs.arguments.size());
  auto [here, there] = std::mismatch(mine.arguments.begin(), mine.arguments.begin() + common,
                                     theirs.arguments.begin());
  auto say = [](const std::vector<std::string> &all, auto at) {
    return at == all.end() ? "nothing more" : quote(*at);
  };
  if (here != mine.arguments.end() || there != theirs.arguments.end())
    return "rank " + rank + " was given " + say(theirs.arguments, there) + " where rank 0 has " +
           say(mine.arguments, here) + ": all ranks need the same arguments";
  for (size_t i = 0; i < mine.files.size(); ++i)
    if (i >= theirs.files.size() || mine.files[i] != theirs.files[i])
      return mine.files[i].first + " of rank " + rank +
             " is another file than that of rank 0: all ranks need the same";
  return "";
}

static StatusOr<RankTask> parseTask(JsonView message) {
  RankTask task;
  MEMOPT_ASSIGN_OR_RETURN(JsonView arguments, message.get("arguments"));
  MEMOPT_ASSIGN_OR_RETURN(task.arguments, arguments.asStrings());
  MEMOPT_ASSIGN_OR_RETURN(JsonView files, message.get("files"));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<JsonView> pairs, files.asArray());
  for (const JsonView &pair : pairs) {
    MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> both, pair.asStrings());
    if (both.size() == 2)
      task.files.emplace_back(both[0], both[1]);
  }
  return task;
}

std::string memopt::writeTask(const RankTask &task) {
  json content = {{"arguments", task.arguments}, {"files", task.files}};
  return content.dump(-1, ' ', false, json::error_handler_t::replace);
}

StatusOr<RankTask> memopt::readTask(const std::string &text) {
  MEMOPT_ASSIGN_OR_RETURN(json content, parseJson(text, 4));
  return parseTask(JsonView(content));
}

StatusOr<Descriptor> RankMeeting::openDoor() const {
  Descriptor door = makeSocket();
  auto [address, length] = getAddress(self);
  if (door.get() >= 0 && ::bind(door.get(), reinterpret_cast<sockaddr *>(&address), length) == 0 &&
      ::listen(door.get(), int(self.ranks)) == 0)
    return door;
  if (errno == EADDRINUSE)
    return environmentError("another rank 0 waits for the others of the same start (" +
                            self.launcher + ", " + self.start +
                            "): each process needs a rank of its own, and each run a port");
  return environmentError(describeErrno("opening a socket for", "ranks", errno));
}

namespace {
/// What a guest says that it is and wants.
struct Arrival {
  int64_t rank, ranks;
  RankTask task;
};
} // namespace

static StatusOr<Arrival> parseArrival(const json &content) {
  JsonView view(content);
  Arrival arrival{};
  MEMOPT_ASSIGN_OR_RETURN(arrival.rank, view.getInteger("rank"));
  MEMOPT_ASSIGN_OR_RETURN(arrival.ranks, view.getInteger("ranks"));
  MEMOPT_ASSIGN_OR_RETURN(arrival.task, parseTask(view));
  return arrival;
}

/// Of guests that say nothing so many may stay; they are none of the ranks, or late ones.
static constexpr size_t mostSilentGuests = 64;

void RankMeeting::letIn(int door) {
  Descriptor guest(::accept4(door, nullptr, nullptr, SOCK_CLOEXEC));
  if (guest.get() < 0) // without descriptors, say; who knocks is still there later
    std::this_thread::sleep_for(std::chrono::milliseconds(sliceMilliseconds));
  if (guest.get() < 0 || !isOurs(guest))
    return;
  if (guests.size() >= mostSilentGuests + size_t(self.ranks))
    guests.erase(guests.begin());
  guests.push_back(std::move(guest));
}

/// A guest that leaves, or speaks of something else, is no rank of ours and changes nothing.
Status RankMeeting::hearGuest(Descriptor guest, const RankTask &task, std::string &disagreement) {
  Message message = receiveMessage(guest);
  StatusOr<Arrival> arrival = parseArrival(message.content);
  if (message.isEnd || !arrival.isOk())
    return Status::ok();
  auto refuseGuest = [&](const std::string &reason) {
    sendMessage(guest, {{"code", int(StatusCode::Environment)}});
    return environmentError(reason);
  };
  auto [rank, ranks, theirs] = *std::move(arrival);
  if (ranks != self.ranks)
    return refuseGuest("rank " + std::to_string(rank) + " is one of " + std::to_string(ranks) +
                       " processes, rank 0 one of " + std::to_string(self.ranks));
  if (rank < 1 || rank >= ranks || others[size_t(rank)].get() >= 0)
    return refuseGuest("two processes say that they are rank " + std::to_string(rank));
  if (disagreement.empty())
    disagreement = findDisagreement(rank, task, theirs);
  others[size_t(rank)] = std::move(guest);
  return Status::ok();
}

/// Until somebody knocks, or a guest says something or leaves, or a slice of time is over.
void RankMeeting::waitForWords(int door) const {
  std::vector<pollfd> wanted{{door, POLLIN, 0}};
  for (const Descriptor &guest : guests)
    wanted.push_back({guest.get(), POLLIN, 0});
  ::poll(wanted.data(), wanted.size(), sliceMilliseconds);
}

std::string RankMeeting::nameMissing() const {
  std::string names;
  for (size_t rank = 1; rank < others.size(); ++rank)
    if (others[rank].get() < 0)
      names += (names.empty() ? "rank " : ", ") + std::to_string(rank);
  return names;
}

Status RankMeeting::waitForOthers(const RankTask &task) {
  others.resize(size_t(self.ranks));
  MEMOPT_ASSIGN_OR_RETURN(Descriptor door, openDoor());
  std::string disagreement;
  for (Waiting waiting; !nameMissing().empty();) {
    waitForWords(door.get());
    if (hasInput(door.get()))
      letIn(door.get());
    for (size_t i = guests.size(); i-- > 0;)
      if (hasInput(guests[i].get())) {
        Descriptor guest = std::move(guests[i]);
        guests.erase(guests.begin() + std::ptrdiff_t(i));
        MEMOPT_RETURN_IF_ERROR(hearGuest(std::move(guest), task, disagreement));
      }
    keepWaiting();
    if (std::vector<int64_t> lost = findLost(); !lost.empty())
      return environmentError("rank " + std::to_string(lost[0]) + " ended before the run began");
    MEMOPT_RETURN_IF_ERROR(checkTime(waiting, nameMissing()));
  }
  guests.clear();
  return disagreement.empty() ? Status::ok() : environmentError(std::move(disagreement));
}

void RankMeeting::keepWaiting() {
  auto now = Clock::now();
  if (now - lastWord < std::chrono::milliseconds(200))
    return;
  lastWord = now;
  for (const Descriptor &other : others)
    if (other.get() >= 0)
      sendMessage(other, {{"wait", true}});
}

void RankMeeting::refuse(const Status &reason) {
  if (hasTold)
    return; // now they learn it where all ranks do
  for (const Descriptor &other : others)
    if (other.get() >= 0)
      sendMessage(other, {{"code", int(reason.getCode())}});
}

Status RankMeeting::tell(const std::string &preparation, int memory) {
  hasTold = true;
  for (size_t rank = 1; rank < others.size(); ++rank)
    if (!sendMessage(others[rank], {{"preparation", preparation}}, memory))
      return environmentError("rank " + std::to_string(rank) + " ended before the run began");
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// The others
//===----------------------------------------------------------------------===//

/// A connection to the first; none where it is not there yet.
StatusOr<Descriptor> RankMeeting::findDoor() {
  Descriptor socket = makeSocket();
  auto [address, length] = getAddress(self);
  if (socket.get() < 0)
    return environmentError(describeErrno("opening a socket for", "ranks", errno));
  if (::connect(socket.get(), reinterpret_cast<sockaddr *>(&address), length) != 0)
    return Descriptor();
  if (!isOurs(socket))
    return environmentError("somebody else listens where rank 0 should");
  return socket;
}

Status RankMeeting::goToFirst(const RankTask &task) {
  for (Waiting waiting;;) {
    MEMOPT_ASSIGN_OR_RETURN(Descriptor first, findDoor());
    if (first.get() >= 0) {
      others.push_back(std::move(first));
      break;
    }
    MEMOPT_RETURN_IF_ERROR(checkTime(waiting, "rank 0"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (!sendMessage(others[0], {{"rank", self.rank},
                               {"ranks", self.ranks},
                               {"arguments", task.arguments},
                               {"files", task.files}}))
    return environmentError(describeErrno("sending this rank's arguments to", "rank 0", errno));
  return Status::ok();
}

StatusOr<RankMeeting::Preparation> RankMeeting::listen() {
  for (Waiting waiting;;) {
    Message message =
        hasInput(others[0].get(), sliceMilliseconds) ? receiveMessage(others[0]) : Message();
    if (message.isEnd)
      return environmentError("rank 0 ended before the run began");
    JsonView view(message.content);
    if (view.has("code")) {
      MEMOPT_ASSIGN_OR_RETURN(int64_t code, view.getInteger("code"));
      return Status(toFailureCode(code), "");
    }
    if (view.has("preparation")) {
      MEMOPT_ASSIGN_OR_RETURN(std::string text, view.getString("preparation"));
      return Preparation{std::move(text), std::move(message.file)};
    }
    if (view.has("wait"))
      waiting = Waiting();
    MEMOPT_RETURN_IF_ERROR(checkTime(waiting, "a word of rank 0"));
  }
}

void RankMeeting::leave() {
  if (isFirst())
    return;
  // What closes with words unread takes its own last one with it.
  while (!receiveMessage(others[0]).content.is_null())
    ;
  sendMessage(others[0], {{"left", true}});
}

//===----------------------------------------------------------------------===//
// All
//===----------------------------------------------------------------------===//

std::vector<int64_t> RankMeeting::findLost() {
  std::vector<int64_t> lost;
  for (size_t rank = 0; rank < others.size(); ++rank) {
    if (others[rank].get() < 0)
      continue;
    Message message = receiveMessage(others[rank]);
    bool hasLeft = JsonView(message.content).has("left");
    if (message.isEnd)
      lost.push_back(int64_t(rank));
    if (message.isEnd || hasLeft)
      others[rank] = Descriptor();
  }
  return lost;
}

std::vector<int64_t> RankMeeting::getOthers() const {
  std::vector<int64_t> there;
  for (size_t rank = 0; isFirst() && rank < others.size(); ++rank)
    if (others[rank].get() >= 0)
      there.push_back(int64_t(rank));
  return there;
}

StatusOr<std::unique_ptr<RankMeeting>> RankMeeting::join(const LaunchedRank &self,
                                                         const RankTask &task, Patience patience) {
  std::unique_ptr<RankMeeting> meeting(new RankMeeting(self, std::move(patience)));
  Status status = meeting->isFirst() ? meeting->waitForOthers(task) : meeting->goToFirst(task);
  if (!status.isOk() && meeting->isFirst())
    meeting->refuse(status);
  if (!status.isOk())
    return status;
  return meeting;
}
