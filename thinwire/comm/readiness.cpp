// SPDX-License-Identifier: Apache-2.0
// What a cycle does after its first message depends on what came out of it alone, so every rank
// takes the same turns.
#include "thinwire/comm/readiness.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "thinwire/comm/membership.h"
#include "thinwire/comm/message_ids.h"
#include "thinwire/comm/ready_marks.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"

namespace thinwire {

struct Readiness::Impl {
  Impl(Comm& c, ReadinessOptions o)
      : comm(c), options(o), cache(std::max(o.capacity, 1)), coordinator(c) {
    agree_on_options();
    if (options.timeout_s <= 0) options.timeout_s = comm.membership()->timeout_s();
  }

  bool with_bits() const { return options.by == ReadinessBy::bit_vector; }

  /// A wrong option is refused on all ranks together, before anybody waits for a name.
  void agree_on_options() const {
    const auto n = static_cast<std::size_t>(comm.size());
    std::int64_t mine[2] = {options.capacity, static_cast<std::int64_t>(options.by)};
    std::vector<std::int64_t> all(2 * n);
    comm.all_gather({kReadiness, 0, 0}, {all.data(), static_cast<std::int64_t>(2 * n), DType::i64},
                    {mine, 2, DType::i64})
        .wait();
    const auto in_words = [&](std::size_t rank) {
      const bool bits = all[2 * rank + 1] == static_cast<std::int64_t>(ReadinessBy::bit_vector);
      return fmt::format("rank {} has {} with capacity {}", rank,
                         bits ? "bit_vector" : "coordinator", all[2 * rank]);
    };
    for (std::size_t r = 0; r < n; ++r) {
      if (all[2 * r] < 1)
        throw ConfigError(fmt::format("readiness: capacity must be at least 1, got {} on rank {}",
                                      all[2 * r], r));
      if (all[2 * r] != all[0] || all[2 * r + 1] != all[1])
        throw ConfigError(fmt::format("readiness: options differ between ranks: {}, {}",
                                      in_words(0), in_words(r)));
    }
  }

  MessageId id() const {
    return {kReadiness, step,
            static_cast<std::int32_t>(counts.cycles % std::numeric_limits<std::int32_t>::max())};
  }

  /// Errors of the transport know ranks and calls; a person knows what he waits for.
  template <class Fn>
  void with_words(const Fn& fn) {
    try {
      fn();
    } catch (const CommError& error) {
      over = fmt::format("readiness, cycle {} of step {}{}: {}", counts.cycles, step,
                         marks.in_words(), error.what());
      throw CommError(over);
    } catch (const std::exception& error) {
      over = error.what();
      throw;
    }
  }

  void refuse_if_over() const {
    if (!over.empty()) throw CommError(over);
    if (ended) throw ConfigError("readiness: it was shut down");
  }

  void start(std::int64_t at_step) {
    refuse_if_over();
    if (under_way) throw ConfigError("readiness: the cycle before has not been finished");
    step = at_step;
    ++counts.cycles;
    const std::int64_t stalled =
        marks.any_waits_for(options.timeout_s) ? ReadyBits::kStalled : std::int64_t{0};
    with_words([&] {
      with_bits() ? start_bits(ending | stalled)
                  : coordinator.start(id(), ending | stalled, marks.take_new(cache));
    });
    under_way = true;
  }

  void start_bits(std::int64_t flags) {
    counts.bits = ReadyBits::kFlagBits + cache.size();
    ready.reset(cache.size());
    changed.reset(cache.size());
    for (const auto& [name, mark] : marks) {
      const auto number = cache.find(name);
      if (!number) {
        if (!mark.sent) flags |= ReadyBits::kNew;
      } else if (cache.at(*number).kind == mark.ready.kind) {
        ready.set(*number);
      } else {
        changed.set(*number);
        flags |= ReadyBits::kChanged;
      }
    }
    ready.set_flags(flags);
    handle = comm.all_reduce(id(), ready.buffer(), Combine::bit_and);
  }

