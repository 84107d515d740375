//===- RankMeetingTest.cpp - processes of one start find each other -------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Processes are threads here: a meeting does not know the difference.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/RankMeeting.h"
#include "TestSupport.h"
#include <algorithm>
#include <cstring>
#include <fstream>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

using namespace memopt;
using namespace memopt::testing;

namespace {
using Joined = StatusOr<std::unique_ptr<RankMeeting>>;

class RankMeetingTest : public ::testing::Test {
protected:
  LaunchedRank getRank(int64_t rank, int64_t ranks) const {
    return {"test", rank, ranks, std::to_string(::getpid()) + " " + name};
  }
  Joined join(int64_t rank, int64_t ranks, const RankTask &task = {{"model.pt2"}, {}},
              double seconds = 60) const {
    return RankMeeting::join(getRank(rank, ranks), task, {seconds, [] { return false; }});
  }

  /// Each rank's task; what each of them gets.
  std::vector<Joined> joinAll(const std::vector<RankTask> &tasks, double seconds = 60) const {
    std::vector<Joined> joined;
    for (size_t rank = 0; rank < tasks.size(); ++rank)
      joined.emplace_back(Status::ok());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < tasks.size(); ++rank)
      threads.emplace_back([&, rank] {
        joined[rank] = join(int64_t(rank), int64_t(tasks.size()), tasks[rank], seconds);
      });
    for (std::thread &thread : threads)
      thread.join();
    return joined;
  }

  /// A connection to rank 0, which may not be there as yet. Of this process alone: others may
  /// meet on this machine, too.
  static Descriptor knock(const std::vector<std::string> &before) {
    for (int tries = 0; tries < 500; ++tries, ::usleep(10000))
      for (const std::string &address : listAddresses())
        if (std::find(before.begin(), before.end(), address) == before.end()) {
          Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
          sockaddr_un to{};
          to.sun_family = AF_UNIX;
          address.copy(to.sun_path + 1, sizeof to.sun_path - 1);
          auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + address.size());
          if (::connect(socket.get(), reinterpret_cast<sockaddr *>(&to), length) == 0)
            return socket;
        }
    return Descriptor();
  }
  static std::vector<std::string> listAddresses() {
    std::vector<std::string> addresses;
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);)
      if (size_t at = line.find("@memopt-ranks-"); at != std::string::npos)
        addresses.push_back(line.substr(at + 1));
    return addresses;
  }

  const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
};
} // namespace

TEST_F(RankMeetingTest, TheFirstTellsTheOthersAndSharesMemory) {
  std::vector<Joined> joined = joinAll(std::vector<RankTask>(3, {{"model.pt2", "--steps=3"}, {}}));
  for (Joined &meeting : joined)
    ASSERT_TRUE(meeting.isOk()) << meeting.getMessage();
  Descriptor memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::write(memory.get(), "shared", 6), 6);
  joined[0]->get()->keepWaiting(); // is no preparation
  ASSERT_TRUE(joined[0]->get()->tell("a package", memory.get()).isOk());
  for (size_t rank : {1, 2}) {
    auto told = joined[rank]->get()->listen();
    ASSERT_TRUE(told.isOk()) << told.getMessage();
    EXPECT_EQ(told->text, "a package");
    char text[6];
    ASSERT_EQ(::pread(told->memory.get(), text, 6, 0), 6);
    EXPECT_EQ(std::memcmp(text, "shared", 6), 0);
  }
}

TEST_F(RankMeetingTest, WhoGoesWithoutAWordIsLost) {
  std::vector<Joined> joined = joinAll(std::vector<RankTask>(4));
  RankMeeting &first = **joined[0];
  EXPECT_TRUE(first.findLost().empty());
  joined[1]->get()->leave();
  joined[1]->reset();
  joined[2]->reset();
  EXPECT_EQ(first.findLost(), std::vector<int64_t>{2});
  EXPECT_TRUE(first.findLost().empty()); // said once
  EXPECT_EQ(first.getOthers(), std::vector<int64_t>{3});
  EXPECT_TRUE(joined[3]->get()->findLost().empty());
  joined[0]->reset();
  EXPECT_EQ(joined[3]->get()->findLost(), std::vector<int64_t>{0});
}

TEST_F(RankMeetingTest, RanksWithOtherArgumentsAreRefusedWithOneMessage) {
  RankTask same{{"model.pt2", "--steps=3"}, {{"--data", "1:2"}}};
  RankTask longer = same, otherFile = same;
  longer.arguments.push_back("--quiet");
  otherFile.files[0].second = "1:3";
  const std::pair<RankTask, std::string> cases[] = {
      {longer, "rank 1 was given '--quiet' where rank 0 has nothing more"},
      {{{"model.pt2", "--steps=4"}, same.files},
       "rank 1 was given '--steps=4' where rank 0 has '--steps=3'"},
      {otherFile, "--data of rank 1 is another file than that of rank 0"}};
  for (const auto &[other, message] : cases) {
    std::vector<Joined> joined = joinAll({same, other});
    EXPECT_EQ(joined[0].getCode(), StatusCode::Environment);
    expectMessage(joined[0].getMessage(), {message});
    auto told = joined[1].isOk() ? joined[1]->get()->listen() : joined[1].takeStatus();
    EXPECT_EQ(told.getCode(), StatusCode::Environment);
    EXPECT_EQ(told.getMessage(), ""); // said by the first
  }
}

