// SPDX-License-Identifier: Apache-2.0
// Ends a test program that hangs, naming the test. A test that the watchdog ends has failed.
#pragma once
#include <string>

namespace thinwire::test {

/// Aborts the process with a message if not destroyed within `seconds` (default: the 30 s of the
/// known failures), of which those do not count by which a busy machine has let it wake too late.
class Watchdog {
 public:
  explicit Watchdog(std::string what = "", double seconds = 30);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  State* state_;
};

/// Seconds by which the latest watchdog has woken too late so far, 0 on an idle machine: what other
/// programs have taken from a wall time. A bound on such a time allows for it.
double late_s();

}  // namespace thinwire::test