  void finish() {
    refuse_if_over();
    if (!under_way) throw ConfigError("readiness: no cycle has been started");
    under_way = false;
    list.clear();
    with_words([&] {
      const std::int64_t flags = with_bits() ? finish_bits() : coordinate();
      if (flags & ReadyBits::kStalled) report_stall();
      ended = (flags & ReadyBits::kShutDown) != 0;
    });
  }

  std::int64_t finish_bits() {
    handle.wait();
    const std::int64_t flags = ready.flags();
    const int numbers = static_cast<int>(counts.bits - ReadyBits::kFlagBits);
    for (int number = 0; number < numbers; ++number) {
      if (!ready.has(number)) continue;
      begin(cache.at(number).name);
      cache.use(number);
    }
    if (flags & ReadyBits::kChanged) erase_changed(numbers);
    // What has just lost its number goes through rank 0 in this same cycle.
    if (flags & (ReadyBits::kNew | ReadyBits::kChanged)) {
      coordinator.start(id(), 0, marks.take_new(cache));
      coordinate();
    }
    return flags;
  }

  void erase_changed(int numbers) {
    comm.all_reduce(id(), changed.buffer(), Combine::bit_or).wait();
    for (int number = 0; number < numbers; ++number) {
      if (!changed.has(number)) continue;
      cache.erase(number);
      ++counts.erased;
    }
  }

  /// Rank 0's answer to what this rank has sent it.
  std::int64_t coordinate() {
    ++counts.coordinated;
    const ReadyCoordinator::Answer answer = coordinator.finish();
    for (const ReadyName& each : answer.complete) {
      begin(each.name);
      if (with_bits() && cache.insert(each)) ++counts.evicted;
    }
    return answer.flags;
  }

  /// One more for the list: this rank has produced it, or something is very wrong.
  void begin(const std::string& name) {
    TW_ASSERT(marks.erase(name), ==, true);
    digest = hash_bytes(name.data(), static_cast<std::int64_t>(name.size()), digest + 1);
    list.push_back(name);
  }

  void report_stall() {
    const auto stall = coordinator.stalled(id(), marks.waiting(), options.timeout_s);
    if (!stall) return;
    // What others have under way for this group ends too.
    comm.membership()->fail({stall->rank, stall->text});
    throw CommError(stall->text);
  }

  Comm& comm;
  ReadinessOptions options;
  ReadyCache cache;
  ReadyCoordinator coordinator;
  ReadyMarks marks;
  ReadyBits ready, changed;
  Handle handle;
  std::int64_t ending = 0;  ///< kShutDown once this rank wants it
  bool under_way = false, ended = false;
  std::string over;  ///< why there is no further cycle
  std::vector<std::string> list;
  std::int64_t step = 0;
  std::uint64_t digest = 0;
  ReadinessCounts counts;
};

Readiness::Readiness(Comm& comm, ReadinessOptions options)
    : impl_(std::make_unique<Impl>(comm, options)) {}
Readiness::~Readiness() = default;

void Readiness::mark(std::string_view name, std::string_view kind, std::int32_t exchange) {
  impl_->refuse_if_over();
  if (!impl_->marks.add({std::string(name), std::string(kind), exchange}))
    throw ConfigError(fmt::format("readiness: '{}' is marked already and was not started", name));
}

bool Readiness::marked(std::string_view name) const {
  return impl_->marks.contains(std::string(name));
}
int Readiness::waiting() const { return impl_->marks.size(); }
void Readiness::shut_down() { impl_->ending = ReadyBits::kShutDown; }
bool Readiness::has_ended() const { return impl_->ended; }
void Readiness::start(std::int64_t step) { impl_->start(step); }
bool Readiness::started() const { return impl_->under_way; }
bool Readiness::arrived() const {
  if (!impl_->under_way) return false;
  return impl_->with_bits() ? impl_->handle.ready() : impl_->coordinator.arrived();
}
const std::vector<std::string>& Readiness::finish() {
  impl_->finish();
  return impl_->list;
}
std::uint64_t Readiness::digest() const { return impl_->digest; }
const ReadinessCounts& Readiness::counts() const { return impl_->counts; }

}  // namespace thinwire
