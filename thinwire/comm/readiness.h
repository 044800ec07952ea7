// SPDX-License-Identifier: Apache-2.0
// Readiness: which buckets are ready on every rank, agreed on while each rank produces them in an
// order of its own. Method, bytes and what it cannot do: docs/methods/agreed_order.md.
//
//   Readiness readiness(comm);
//   readiness.mark("bucket 3");                                   // this rank has produced it
//   for (const auto& name : readiness.cycle(step)) start(name);   // the same list on every rank
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/comm/comm.h"

namespace thinwire {

/// How ranks agree; equal on all of them.
enum class ReadinessBy : std::uint8_t {
  bit_vector,  ///< a bit a name and one all_reduce with bit_and; new names through rank 0
  coordinator  ///< every name through rank 0 in every cycle: the control of experiments
};

struct ReadinessOptions {
  ReadinessBy by = ReadinessBy::bit_vector;
  int capacity = 1024;    ///< names that have a bit; the one used longest ago makes room
  Seconds timeout_s = 0;  ///< most that a name may be ready here and not everywhere; 0: that of the
                          ///< communicator's group
};

/// Since the start; equal on all ranks.
struct ReadinessCounts {
  std::int64_t cycles = 0;
  std::int64_t coordinated = 0;  ///< of these, with messages through rank 0
  std::int64_t erased = 0;       ///< names that lost their bit as somebody's kind had changed
  std::int64_t evicted = 0;      ///< names that lost it to others; then the capacity is too small
  std::int64_t bits = 0;         ///< of the last vector
};

/// One rank's side. One thread uses it, and its calls are in order with the other calls of the
/// communicator. An error of finish() or cycle() ends it.
class Readiness {
 public:
  /// Collective. `comm` outlives it. ConfigError where ranks have different options, or the
  /// capacity is below 1.
  explicit Readiness(Comm& comm, ReadinessOptions options = {});
  ~Readiness();
  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;

  /// This rank has produced `name`, until a cycle starts it. `kind` must be equal on all ranks
  /// (type and size, say) and may change from one time to the next; `exchange` is for reports.
  /// ConfigError if it is marked already.
  void mark(std::string_view name, std::string_view kind = {}, std::int32_t exchange = -1);
  bool marked(std::string_view name) const;
  int waiting() const;  ///< how many are marked and not started
  /// The coming cycle is the last one on all ranks: it starts what is ready everywhere.
  void shut_down();
  bool has_ended() const;  ///< the last cycle has been

  /// One cycle. Collective: what is ready on every rank and has not been started, in the order in
  /// which all are to start it. Valid until the next cycle. CommError on all ranks, naming
  /// exchange, step, bucket and ranks, where something has been ready too long on some ranks only,
  /// and if a rank is gone; ConfigError where kinds differ.
  const std::vector<std::string>& cycle(std::int64_t step) {
    start(step);
    return finish();
  }
  /// The same in two: start() returns at once, what is marked afterwards belongs to the next cycle;
  /// finish() does not wait long once all ranks have started theirs (arrived()).
  void start(std::int64_t step);
  bool started() const;
  bool arrived() const;
  const std::vector<std::string>& finish();

  /// Of all names started so far, in order: equal on all ranks.
  std::uint64_t digest() const;
  const ReadinessCounts& counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace thinwire
