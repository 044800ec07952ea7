// SPDX-License-Identifier: Apache-2.0
// What the decorators add: a log, a virtual link, faults.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <thread>

#include "tests/support/comm_faults.h"
#include "tests/support/expect_throw.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/fault.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/record.h"
#include "thinwire/core/error.h"

namespace thinwire::test {
namespace {

TEST(Record, KeepsOrderBytesAndTimes) {
  const Watchdog watchdog("record");
  auto comms = make_local(2, 20, "record|local");
  ranks_as_threads(2, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    std::vector<float> a(100), b(10);
    const Handle first = all_reduce_of(comm, a, {3, 7}, Combine::mean),
                 second = all_reduce_of(comm, b, {1, 7}, Combine::mean);
    second.wait();
    first.wait();
    comm.barrier("end");
    const auto log = call_log(comm);
    ASSERT_NE(log, nullptr);
    const auto calls = log->calls();
    ASSERT_EQ(calls.size(), 3u);
    EXPECT_EQ(calls[0].id, (MessageId{3, 7}));
    EXPECT_EQ(calls[1].id, (MessageId{1, 7}));
    EXPECT_EQ(calls[2].kind, CallKind::barrier);
    EXPECT_EQ(calls[0].payload_bytes, 400);
    EXPECT_EQ(calls[0].sent_bytes, 400);  // 2P(n-1)/n
    EXPECT_EQ(log->payload_bytes(), 440);
    EXPECT_EQ(log->count(CallKind::all_reduce, 3), 1);
    EXPECT_EQ(log->count(CallKind::all_reduce, 3, 8), 0);
    for (const auto& call : calls) {
      ASSERT_TRUE(call.ended);
      EXPECT_GE(*call.ended, call.started);
    }
    log->clear();
    EXPECT_EQ(log->total(), 0);
    all_reduce_of(comm, b, {1, 8}, Combine::mean).wait();
    EXPECT_EQ(log->calls().at(0).id.step, 8);
  });
}

TEST(Record, TheEndIsTheTransportsAndNotTheWaiters) {
  const Watchdog watchdog("record end");
  auto comms = make_local(2, 20, "record|local");
  std::vector<float> a(10), b(10);
  const Handle first = all_reduce_of(*comms[0], a, {0, 0}, Combine::mean);
  EXPECT_FALSE(call_log(*comms[0])->calls()[0].ended);
  all_reduce_of(*comms[1], b, {0, 0}, Combine::mean).wait();
  const auto end = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  first.wait();
  EXPECT_LE(*call_log(*comms[0])->calls()[0].ended, end);
}

TEST(Record, KeepsTheLastOnes) {
  auto comms = make_local(1, 20, "record{calls=4}|local");
  std::vector<float> a(1);
  for (int step = 0; step < 10; ++step)
    all_reduce_of(*comms[0], a, {0, step}, Combine::mean).wait();
  const auto calls = call_log(*comms[0])->calls();
  ASSERT_EQ(calls.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(calls[static_cast<std::size_t>(i)].id.step, 6 + i);
  EXPECT_EQ(call_log(*comms[0])->total(), 10);
  auto plain = make_local(1);
  EXPECT_EQ(call_log(*plain[0]), nullptr);
}

/// What the rule of the header says of the transport's ends, which the inner recorder knows.
TEST(Throttle, CallsShareTheLinkOneAfterTheOther) {
  const Watchdog watchdog("throttle");
  // 10 MB/s: 400 kB take 40 ms.
  auto comms = make_local(2, 20, "throttle{rate=80mbit,latency_ms=100}|record|local");
  ranks_as_threads(2, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    std::vector<float> a(100000), b(100000);
    comm.barrier("start");
    const auto start = Clock::now();
    const Handle first = all_reduce_of(comm, a, {0, 0}, Combine::mean),
                 second = all_reduce_of(comm, b, {1, 0}, Combine::mean);
    first.wait();
    second.wait();
    const auto calls = call_log(comm)->calls();
    ASSERT_EQ(calls.size(), 3u);
    const auto free = calls[1].ended.value() + std::chrono::milliseconds(40);
    const auto free_again = std::max(free, calls[2].ended.value()) + std::chrono::milliseconds(40);
    const auto shown_late = [](const Handle& handle, Deadline link_free) {
      const auto visible = link_free + std::chrono::milliseconds(100);
      return std::chrono::duration<double>(handle.ended().value() - visible).count();
    };
    // Never sooner; later only by what the link's thread woke too late.
    EXPECT_GE(shown_late(first, free), 0);
    EXPECT_LT(shown_late(first, free), 0.03 + late_s());
    EXPECT_GE(shown_late(second, free_again), 0);
    EXPECT_LT(shown_late(second, free_again), 0.03 + late_s()) << "the latency was paid twice";
    EXPECT_GE(seconds_since(start), 0.179);
  });
}

TEST(Throttle, CallsReturnAtOnceAndEndNoSooner) {
  const Watchdog watchdog("throttle at once");
  auto comms = make_local(2, 20, "throttle{latency_ms=100}|local");
  ranks_as_threads(2, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    // A call that waits for its result never comes back before it; a busy machine hides that one
    // does not, but not every time.
    bool before_result = false;
    for (int step = 0; step < 20; ++step) {
      std::vector<float> a(10);
      const Handle handle = all_reduce_of(comm, a, {0, step}, Combine::mean);
      before_result = before_result || !handle.ready();
      handle.wait();
      EXPECT_GE(Clock::now(), handle.ended().value());
      // Both ranks must end after the same step.
      std::int32_t any = before_result;
      comm.all_reduce({1, step}, {&any, 1, DType::i32}, Combine::min).wait();
      if (any == 1) break;
    }
    EXPECT_TRUE(before_result);
  });
}

