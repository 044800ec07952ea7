// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/fault.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <condition_variable>

#include "thinwire/comm/decorator.h"
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire {
namespace {

constexpr std::array<std::string_view, 5> kActions{"drop", "delay", "corrupt", "die", "kill"};

/// A call that was left out: only the deadline or the end of the group ends it.
class DroppedPending final : public Pending {
 public:
  DroppedPending(std::shared_ptr<Membership> group, const PassingCall& call)
      : group_(std::move(group)), what_(describe(call.signature.kind, call.signature.id)) {
    restart(after(group_->timeout_s()));
  }
  /// The token's callback needs the object's own pointer, so this is apart from the constructor.
  static std::shared_ptr<DroppedPending> make(const std::shared_ptr<Membership>& group,
                                              const PassingCall& call) {
    const auto made = std::make_shared<DroppedPending>(group, call);
    made->token_ = group->on_fault([weak = std::weak_ptr(made)](const Fault& fault) {
      if (const auto self = weak.lock()) self->fail(error_of(fault, self->what_));
    });
    return made;
  }

 protected:
  std::exception_ptr expired(Seconds waited_s) override {
    const Fault fault{group_->rank(),
                      fmt::format("rank {} left out {} (fault decorator; {:.1f} s ago)",
                                  group_->rank(), what_, waited_s)};
    return error_of(group_->fail(fault), what_);
  }

 private:
  std::shared_ptr<Membership> group_;
  const std::string what_;
  std::shared_ptr<void> token_;
};

/// Sleeps, but not past the end of the group.
void be_late(Membership& group, Seconds seconds) {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  const auto token = group.on_fault([&](const Fault&) {
    std::lock_guard lock(mutex);
    over = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait_until(lock, after(seconds), [&] { return over; });
  lock.unlock();  // dropping the token waits for a callback that may want the lock
}

void turn_bit(const Buffer& own) {
  if (own.count == 0 || own.data == nullptr) return;
  auto* bytes = static_cast<unsigned char*>(own.data);
  bytes[own.count / 2 * dtype_bytes(own.dtype)] ^= 1u;
}

}  // namespace

std::string_view to_string(FaultAction action) {
  return kActions[static_cast<std::size_t>(action)];
}

void FaultControl::arm(const FaultPlan& plan) {
  std::lock_guard lock(mutex_);
  plans_.push_back(plan);
}

std::int64_t FaultControl::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<FaultPlan> FaultControl::next(Rank rank, const MessageId& id) {
  std::lock_guard lock(mutex_);
  const std::int64_t call = calls_++;
  std::vector<FaultPlan> due;
  for (FaultPlan& plan : plans_) {
    if (plan.times == 0 || (plan.rank >= 0 && plan.rank != rank) ||
        (plan.call && *plan.call != call) || (plan.exchange && *plan.exchange != id.exchange) ||
        (plan.step && *plan.step != id.step))
      continue;
    due.push_back(plan);
    if (plan.times > 0) --plan.times;
  }
  return due;
}

class FaultComm final : public Decorator {
 public:
  FaultComm(std::unique_ptr<Comm> inner, std::shared_ptr<FaultControl> control)
      : Decorator(std::move(inner)), control_(std::move(control)) {}
  const std::shared_ptr<FaultControl>& control() const { return control_; }

 protected:
  Handle around(const PassingCall& call, const Start& start) override {
    const Rank world = membership()->rank();
    for (const FaultPlan& plan : control_->next(world, call.signature.id)) {
      switch (plan.action) {
        case FaultAction::drop:
          return Handle(DroppedPending::make(membership(), call));
        case FaultAction::delay:
          be_late(*membership(), plan.delay_s);
          break;
        case FaultAction::corrupt:
          turn_bit(call.own);
          break;
        case FaultAction::die: {
          const std::string what = describe(call.signature.kind, call.signature.id);
          const Fault fault{world,
                            fmt::format("rank {} died in {} (fault decorator)", world, what)};
          std::rethrow_exception(error_of(membership()->fail(fault), what));
        }
        case FaultAction::kill:
          ::raise(SIGKILL);
          break;
      }
    }
    return start();
  }
  std::unique_ptr<Comm> wrap(std::unique_ptr<Comm> part) override {
    return std::make_unique<FaultComm>(std::move(part), control_);
  }

 private:
  std::shared_ptr<FaultControl> control_;
};

std::unique_ptr<Comm> inject_faults(std::unique_ptr<Comm> inner,
                                    std::shared_ptr<FaultControl> control) {
  return std::make_unique<FaultComm>(std::move(inner), std::move(control));
}

std::shared_ptr<FaultControl> fault_control(Comm& comm) {
  const auto* found = find_decorator<FaultComm>(comm);
  return found ? found->control() : nullptr;
}

namespace {

FaultPlan plan_from(SpecReader& reader, const std::string& action) {
  const auto found = std::find(kActions.begin(), kActions.end(), action);
  if (found == kActions.end()) {
    const std::vector<std::string> names(kActions.begin(), kActions.end());
    throw ConfigError(unknown_name("fault action", action, names));
  }
  FaultPlan plan{.action = static_cast<FaultAction>(found - kActions.begin())};
  plan.rank = static_cast<Rank>(reader.integer("rank", -1));
  const auto optional = [&](const char* key) -> std::optional<std::int64_t> {
    const std::int64_t value = reader.integer(key, -1);
    return value < 0 ? std::nullopt : std::optional(value);
  };
  plan.call = optional("call");
  if (const auto exchange = optional("exchange"))
    plan.exchange = static_cast<std::int32_t>(*exchange);
  plan.step = optional("step");
  plan.delay_s = reader.number("delay_ms", 0) / 1000;
  plan.times = static_cast<int>(reader.integer("times", 1));
  return plan;
}

}  // namespace

void register_fault(Registry<DecoratorFactory>& registry) {
  registry.add(
      "fault",
      [](const Spec& spec, std::unique_ptr<Comm> inner) {
        SpecReader reader(spec);
        const auto control = std::make_shared<FaultControl>();
        const std::string action = reader.text("action", "");
        if (!action.empty()) control->arm(plan_from(reader, action));
        reader.finish();
        return inject_faults(std::move(inner), control);
      },
      "one rank misbehaves; action=drop|delay|corrupt|die|kill, rank=-1 (all), call, exchange, "
      "step (any), "
      "delay_ms=0, times=1");
}

}  // namespace thinwire
