// SPDX-License-Identifier: Apache-2.0
// Internal to comm: a communicator that passes everything on. The decorators override `around`,
// through which every call goes.
#pragma once
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/signature.h"
#include "thinwire/comm/traffic.h"

namespace thinwire {

/// One call on its way to the transport.
struct PassingCall {
  Signature signature;
  Buffer own;  ///< what this rank contributes; empty for recv and for the others of a broadcast
  Traffic traffic;  ///< what the call moves over this rank's link
};

class Decorator : public Comm {
 public:
  explicit Decorator(std::unique_ptr<Comm> inner) : inner_(std::move(inner)) {}
  Comm& inner() const { return *inner_; }
  Rank rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  CommCaps caps() const override { return inner_->caps(); }
  CommCounters counters() const override { return inner_->counters(); }
  const std::shared_ptr<Membership>& membership() const override { return inner_->membership(); }
  std::unique_ptr<Comm> split(int color, int key) override {
    auto part = inner_->split(color, key);
    return part ? wrap(std::move(part)) : nullptr;
  }
  void barrier(const std::string& name) override { inner_->barrier(name); }
  Handle all_reduce(MessageId id, Buffer data, Combine op) override;
  Handle reduce_scatter(MessageId id, Buffer out, Buffer in, Combine op) override;
  Handle all_gather(MessageId id, Buffer out, Buffer in) override;
  Handle all_to_all(MessageId id, Buffer out, Buffer in, std::span<const std::int64_t> out_counts,
                    std::span<const std::int64_t> in_counts) override;
  Handle broadcast(MessageId id, Buffer data, Rank root) override;
  Handle send(MessageId id, Buffer data, Rank to) override;
  Handle recv(MessageId id, Buffer data, std::optional<Rank> from) override;

 protected:
  /// What `start` refers to is the transport's own call.
  class Start {
   public:
    template <class Fn>
    explicit Start(Fn& fn)
        : object_(&fn), call_([](void* f) { return (*static_cast<Fn*>(f))(); }) {}
    Handle operator()() const { return call_(object_); }

   private:
    void* object_;
    Handle (*call_)(void*);
  };
  virtual Handle around(const PassingCall& call, const Start& start) = 0;
  /// The same decoration around a sub-group.
  virtual std::unique_ptr<Comm> wrap(std::unique_ptr<Comm> part) = 0;

 private:
  template <class Fn>
  Handle pass(const PassingCall& call, Fn fn) {
    return around(call, Start(fn));
  }
  std::unique_ptr<Comm> inner_;
};

/// The nearest decorator of type D in a chain of them, or nothing.
template <class D>
D* find_decorator(Comm& comm) {
  for (Comm* at = &comm; at != nullptr;) {
    if (auto* found = dynamic_cast<D*>(at)) return found;
    auto* decorator = dynamic_cast<Decorator*>(at);
    at = decorator ? &decorator->inner() : nullptr;
  }
  return nullptr;
}

}  // namespace thinwire
