// SPDX-License-Identifier: Apache-2.0
// Ranks that run ahead, many calls at once, and what a step costs in memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <new>
#include <thread>

#include "tests/support/expect_throw.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/tcp/congestion.h"
#include "thinwire/core/error.h"
#include "thinwire/core/notice.h"

namespace {
std::atomic<std::int64_t> allocations{0}, allocated_bytes{0};
void* counted(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
}  // namespace
// Not inlined: a compiler that sees only one half of a pair warns that they do not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace thinwire::test {
namespace {

TEST(TcpFlow, NothingIsAllocatedInSteadyState) {
  for (const std::int64_t count : {1000, 12000, 300000}) {
    const Watchdog watchdog("allocations", 120);
    auto comms = make_local(2, 20, "tcp");
    std::barrier<> together(2);
    std::atomic<std::int64_t> before{0}, after{0};
    ranks_as_threads(2, [&](Rank rank) {
      Comm& comm = *comms[static_cast<std::size_t>(rank)];
      std::vector<float> a(static_cast<std::size_t>(count)), b(a);
      const auto step = [&](int i) {
        const Handle first = comm.all_reduce({0, i}, {a.data(), count, DType::f32}, Combine::mean);
        const Handle second = comm.all_reduce({1, i}, {b.data(), count, DType::f32}, Combine::sum);
        first.wait();
        second.wait();
      };
      for (int i = 0; i < 200; ++i) step(i);  // pools grow to what this pattern needs
      together.arrive_and_wait();
      if (rank == 0) before = allocations.load();
      together.arrive_and_wait();
      for (int i = 200; i < 300; ++i) step(i);
      together.arrive_and_wait();
      if (rank == 0) after = allocations.load();
      together.arrive_and_wait();
    });
    EXPECT_EQ(after - before, 0) << count << " elements";
  }
}

/// One rank is late by 300 ms while the others have 50 long and 50 short calls under way.
TEST(TcpFlow, ALateRankLosesNothing) {
  const Watchdog watchdog("late rank");
  constexpr int kCalls = 50;
  auto comms = make_local(3, 20, "tcp");
  ranks_as_threads(3, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    std::vector<std::vector<float>> data;
    std::vector<Handle> handles;
    for (int k = 0; k < 2 * kCalls; ++k)
      data.emplace_back(k % 2 ? 150000 : 9000, static_cast<float>(rank + k));
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int k = 0; k < 2 * kCalls; ++k)
      handles.push_back(comm.all_reduce(
          {k, 0},
          {data[static_cast<std::size_t>(k)].data(),
           static_cast<std::int64_t>(data[static_cast<std::size_t>(k)].size()), DType::f32},
          Combine::sum));
    for (const Handle& handle : handles) handle.wait();
    for (int k = 0; k < 2 * kCalls; ++k)
      for (const float x : data[static_cast<std::size_t>(k)])
        ASSERT_EQ(x, static_cast<float>(3 * k + 3));
  });
}

/// A root that runs ahead of a sleeping rank does not fill that rank's memory.
TEST(TcpFlow, ARootThatRunsAheadWaits) {
  const Watchdog watchdog("runs ahead");
  constexpr std::int64_t kCount = 8000;
  constexpr int kCalls = 2000;  // 64 MB in all
  auto comms = make_local(2, 20, "tcp");
  std::atomic<int> ahead{0};
  std::atomic<std::int64_t> parked{0};
  ranks_as_threads(2, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    std::vector<std::int32_t> data(kCount);
    if (rank == 1) {
      const std::int64_t at_start = allocated_bytes;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      parked = allocated_bytes - at_start;
      EXPECT_LT(ahead.load(), 100);
    }
    for (int k = 0; k < kCalls; ++k) {
      if (rank == 0) std::fill(data.begin(), data.end(), k);
      comm.broadcast({0, k}, {data.data(), kCount, DType::i32}, 0).wait();
      if (rank == 0) ++ahead;
      for (const auto x : data) ASSERT_EQ(x, k);
    }
  });
  EXPECT_LT(parked, 16 << 20);
}

TEST(TcpFlow, MessagesThatRunAheadKeepTheirOrder) {
  const Watchdog watchdog("messages ahead");
  constexpr int kMessages = 300;
  auto comms = make_local(2, 20, "tcp");
  ranks_as_threads(2, [&](Rank rank) {
    Comm& comm = *comms[static_cast<std::size_t>(rank)];
    std::vector<std::vector<std::int32_t>> data;
    std::vector<Handle> handles;
    for (int k = 0; k < kMessages; ++k)  // short ones, empty ones and long ones under one id
      data.emplace_back(k % 3 == 0 ? 15000 : k % 3 == 1 ? 0 : 40000, rank == 0 ? k : -1);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (auto& each : data) {
      const Buffer buffer{each.data(), static_cast<std::int64_t>(each.size()), DType::i32};
      handles.push_back(rank == 0 ? comm.send({1, 1}, buffer, 1) : comm.recv({1, 1}, buffer, 0));
    }
    for (const Handle& handle : handles) handle.wait();
    for (int k = 0; k < kMessages; ++k)
      for (const auto x : data[static_cast<std::size_t>(k)]) ASSERT_EQ(x, k);
    comm.barrier("end");
  });
}

