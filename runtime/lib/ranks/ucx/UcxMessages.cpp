//===- UcxMessages.cpp - messages over UCX --------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For processes that torchrun started on several hosts, where no MPI is. UCX sends over what there
// is between two hosts, TCP at least. Processes find each other by torchrun's variables: the first
// listens at the port behind MASTER_PORT, which is torchrun's own, or at MEMOPT_PORT. The others
// send it where they are reached, and it tells all of them to each. What they say names the start that
// it belongs to, which is no secret. With MEMOPT_RANK_SECRET each also proves that it knows the secret,
// by a code over what it says (HMAC, RFC 2104, with SHA-256).
//
// A connection that breaks is a failure of all that waits for it, at once.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/Messages.h"
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <thread>
#include <ucp/api/ucp.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace memopt;

namespace {
using Clock = std::chrono::steady_clock;

/// Of tags; the sender's rank stands below.
enum class Kind : uint64_t { Data, Control, Arrival, Table, End };
ucp_tag_t makeTag(Kind kind, int64_t from) { return uint64_t(kind) << 32 | uint64_t(from); }

Status fail(ucs_status_t status, const std::string &doing) {
  return environmentError("UCX, " + doing + ": " + ucs_status_string(status));
}

/// An operation that may go on.
class Request {
public:
  Status set(ucs_status_ptr_t begun, const std::string &doing) {
    if (UCS_PTR_IS_ERR(begun))
      return fail(UCS_PTR_STATUS(begun), doing);
    handle = begun;
    return Status::ok();
  }
  bool isOpen() const { return handle != nullptr; }
  /// Where it is not over yet. One that was taken back is.
  StatusOr<bool> isDone(const std::string &doing) {
    if (!handle)
      return true;
    ucs_status_t status = ucp_request_check_status(handle);
    if (status == UCS_INPROGRESS)
      return false;
    ucp_request_free(handle);
    handle = nullptr;
    if (status != UCS_OK && status != UCS_ERR_CANCELED)
      return fail(status, doing);
    return true;
  }
  void cancel(ucp_worker_h worker) {
    if (handle)
      ucp_request_cancel(worker, handle);
  }

private:
  void *handle = nullptr;
};

/// Another rank.
struct Peer {
  ucp_ep_h endpoint = nullptr;
  ucs_status_t loss = UCS_OK;
  Request receives[2], sends[2]; ///< by channel
};

class UcxMessages final : public Messages {
public:
  /// Without a secret nobody proves anything.
  UcxMessages(int64_t rank, int64_t ranks, std::string secret)
      : Messages(rank, ranks), secret(std::move(secret)), peers(size_t(ranks)) {}
  ~UcxMessages() override { close(); }

  Status open(const addrinfo &first, const std::string &start);

  Status receive(Channel channel, int64_t from, char *to, int64_t bytes) override {
    return peers[size_t(from)].receives[int(channel)].set(
        beginReceive(makeTag(Kind(channel), from), to, size_t(bytes)), "receiving");
  }
  StatusOr<bool> hasReceived(Channel channel, int64_t from) override {
    return test(peers[size_t(from)].receives[int(channel)], from, "receiving");
  }
  Status send(Channel channel, int64_t to, const char *from, int64_t bytes) override {
    return peers[size_t(to)].sends[int(channel)].set(
        beginSend(peers[size_t(to)].endpoint, Kind(channel), from, size_t(bytes)), "sending");
  }
  StatusOr<bool> hasSent(Channel channel, int64_t to) override {
    return test(peers[size_t(to)].sends[int(channel)], to, "sending");
  }
  void cancelReceives() override {
    for (Peer &peer : peers)
      peer.receives[int(Channel::Data)].cancel(worker);
  }

  void finish() override;
  /// No launcher's word reaches the others from here: they see the connection break.
  void abort(int code) override { ::_exit(code); }
  bool abortsAll() const override { return false; }

private:
  static constexpr double mostSeconds = 300, endSeconds = 5;

