// SPDX-License-Identifier: Apache-2.0
#include "tests/support/watchdog.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace thinwire::test {

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  std::thread thread;
};

Watchdog::Watchdog(std::string what, double seconds) : state_(new State) {
  if (what.empty())
    if (const auto* info = ::testing::UnitTest::GetInstance()->current_test_info())
      what = std::string(info->test_suite_name()) + "." + info->name();
  state_->thread = std::thread([state = state_, what, seconds] {
    std::unique_lock lock(state->mutex);
    if (!state->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                 [&] { return state->stopped; })) {
      std::fprintf(stderr, "watchdog: %s did not end within %.0f s\n", what.c_str(), seconds);
      std::fflush(stderr);
      std::_Exit(124);
    }
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