TEST(Throttle, WaitingCostsNoProcessorTime) {
  const Watchdog watchdog("throttle cpu");
  auto comms = make_local(2, 20, "throttle{call_ms=500}|local");
  const auto cpu = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = cpu();
  ranks_as_threads(2, [&](Rank rank) {
    std::vector<float> a(10);
    all_reduce_of(*comms[static_cast<std::size_t>(rank)], a, {0, 0}, Combine::mean).wait();
  });
  EXPECT_LT(cpu() - before, 0.05);
}

TEST(Throttle, ErrorsComeThrough) {
  const Watchdog watchdog("throttle errors");
  auto comms = make_local(2, 60, "throttle{call_ms=10}|local");
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(2, [&](Rank rank) {
    std::vector<float> a(rank == 0 ? 1000 : 999);
    all_reduce_of(*comms[static_cast<std::size_t>(rank)], a, {0, 0}, Combine::mean).wait();
  });
  EXPECT_LT(seconds_since(start), 1 + late_s());
  for (const auto& error : errors)
    EXPECT_NE(text_of(error).find("3996"), std::string::npos) << text_of(error);
}

TEST(Throttle, DeadlineNamesTheMissing) {
  const Watchdog watchdog("throttle deadline");
  auto comms = make_local(2, 0.3, "throttle{rate=1gbit}|local");
  std::vector<float> a(10);
  TW_EXPECT_THROW(all_reduce_of(*comms[0], a, {5, 1}, Combine::mean).wait(), CommError,
                  "rank 1 (missing");
}

TEST(Throttle, RefusesNonsense) {
  TW_EXPECT_THROW(make_local(1, 1, "throttle{rate=fast}|local"), ConfigError, "fast");
  TW_EXPECT_THROW(make_local(1, 1, "throttle{rat=1gbit}|local"), ConfigError, "rat");
  TW_EXPECT_THROW(make_local(1, 1, "throttle{call_ms=-1}|local"), ConfigError, "call_ms");
}

TEST(Fault, DroppedCallIsTheMissingOne) {
  const Watchdog watchdog("drop");
  auto comms = make_local(3, 0.5, "fault{action=drop,rank=1,call=2}|local");
  const auto errors = errors_of_ranks(3, [&](Rank rank) {
    std::vector<float> a(10);
    for (int step = 0; step < 4; ++step)
      all_reduce_of(*comms[static_cast<std::size_t>(rank)], a, {0, step}, Combine::mean).wait();
  });
  for (const auto& error : errors)
    for (const char* word : {"CommError", "rank 1", "step 2"})
      EXPECT_NE(text_of(error).find(word), std::string::npos) << text_of(error);
}

TEST(Fault, DeathEndsTheOthersAtOnce) {
  const Watchdog watchdog("die");
  auto comms = make_local(3, 60, "fault|local");
  fault_control(*comms[2])->arm({.action = FaultAction::die, .step = 3});
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(3, [&](Rank rank) {
    std::vector<float> a(10);
    for (int step = 0; step < 6; ++step)
      all_reduce_of(*comms[static_cast<std::size_t>(rank)], a, {0, step}, Combine::mean).wait();
  });
  EXPECT_LT(seconds_since(start), 1 + late_s());
  for (const auto& error : errors)
    for (const char* word : {"CommError", "rank 2 died", "step 3"})
      EXPECT_NE(text_of(error).find(word), std::string::npos) << text_of(error);
  EXPECT_EQ(fault_control(*comms[2])->calls(), 4);
}

TEST(Fault, CorruptTurnsOneBitAndDelayIsLate) {
  const Watchdog watchdog("corrupt");
  auto comms = make_local(2, 20, "fault{action=delay,delay_ms=60,rank=1,call=0}|local");
  fault_control(*comms[0])->arm({.action = FaultAction::corrupt, .exchange = 4});
  const auto start = Clock::now();
  ranks_as_threads(2, [&](Rank rank) {
    std::vector<std::int32_t> a(5, 8);
    const Buffer buffer{a.data(), 5, DType::i32};
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    comm.all_reduce({3, 0}, buffer, Combine::sum).wait();
    EXPECT_GE(seconds_since(start), 0.055);
    EXPECT_EQ(a, std::vector<std::int32_t>(5, 16));
    comm.all_reduce({4, 0}, buffer, Combine::sum).wait();
    EXPECT_EQ(a, (std::vector<std::int32_t>{32, 32, 33, 32, 32}));
  });
}

TEST(Fault, KillEndsTheProcess) {
  EXPECT_EXIT(
      {
        auto comms = make_local(1, 20, "fault{action=kill,call=1}|local");
        std::vector<float> a(10);
        for (int step = 0; step < 3; ++step)
          all_reduce_of(*comms[0], a, {0, step}, Combine::mean).wait();
      },
      ::testing::KilledBySignal(SIGKILL), "");
  TW_EXPECT_THROW(make_local(1, 1, "fault{action=explode}|local"), ConfigError, "explode");
}

TEST(MakeComm, NamesWhatItDoesNotKnow) {
  TW_EXPECT_THROW(make_comm("lokal", {}), ConfigError, "local");
  TW_EXPECT_THROW(make_comm("recrod|none", {}), ConfigError, "record");
  const auto comm = make_comm("record|throttle{rate=1gbit}|none", {});
  EXPECT_EQ(comm->caps().name, "none");
  EXPECT_NE(call_log(*comm), nullptr);
}

}  // namespace
}  // namespace thinwire::test
