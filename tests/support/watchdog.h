// SPDX-License-Identifier: Apache-2.0
// Ends a test program that hangs, naming the test. A test that the watchdog ends has failed.
#pragma once
#include <string>

namespace thinwire::test {

/// Aborts the process with a message if not destroyed within `seconds` (default: the 30 s of the
/// known failures).
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

}  // namespace thinwire::test
