// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/stop.h"

#include <csignal>

namespace thinwire {
namespace {

volatile std::sig_atomic_t g_received = 0;
struct sigaction g_before_int, g_before_term;

}  // namespace

StopSignals::StopSignals() {
  g_received = 0;
  struct sigaction action{};
  action.sa_handler = [](int signal) { g_received = signal; };
  // SA_RESETHAND: the next signal of that kind has its default effect, which ends the process.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &g_before_int);
  sigaction(SIGTERM, &action, &g_before_term);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &g_before_int, nullptr);
  sigaction(SIGTERM, &g_before_term, nullptr);
}

int StopSignals::received() { return g_received; }

}  // namespace thinwire