  ucs_status_ptr_t beginReceive(ucp_tag_t tag, void *to, size_t bytes, bool ofAny = false) {
    ucp_request_param_t how{};
    ucp_tag_t kind = ~uint64_t(0) << 32;
    return ucp_tag_recv_nbx(worker, to, bytes, tag, ofAny ? kind : ~uint64_t(0), &how);
  }
  ucs_status_ptr_t beginSend(ucp_ep_h to, Kind kind, const void *from, size_t bytes) {
    ucp_request_param_t how{};
    return ucp_tag_send_nbx(to, from, bytes, makeTag(kind, rank), &how);
  }
  StatusOr<bool> test(Request &request, int64_t other, const char *doing) {
    ucp_worker_progress(worker);
    StatusOr<bool> done = request.isDone(doing);
    ucs_status_t loss = peers[size_t(other)].loss;
    if (done.isOk() && !*done && loss != UCS_OK)
      return fail(loss, "the connection to rank " + std::to_string(other));
    return done;
  }
  /// Until `isOver`; false when time is.
  template <typename IsOver> bool progress(double seconds, const IsOver &isOver) {
    for (auto begin = Clock::now(); !isOver();) {
      if (!ucp_worker_progress(worker))
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (Clock::now() - begin > std::chrono::duration<double>(seconds))
        return false;
    }
    return true;
  }

  Status openWorker();
  Status connect(Peer &peer, const ucp_address_t *address);
  Status goToFirst(const addrinfo &first, const std::string &arrival, std::string &table);
  Status waitForOthers(const addrinfo &first, const std::string &start,
                       std::vector<std::string> &addresses);
  Status waitFor(Request &request, const std::string &whom);
  std::string sign(const std::string &text) const;
  void closeEndpoint(ucp_ep_h endpoint, double seconds);
  void close();

  const std::string secret;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  std::vector<Peer> peers;
  std::vector<ucp_ep_h> guests; ///< by which others came to the first
  Peer nobody;                  ///< whose loss means nothing
};
} // namespace

//===----------------------------------------------------------------------===//
// Connections
//===----------------------------------------------------------------------===//

static void noteLoss(void *peer, ucp_ep_h, ucs_status_t status) {
  static_cast<Peer *>(peer)->loss = status;
}

Status UcxMessages::openWorker() {
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  parameters.features = UCP_FEATURE_TAG;
  parameters.estimated_num_eps = size_t(ranks);
  if (ucs_status_t status = ucp_init(&parameters, nullptr, &context); status != UCS_OK)
    return fail(status, "starting");
  ucp_worker_params_t ofWorker{};
  ofWorker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  ofWorker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (ucs_status_t status = ucp_worker_create(context, &ofWorker, &worker); status != UCS_OK)
    return fail(status, "starting");
  return Status::ok();
}

/// What every endpoint has: who loses it learns so.
static ucp_ep_params_t describeEndpoint(Peer &peer) {
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler = {noteLoss, &peer};
  return parameters;
}

Status UcxMessages::connect(Peer &peer, const ucp_address_t *address) {
  ucp_ep_params_t parameters = describeEndpoint(peer);
  parameters.field_mask |= UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  parameters.address = address;
  ucs_status_t status = ucp_ep_create(worker, &parameters, &peer.endpoint);
  return status == UCS_OK ? Status::ok() : fail(status, "connecting");
}

void UcxMessages::closeEndpoint(ucp_ep_h endpoint, double seconds) {
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  how.flags = seconds > 0 ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
  Request closing;
  if (endpoint && closing.set(ucp_ep_close_nbx(endpoint, &how), "closing").isOk())
    progress(std::max(seconds, 1.0), [&] {
      StatusOr<bool> done = closing.isDone("closing");
      return !done.isOk() || *done;
    });
}

void UcxMessages::close() {
  if (!worker)
    return;
  for (Peer &peer : peers)
    for (Request *requests : {peer.receives, peer.sends})
      for (Request *request : {requests, requests + 1}) {
        request->cancel(worker);
        progress(0.2, [&] {
          StatusOr<bool> done = request->isDone("closing");
          return !done.isOk() || *done;
        });
      }
  for (ucp_ep_h guest : guests)
    closeEndpoint(guest, 0);
  for (Peer &peer : peers)
    closeEndpoint(std::exchange(peer.endpoint, nullptr), peer.loss == UCS_OK ? 1 : 0);
  ucp_worker_destroy(std::exchange(worker, nullptr));
  ucp_cleanup(context);
}

