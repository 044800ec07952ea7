// SPDX-License-Identifier: Apache-2.0
#include "tests/support/watchdog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace thinwire::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(5);

std::atomic<double> lateness_s{0};
std::atomic<Clock::rep> next_tick{0};  // 0: no watchdog is awake

double since_s(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

double late_s() {
  // What the watchdog is late by at this moment counts too: it may not have run yet.
  const Clock::rep due = next_tick;
  const Clock::time_point tick{Clock::duration(due)};
  return lateness_s + (due == 0 ? 0 : std::max(0.0, since_s(tick)));
}

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  std::thread thread;

  /// False once the time is up.
  bool watch(double seconds) {
    const auto begin = Clock::now();
    std::unique_lock lock(mutex);
    while (!stopped) {
      const auto tick = Clock::now() + kTick;
      next_tick = tick.time_since_epoch().count();
      if (changed.wait_until(lock, tick, [this] { return stopped; })) break;
      lateness_s = lateness_s + since_s(tick);
      if (since_s(begin) - lateness_s > seconds) return false;
    }
    next_tick = 0;
    return true;
  }
};

Watchdog::Watchdog(std::string what, double seconds) : state_(new State) {
  if (what.empty())
    if (const auto* info = ::testing::UnitTest::GetInstance()->current_test_info())
      what = std::string(info->test_suite_name()) + "." + info->name();
  lateness_s = 0;
  state_->thread = std::thread([state = state_, what, seconds] {
    if (state->watch(seconds)) return;
    std::fprintf(stderr, "watchdog: %s did not end within %.0f s\n", what.c_str(), seconds);
    std::fflush(stderr);
    std::_Exit(124);
  });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->changed.notify_one();
  state_->thread.join();
  delete state_;
}

}  // namespace thinwire::test
