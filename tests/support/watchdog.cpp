// SPDX-License-Identifier: Apache-2.0
#include "tests/support/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace thinwire::test {
namespace {

constexpr auto kTick = std::chrono::milliseconds(5);

std::atomic<double> lateness_s{0};

}  // namespace

double late_s() { return lateness_s; }

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  std::thread thread;

  /// False once the time is up.
  bool watch(double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    std::unique_lock lock(mutex);
    while (!stopped) {
      const auto tick = Clock::now() + kTick;
      if (changed.wait_until(lock, tick, [this] { return stopped; })) break;
      const auto now = Clock::now();
      lateness_s = lateness_s + std::chrono::duration<double>(now - tick).count();
      if (std::chrono::duration<double>(now - begin).count() - lateness_s > seconds) return false;
    }
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