/// All have nothing more to say when all have come here, and only then connections close.
void UcxMessages::finish() {
  std::vector<Request> ends(size_t(2 * ranks));
  for (int64_t other = 0; other < ranks; ++other) {
    Peer &peer = peers[size_t(other)];
    if (!peer.endpoint || peer.loss != UCS_OK)
      continue;
    (void)ends[size_t(other)].set(beginReceive(makeTag(Kind::End, other), nullptr, 0), "");
    (void)ends[size_t(ranks + other)].set(beginSend(peer.endpoint, Kind::End, nullptr, 0), "");
  }
  progress(endSeconds, [&] {
    bool isOver = true;
    for (int64_t i = 0; i < 2 * ranks; ++i) {
      StatusOr<bool> done = ends[size_t(i)].isDone("");
      isOver &= !done.isOk() || *done || peers[size_t(i % ranks)].loss != UCS_OK;
    }
    return isOver;
  });
  for (Request &end : ends)
    end.cancel(worker);
  progress(0.1, [] { return false; });
  close();
}

//===----------------------------------------------------------------------===//
// Finding each other
//===----------------------------------------------------------------------===//

Status UcxMessages::waitFor(Request &request, const std::string &whom) {
  Status failure;
  bool isOver = progress(mostSeconds, [&] {
    StatusOr<bool> done = request.isDone("waiting for " + whom);
    if (!done.isOk())
      failure = done.takeStatus();
    return !failure.isOk() || *done;
  });
  if (isOver)
    return failure;
  request.cancel(worker);
  return environmentError("rank " + std::to_string(rank) + " waited " +
                          std::to_string(int64_t(mostSeconds)) + " s for " + whom);
}

static void append(std::string &text, const std::string &part) {
  uint64_t size = part.size();
  text.append(reinterpret_cast<const char *>(&size), sizeof size);
  text += part;
}

/// The next part of a text; false where there is none that is whole.
static bool take(const std::string &text, size_t &at, std::string &part) {
  uint64_t size = 0;
  if (text.size() - at < sizeof size)
    return false;
  std::memcpy(&size, text.data() + at, sizeof size);
  at += sizeof size;
  if (text.size() - at < size)
    return false;
  part = text.substr(at, size);
  at += size;
  return true;
}

std::string UcxMessages::sign(const std::string &text) const {
  if (secret.empty())
    return {};
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), secret.data(), int(secret.size()),
       reinterpret_cast<const unsigned char *>(text.data()), text.size(), code, &size);
  return {reinterpret_cast<const char *>(code), size};
}

