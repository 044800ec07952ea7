// SPDX-License-Identifier: Apache-2.0
// order = agreed: a bucket starts when every rank has it ready, in an order that all ranks agree on
// while the backward runs. A cycle of the agreement starts with a bucket that is ready and, once
// all ranks have started theirs, is ended at the next contribution, or at the end of the backward,
// which waits. What it says starts before the next cycle does, so cycles and exchanges have one
// order on all ranks and share a communicator.
#include <algorithm>

#include "thinwire/core/rng.h"
#include "thinwire/train/gradient_sync_impl.h"

namespace thinwire {

void GradientSync::Impl::set_up_order() {
  bucket_names.clear();
  bucket_named.clear();
  agreeing = false;
  if (options.order != "agreed" || !exchanges_gradients) return;
  const int count = buckets->count();
  readiness = std::make_unique<Readiness>(exchanger->group(0),
                                          ReadinessOptions{.capacity = std::max(1, count)});
  for (int bucket = 0; bucket < count; ++bucket) {
    bucket_names.push_back(
        exchanger->describe_exchange(exchange_of[static_cast<std::size_t>(bucket)]));
    bucket_named[bucket_names.back()] = bucket;
  }
  said_ready.assign(static_cast<std::size_t>(count), false);
}

/// How many contributions a bucket waits for. Where branches come and go, a parameter that took no
/// part may do so any time: its bucket then waits for the end of the backward and no other bucket
/// waits for it, so that what a sum is does not depend on who was faster.
int GradientSync::Impl::awaited(const Trained& one) const {
  return readiness ? std::max(1, one.expected) : one.expected;
}

/// Marks what is ready: those buckets whose contributions are all there, or all of them.
void GradientSync::Impl::say_ready(bool all) {
  for (std::size_t b = 0; b < bucket_names.size(); ++b) {
    if (said_ready[b] || (!all && missing[b] > 0)) continue;
    said_ready[b] = true;
    readiness->mark(bucket_names[b], {}, exchange_of[b]);
  }
}

void GradientSync::Impl::start_cycle() {
  agreeing = true;
  readiness->start(step);
}

void GradientSync::Impl::start_agreed() {
  for (const std::string& name : readiness->finish()) start_bucket(bucket_named.at(name));
}

/// Inside a backward: goes on with the agreement as far as it goes without waiting.
void GradientSync::Impl::agree_on_ready() {
  say_ready(false);
  if (readiness->arrived()) start_agreed();
  if (readiness->started() || readiness->waiting() == 0) return;
  start_cycle();
  if (readiness->arrived()) start_agreed();
}

/// At its end everything is ready here. The last cycle is the same on all ranks: the one after
/// which all buckets have started.
void GradientSync::Impl::agree_on_rest() {
  say_ready(true);
  while (next_bucket < buckets->count()) {
    if (!readiness->started()) start_cycle();
    start_agreed();
  }
  said_ready.assign(said_ready.size(), false);
  const std::uint64_t order = readiness->digest();
  sequence = hash_bytes(&order, sizeof order, sequence);
}

}  // namespace thinwire