/// The three algorithms give the same bits: the sum in rank order.
TEST(TcpFlow, AlgorithmsAgreeToTheBit) {
  for (int n = 1; n <= 5; ++n)
    for (const std::int64_t count : {0, 1, 1003, 100003}) {
      const Watchdog watchdog("bits");
      std::vector<float> first;
      for (const char* spec :
           {"tcp{algorithm=shard}", "tcp{algorithm=gather}", "tcp{chunk=4096}"}) {
        auto comms = make_local(n, 20, spec);
        std::vector<std::vector<float>> all(static_cast<std::size_t>(n));
        ranks_as_threads(n, [&](Rank rank) {
          auto& data = all[static_cast<std::size_t>(rank)];
          for (std::int64_t i = 0; i < count; ++i)
            data.push_back(1.0f / static_cast<float>(1 + (i * 31 + rank * 17) % 1009));
          comms[static_cast<std::size_t>(rank)]
              ->all_reduce({0, 0}, {data.data(), count, DType::f32}, Combine::mean)
              .wait();
        });
        std::vector<float> want;
        for (std::int64_t i = 0; i < count; ++i) {
          float sum = 0;
          for (Rank r = 0; r < n; ++r) {
            const float x = 1.0f / static_cast<float>(1 + (i * 31 + r * 17) % 1009);
            sum = r == 0 ? x : sum + x;
          }
          want.push_back(sum / static_cast<float>(n));
        }
        for (const auto& data : all) ASSERT_EQ(data, want) << spec << ", " << n << ", " << count;
      }
    }
}

/// What rank 0 of n sends for one all_reduce where the transport chooses.
Bytes bytes_sent(int n, Bytes payload) {
  auto comms = make_local(n, 20, "tcp");
  ranks_as_threads(n, [&](Rank rank) {
    std::vector<float> data(static_cast<std::size_t>(payload / 4), 1.0F);
    comms[static_cast<std::size_t>(rank)]
        ->all_reduce({0, 0}, {data.data(), payload / 4, DType::f32}, Combine::sum)
        .wait();
  });
  return comms[0]->counters().payload_bytes;
}

TEST(TcpFlow, OneRoundIsTakenWhereItCostsFewBytes) {
  const Watchdog watchdog("choice");
  constexpr Bytes kib = 1024;
  EXPECT_EQ(bytes_sent(2, 32 * kib), 32 * kib);
  EXPECT_EQ(bytes_sent(4, 8 * kib), 3 * 8 * kib);    // gather
  EXPECT_EQ(bytes_sent(4, 16 * kib), 2 * 12 * kib);  // shard: 2 P (n - 1) / n
  EXPECT_EQ(bytes_sent(8, 32 * kib), 2 * 28 * kib);  // shard
}

TEST(TcpFlow, CongestionControlIsWhatWasAskedFor) {
  const Watchdog watchdog("congestion");
  auto asked = make_local(2, 20, "record|tcp{congestion=reno}");  // every kernel allows it
  EXPECT_EQ(congestion_control(*asked[0]), "reno");
  EXPECT_EQ(congestion_control(*asked[1]), "reno");
  EXPECT_NE(congestion_control(*make_local(2, 20, "tcp")[0]), "");
  // Between neighbours bbr gives way; on a long link, or where the system has another, it stays.
  EXPECT_NE(congestion_control(*make_local(2, 20, "tcp")[0]), "bbr");
  EXPECT_EQ(congestion_control(*make_local(2, 20, "tcp{congestion=reno}")[1]), "reno");
  EXPECT_EQ(tcp::congestion_for("bbr", 1e-4), "cubic");
  EXPECT_EQ(tcp::congestion_for("bbr", 20e-3), "");
  EXPECT_EQ(tcp::congestion_for("dctcp", 1e-4), "");
  EXPECT_EQ(congestion_control(*make_local(2, 20, "local")[0]), "");
  TW_EXPECT_THROW(make_comm("tcp{congestion=nagle}", {.size = 2, .address = "127.0.0.1:1"}),
                  ConfigError, "tcp: congestion must be one that this kernel allows (");
}

TEST(TcpFlow, RankZeroSaysWhichCongestionControlIsUsed) {
  const Watchdog watchdog("notice");
  std::mutex mutex;
  std::vector<std::string> heard;
  const NoticeFn before = on_notice([&](const std::string& text) {
    std::lock_guard lock(mutex);
    heard.push_back(text);
  });
  const std::string path = "file:" + (std::filesystem::temp_directory_path() /
                                      ("thinwire_notice_" + std::to_string(::getpid())))
                                         .string();
  ranks_as_threads(2, [&](Rank rank) {
    make_comm("tcp{congestion=reno}",
              {.rank = rank, .size = 2, .address = path, .timeout_s = 20, .interface = "lo"});
  });
  on_notice(before);
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "tcp: congestion control reno"), 1);
}

}  // namespace
}  // namespace thinwire::test
