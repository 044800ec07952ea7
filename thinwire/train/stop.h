// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM as a wish: the step is finished, a checkpoint saved, then the process leaves
// with 128 + n. The second signal ends the process at once.
#pragma once

namespace thinwire {

/// Installs the handlers for SIGINT and SIGTERM; the ones before come back with the destructor. One
/// at a time in a process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// The signal that has come, 0 if none. Any thread.
  static int received();
};

}  // namespace thinwire
