// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/handle.h"

#include <gtest/gtest.h>

#include <ctime>
#include <thread>

#include "tests/support/comm_faults.h"
#include "tests/support/expect_throw.h"
#include "tests/support/watchdog.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class TestPending : public Pending {
 public:
  std::atomic<int> expired_calls{0};

 protected:
  std::exception_ptr expired(Seconds waited_s) override {
    ++expired_calls;
    return std::make_exception_ptr(CommError("rank 1 missing after " + std::to_string(waited_s)));
  }
};

TEST(Handle, DefaultMadeIsComplete) {
  const Handle handle;
  EXPECT_TRUE(handle.ready());
  handle.wait();
}

TEST(Handle, WakesWhenCompleteAndAnswersAgain) {
  test::Watchdog watchdog;
  const auto pending = std::make_shared<TestPending>();
  pending->restart(after(20));
  const Handle handle(pending);
  EXPECT_FALSE(handle.ready());
  std::thread worker([&] { pending->complete(); });
  handle.wait();
  handle.wait();
  EXPECT_TRUE(handle.ready());
  pending->fail(std::make_exception_ptr(CommError("too late")));  // the first one wins
  handle.wait();
  worker.join();
}

TEST(Handle, ThrowsTheSameErrorInEveryThread) {
  test::Watchdog watchdog;
  const auto pending = std::make_shared<TestPending>();
  pending->restart(after(20));
  const Handle handle(pending);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] { TW_EXPECT_THROW(handle.wait(), CommError, "rank 1 died"); });
  pending->fail(std::make_exception_ptr(CommError("rank 1 died")));
  for (auto& thread : threads) thread.join();
  pending->complete();
  TW_EXPECT_THROW(handle.wait(), CommError, "rank 1 died");
  pending->restart(after(20));
  pending->complete();
  handle.wait();  // fresh again
}

TEST(Handle, AsksWhoIsMissingAtTheDeadline) {
  test::Watchdog watchdog;
  const auto pending = std::make_shared<TestPending>();
  const auto start = Clock::now();
  pending->restart(after(0.25));
  const Handle handle(pending);
  TW_EXPECT_THROW(handle.wait(), CommError, "rank 1 missing after 0.2");
  EXPECT_LT(test::seconds_since(start), 1.0 + test::late_s());
  EXPECT_EQ(pending->expired_calls, 1);
  TW_EXPECT_THROW(handle.wait(), CommError, "rank 1 missing");
  EXPECT_EQ(pending->expired_calls, 1);
  pending->restart(after(20));
  TW_EXPECT_THROW(handle.wait_until(after(0.01)), CommError, "rank 1 missing after 0.0");
}

TEST(Handle, AnInterruptEndsTheWaitAndNotTheCall) {
  test::Watchdog watchdog;
  struct Interrupted {};
  const auto before = on_interrupt_check([] { throw Interrupted{}; });
  const auto pending = std::make_shared<TestPending>();
  pending->restart(after(20));
  const Handle handle(pending);
  const auto start = Clock::now();
  EXPECT_THROW(handle.wait(), Interrupted);
  EXPECT_LT(test::seconds_since(start), 1.0 + test::late_s());
  on_interrupt_check(before);
  pending->complete();
  handle.wait();
}

TEST(Handle, WaitingCostsNoCore) {
  test::Watchdog watchdog;
  const auto pending = std::make_shared<TestPending>();
  pending->restart(after(0.5));
  const auto cpu = std::clock();
  EXPECT_THROW(Handle(pending).wait(), CommError);
  EXPECT_LT(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, 0.05);
}

}  // namespace
}  // namespace thinwire
