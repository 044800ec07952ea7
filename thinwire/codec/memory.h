// SPDX-License-Identifier: Apache-2.0
// What stays behind on a rank between two firings of an exchange (residuals, momentum, estimates).
#pragma once
#include "thinwire/codec/codec.h"

namespace thinwire {

constexpr Rank kCombined = -1;

/// What has left this rank in one round of an exchange; lives during the call.
class Sent {
 public:
  /// A payload of `count` values from `begin` on.
  struct Part {
    const Codec* codec;
    const Payload* payload;
    std::int64_t begin, count;
  };
  /// No parts: nothing has been sent, the value is zero.
  explicit Sent(std::vector<Part> parts = {}) : parts_(std::move(parts)) {}
  bool nothing() const { return parts_.empty(); }
  /// What of x stays behind. `out` may be x itself, and then a codec touches no more than it must.
  void residual(const Tensor& x, Tensor& out) const;
  /// x = 0 where a value has been sent.
  void forget(Tensor& x) const;

 private:
  std::vector<Part> parts_;
};

/// Values are flat, dense and real, as those of a codec. `x` starts as a handle on the caller's
/// memory, which a memory does not write to.
class Memory {
 public:
  virtual ~Memory() = default;
  /// What is to be sent, out of what has been produced: x may be bound to memory of its own.
  virtual void before(Tensor& x, const Slot& slot) = 0;
  /// Where before() only adds x to a tensor of its own and sent() leaves the rest there: that
  /// tensor. Then who asks does both in its place (Codec::encode_rest). Default: null, for one that
  /// does more in this step.
  virtual Tensor* lend(const Tensor& x, const Slot& slot);
  /// x: as this memory left it. Called once a round.
  virtual void sent(const Tensor& x, const Sent& sent, const Slot& slot) = 0;
  /// from kCombined: the reduced value. Default: nothing.
  virtual void received(Tensor& value, Rank from, const Slot& slot);
  /// The step does not count: undoes before() and sent() of what had been produced (`x`, as it was
  /// then), to rounding. Default: UnsupportedError.
  virtual void take_back(const Tensor& x, const Tensor& own, const Slot& slot);
  /// Whether sent() leaves in x what has not been sent. One that does not stands before one that
  /// does, and in sent() leaves as it is what before() has bound x to.
  virtual bool keeps_rest() const { return true; }
  virtual void visit_state(StateVisitor& visitor) = 0;
};
using MemoryFactory =
    std::function<std::unique_ptr<Memory>(const Spec&, std::span<const TensorDesc>)>;
using MemoryRegistry = Registry<MemoryFactory>;
const MemoryRegistry& memories();

/// ConfigError for a chain of memories and a codec with a name or an option that is none.
void check_form(const std::string& chain);

}  // namespace thinwire