static bool areEqual(const std::string &a, const std::string &b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

/// What codes are over: an arrival is none of a table.
static std::string describeArrival(const std::string &number, const std::string &start,
                                   const std::string &address) {
  std::string text = "arrival";
  for (const std::string *part : {&number, &start, &address})
    append(text, *part);
  return text;
}
static std::string describeTable(const std::string &start, const std::string &table) {
  std::string text = "table";
  append(text, start);
  return text + table;
}

/// Of what a rank says on its arrival, and how many bytes the table may have.
static constexpr size_t mostArrivalBytes = 16 << 10;

Status UcxMessages::waitForOthers(const addrinfo &first, const std::string &start,
                                  std::vector<std::string> &addresses) {
  sockaddr_storage any{};
  std::memcpy(&any, first.ai_addr, first.ai_addrlen);
  if (any.ss_family == AF_INET)
    reinterpret_cast<sockaddr_in &>(any).sin_addr.s_addr = INADDR_ANY;
  else
    reinterpret_cast<sockaddr_in6 &>(any).sin6_addr = in6addr_any;
  struct Door {
    ucp_worker_h worker;
    std::vector<ucp_ep_h> &guests;
    Peer &nobody;
  } door{worker, guests, nobody};
  ucp_listener_params_t parameters{};
  parameters.field_mask =
      UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  parameters.sockaddr = {reinterpret_cast<sockaddr *>(&any), first.ai_addrlen};
  parameters.conn_handler.arg = &door;
  parameters.conn_handler.cb = [](ucp_conn_request_h request, void *argument) {
    auto &own = *static_cast<Door *>(argument);
    ucp_ep_params_t guest = describeEndpoint(own.nobody);
    guest.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
    guest.conn_request = request;
    ucp_ep_h endpoint = nullptr;
    if (ucp_ep_create(own.worker, &guest, &endpoint) == UCS_OK)
      own.guests.push_back(endpoint);
  };
  ucp_listener_h listener = nullptr;
  if (ucs_status_t status = ucp_listener_create(worker, &parameters, &listener); status != UCS_OK)
    return fail(status, "listening at the port behind MASTER_PORT; MEMOPT_PORT names another one");
  Status status;
  for (int64_t come = 1; come < ranks && status.isOk();) {
    std::string arrival(mostArrivalBytes, '\0');
    Request request;
    status = request.set(
        beginReceive(makeTag(Kind::Arrival, 0), arrival.data(), arrival.size(), /*ofAny=*/true),
        "waiting for other ranks");
    if (status.isOk())
      status = waitFor(request, "the other ranks of " + std::to_string(ranks) + ", of which " +
                                    std::to_string(come - 1) + " have come");
    std::string number, theirs, address, code;
    size_t at = 0;
    if (!status.isOk() || !take(arrival, at, number) || !take(arrival, at, theirs) ||
        !take(arrival, at, address) || !take(arrival, at, code) || theirs != start)
      continue; // no rank of ours
    if (!areEqual(code, sign(describeArrival(number, theirs, address)))) {
      status = environmentError("who says that it is rank " + number +
                                " does not prove that it has the MEMOPT_RANK_SECRET of rank 0");
      continue;
    }
    int64_t other = std::atoll(number.c_str());
    if (other < 1 || other >= ranks || !addresses[size_t(other)].empty())
      status = environmentError("two processes say that they are rank " + number);
    else
      addresses[size_t(other)] = address;
    ++come;
  }
  ucp_listener_destroy(listener);
  return status;
}

Status UcxMessages::goToFirst(const addrinfo &first, const std::string &arrival,
                              std::string &table) {
  Request hearing;
  MEMOPT_RETURN_IF_ERROR(
      hearing.set(beginReceive(makeTag(Kind::Table, 0), table.data(), table.size()), "starting"));
  // Until the first is there.
  for (auto begin = Clock::now();;) {
    Peer door;
    ucp_ep_params_t parameters = describeEndpoint(door);
    parameters.field_mask |= UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
    parameters.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    parameters.sockaddr = {first.ai_addr, first.ai_addrlen};
    if (ucs_status_t status = ucp_ep_create(worker, &parameters, &door.endpoint); status != UCS_OK)
      return fail(status, "connecting to MASTER_ADDR");
    Request saying;
    Status status = saying.set(
        beginSend(door.endpoint, Kind::Arrival, arrival.data(), arrival.size()), "arriving");
    bool hasHeard = false;
    progress(mostSeconds, [&] {
      StatusOr<bool> heard = hearing.isDone("waiting for rank 0");
      hasHeard = heard.isOk() && *heard;
      return hasHeard || door.loss != UCS_OK || !status.isOk();
    });
    progress(1, [&] {
      StatusOr<bool> done = saying.isDone("arriving");
      return !done.isOk() || *done;
    });
    closeEndpoint(door.endpoint, 0);
    if (hasHeard)
      return Status::ok();
    if (Clock::now() - begin > std::chrono::duration<double>(mostSeconds)) {
      hearing.cancel(worker);
      return environmentError("rank " + std::to_string(rank) + " waited " +
                              std::to_string(int64_t(mostSeconds)) +
                              " s for rank 0 at MASTER_ADDR; its port is the one behind "
                              "MASTER_PORT, or MEMOPT_PORT; it answers those alone who have its "
                              "MEMOPT_RANK_SECRET, or like it none");
    }
    progress(0.05, [] { return false; });
  }
}

Status UcxMessages::open(const addrinfo &first, const std::string &start) {
  MEMOPT_RETURN_IF_ERROR(openWorker());
  ucp_address_t *address = nullptr;
  size_t length = 0;
  if (ucs_status_t status = ucp_worker_get_address(worker, &address, &length); status != UCS_OK)
    return fail(status, "starting");
  std::string own(reinterpret_cast<char *>(address), length);
  ucp_worker_release_address(worker, address);
  std::vector<std::string> addresses(static_cast<size_t>(ranks));
  std::string table(size_t(ranks) * mostArrivalBytes, '\0');
  if (rank == 0) {
    MEMOPT_RETURN_IF_ERROR(waitForOthers(first, start, addresses));
    addresses[0] = own;
    table.clear();
    for (const std::string &one : addresses)
      append(table, one);
    append(table, sign(describeTable(start, table)));
  } else {
    std::string arrival;
    append(arrival, std::to_string(rank));
    append(arrival, start);
    append(arrival, own);
    append(arrival, sign(describeArrival(std::to_string(rank), start, own)));
    MEMOPT_RETURN_IF_ERROR(goToFirst(first, arrival, table));
    size_t at = 0;
    for (std::string &one : addresses)
      if (!take(table, at, one))
        return environmentError("rank 0 does not tell how other ranks are reached");
    std::string code, told = table.substr(0, at);
    if (!take(table, at, code) || !areEqual(code, sign(describeTable(start, told))))
      return environmentError("who answers as rank 0 does not prove that it knows "
                              "MEMOPT_RANK_SECRET");
  }
  for (int64_t other = 0; other < ranks; ++other)
    if (other != rank)
      MEMOPT_RETURN_IF_ERROR(connect(peers[size_t(other)], reinterpret_cast<const ucp_address_t *>(
                                                               addresses[size_t(other)].data())));
  for (int64_t other = 1; rank == 0 && other < ranks; ++other) {
    Request telling;
    MEMOPT_RETURN_IF_ERROR(telling.set(
        beginSend(peers[size_t(other)].endpoint, Kind::Table, table.data(), table.size()),
        "telling"));
    MEMOPT_RETURN_IF_ERROR(waitFor(telling, "rank " + std::to_string(other)));
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// The plugin
//===----------------------------------------------------------------------===//

/// A process may open messages several times, as all ranks do.
static StatusOr<Messages *> openMessages() {
  static int64_t opened = 0;
  auto get = [](const char *name) {
    const char *value = std::getenv(name);
    return std::string(value ? value : "");
  };
  std::string port = get("MEMOPT_PORT");
  if (port.empty())
    port = std::to_string(std::atoi(get("MASTER_PORT").c_str()) + 1);
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (int code = ::getaddrinfo(get("MASTER_ADDR").c_str(), port.c_str(), &wanted, &found); code)
    return environmentError("MASTER_ADDR is '" + get("MASTER_ADDR") +
                            "', which is not found: " + ::gai_strerror(code));
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> first(found, ::freeaddrinfo);
  auto messages = std::make_unique<UcxMessages>(std::atoll(get("RANK").c_str()),
                                                std::atoll(get("WORLD_SIZE").c_str()),
                                                get("MEMOPT_RANK_SECRET"));
  std::string start = get("MASTER_ADDR") + " " + get("MASTER_PORT") + " " +
                      get("TORCHELASTIC_RUN_ID") + " " + get("TORCHELASTIC_RESTART_COUNT") + " " +
                      get("WORLD_SIZE") + " " + std::to_string(opened++);
  MEMOPT_RETURN_IF_ERROR(messages->open(*first, start));
  return messages.release();
}

extern "C" Messages *memoptOpenMessages(int64_t version, Status *failure) {
  if (version != messagesVersion)
    return nullptr;
  StatusOr<Messages *> opened = openMessages();
  if (opened.isOk())
    return *opened;
  *failure = opened.takeStatus();
  return nullptr;
}