TEST_F(RankMeetingTest, NobodyWaitsLongerThanTheLimit) {
  Joined first = join(0, 3, {}, 0.2);
  EXPECT_EQ(first.getCode(), StatusCode::Environment);
  expectMessage(first.getMessage(), {"rank 0 waited 0 s for rank 1, 2 of the 3 processes"});
  Joined other = join(1, 3, {}, 0.2);
  EXPECT_EQ(other.getCode(), StatusCode::Environment);
  expectMessage(other.getMessage(), {"rank 1 waited 0 s for rank 0", "--rank-timeout=SECONDS"});
}

TEST_F(RankMeetingTest, AFirstThatHangsIsGivenUp) {
  std::vector<Joined> joined = joinAll(std::vector<RankTask>(2), 2);
  ASSERT_TRUE(joined[1].isOk());
  auto told = joined[1]->get()->listen();
  EXPECT_EQ(told.getCode(), StatusCode::Environment);
  expectMessage(told.getMessage(), {"rank 1 waited 2 s for a word of rank 0"});
}

TEST_F(RankMeetingTest, AFirstThatDiesOrFailsEndsTheOthers) {
  std::vector<Joined> joined = joinAll(std::vector<RankTask>(3));
  joined[0]->get()->refuse(badInput("the model is damaged"));
  auto told = joined[1]->get()->listen();
  EXPECT_EQ(told.getCode(), StatusCode::BadInput);
  EXPECT_EQ(told.getMessage(), "");
  joined = joinAll(std::vector<RankTask>(3));
  joined[0]->reset();
  EXPECT_EQ(joined[2]->get()->listen().getCode(), StatusCode::Environment);
}

TEST_F(RankMeetingTest, NumbersAreThoseOfOneStart) {
  Joined first = Status::ok(), second = Status::ok();
  std::thread other([&] { second = join(2, 4); }); // of four, and the first is one of three
  first = join(0, 3);
  other.join();
  EXPECT_EQ(first.getCode(), StatusCode::Environment);
  expectMessage(first.getMessage(), {"rank 2 is one of 4 processes, rank 0 one of 3"});

  Joined third = Status::ok();
  std::thread twice([&] { second = join(1, 3); });
  std::thread again([&] { third = join(1, 3); });
  first = join(0, 3);
  twice.join();
  again.join();
  expectMessage(first.getMessage(), {"two processes say that they are rank 1"});
}

TEST_F(RankMeetingTest, ARunCanBeStartedAgainAtOnce) {
  for (int round = 0; round < 3; ++round)
    for (Joined &meeting : joinAll(std::vector<RankTask>(2)))
      EXPECT_TRUE(meeting.isOk()) << meeting.getMessage();
}

TEST_F(RankMeetingTest, TwoFirstRanksDoNotMeet) {
  Joined one = Status::ok(), two = Status::ok();
  std::thread other([&] { one = join(0, 2, {}, 2); });
  two = join(0, 2, {}, 2);
  other.join();
  std::string messages = one.getMessage() + two.getMessage();
  expectMessage(messages, {"another rank 0 waits for the others of the same start"});
}

// Any process of this user may knock; who is no rank changes nothing and keeps nobody waiting.
TEST_F(RankMeetingTest, GuestsThatLeaveOrSayNothingEndNothing) {
  std::vector<std::string> before = listAddresses();
  Joined first = Status::ok();
  std::thread thread([&] { first = join(0, 2, {}, 20); });
  Descriptor silent = knock(before), leaves = knock(before), babbles = knock(before);
  leaves = Descriptor();
  EXPECT_GT(::send(babbles.get(), "{\"rank\": \"x\"}", 13, MSG_NOSIGNAL), 0);
  Joined second = join(1, 2, {}, 20);
  thread.join();
  EXPECT_TRUE(first.isOk()) << first.getMessage();
  EXPECT_TRUE(second.isOk()) << second.getMessage();
}

// What is no code of ours, from a process that is out of order, is a failure all the same.
TEST_F(RankMeetingTest, CodesAreChecked) {
  EXPECT_EQ(toFailureCode(1), StatusCode::BadInput);
  EXPECT_EQ(toFailureCode(4), StatusCode::NotFinite);
  EXPECT_EQ(toFailureCode(5), StatusCode::Interrupted);
  EXPECT_EQ(toFailureCode(130), StatusCode::Cancelled);
  for (int64_t number : {int64_t(0), int64_t(-1), int64_t(77), int64_t(1) << 32 | 1})
    EXPECT_EQ(toFailureCode(number), StatusCode::Environment) << number;
}

TEST(DescribeFileTest, OtherFilesAndOtherContentsDiffer) {
  TemporaryFolder folder;
  writeFile(folder / "a", "one");
  writeFile(folder / "b", "one");
  std::string before = describeFile(folder / "a");
  EXPECT_EQ(describeFile(folder.path + "/./a"), before);
  EXPECT_NE(describeFile(folder / "b"), before);
  writeFile(folder / "a", "longer");
  EXPECT_NE(describeFile(folder / "a"), before);
  EXPECT_EQ(describeFile(folder / "c"), "");
}
