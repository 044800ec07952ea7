// SPDX-License-Identifier: Apache-2.0
// Decorator `throttle{rate=100mbit, latency_ms=0, call_ms=0}`: a virtual link in front of every
// rank. Real results are there when the transport has them; this one shows them when the link
// would:
//   start   = max(the transport's end, the link's end of the call before)
//   end     = start + bytes / rate + call_ms        (calls share the link, one after the other)
//   visible = end + latency                          (latency does not occupy the link)
// bytes is the larger of what the rank sends and receives. One sleeping thread a rank keeps the
// times, so the caller computes meanwhile. Virtual time on top of the transport's own: for `local`
// it is all.
#include <condition_variable>
#include <thread>

#include "thinwire/comm/decorator.h"
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire {
namespace {

using Duration = Clock::duration;
constexpr auto kPoll =
    std::chrono::microseconds(1000);  // how late the end of a real call may be seen

Duration duration(Seconds seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

struct LinkOptions {
  double bytes_per_s = 0;  ///< 0: no limit
  Seconds latency_s = 0, call_s = 0;
};

class ThrottledPending final : public Pending {
 public:
  explicit ThrottledPending(std::shared_ptr<Membership> group) : group_(std::move(group)) {}
  void begin(const Signature& signature, Handle inner, Duration cost) {
    std::lock_guard lock(inner_mutex_);
    signature_ = signature;
    inner_ = std::move(inner);
    cost_ = cost;
    visible_.reset();
    restart(after(group_->timeout_s()));
  }
  /// The link's thread. True when the result has been shown.
  bool advance(Deadline now, Deadline& link_free, Duration latency) {
    std::lock_guard lock(inner_mutex_);
    if (!visible_) {
      if (!inner_.ready()) return false;
      link_free = std::max(inner_.ended().value_or(now), link_free) + cost_;
      visible_ = link_free + latency;
    }
    const auto error = error_of_inner();
    if (!error && *visible_ > now) return false;
    inner_ = Handle();
    fail(error);
    return true;
  }
  std::optional<Deadline> visible() const { return visible_; }

 protected:
  std::exception_ptr expired(Seconds waited_s) override;

 private:
  std::exception_ptr error_of_inner() const {
    try {
      inner_.wait();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }
  std::shared_ptr<Membership> group_;
  std::mutex inner_mutex_;
  Signature signature_;
  Handle inner_;
  Duration cost_{};
  std::optional<Deadline> visible_;
};

std::exception_ptr ThrottledPending::expired(Seconds waited_s) {
  Handle inner;
  {
    std::lock_guard lock(inner_mutex_);
    inner = inner_;
  }
  try {
    inner.wait_until(Clock::now());
  } catch (...) {
    return std::current_exception();
  }
  const Fault fault{group_->rank(), describe(signature_) + ": the virtual link of rank " +
                                        std::to_string(group_->rank()) + " needs longer than " +
                                        format_seconds(waited_s)};
  return error_of(group_->fail(fault), describe(signature_.kind, signature_.id));
}

/// One a rank, shared by its communicator and the sub-groups.
class VirtualLink {
 public:
  explicit VirtualLink(const LinkOptions& options) : options_(options) {
    thread_ = std::thread([this] { run(); });
  }
  ~VirtualLink() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();  // it sleeps on `changed_` only
    for (const auto& call : calls_)
      call->fail(std::make_exception_ptr(CommError("throttle: the communicator was dropped")));
  }
  Handle submit(const PassingCall& call, Handle inner, const std::shared_ptr<Membership>& group) {
    Seconds cost = options_.call_s;
    if (options_.bytes_per_s > 0)
      cost += static_cast<double>(call.traffic.most()) / options_.bytes_per_s;
    std::shared_ptr<ThrottledPending> pending;
    {
      std::lock_guard lock(mutex_);
      for (const auto& each : pool_)
        if (each.use_count() == 1) pending = each;
      if (!pending) pending = pool_.emplace_back(std::make_shared<ThrottledPending>(group));
      pending->begin(call.signature, std::move(inner), duration(cost));
      calls_.push_back(pending);
    }
    changed_.notify_all();
    return Handle(std::move(pending));
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      const auto now = Clock::now();
      std::erase_if(calls_, [&](const auto& call) {
        return call->advance(now, free_, duration(options_.latency_s));
      });
      auto next = Deadline::max();
      for (const auto& call : calls_) next = std::min(next, call->visible().value_or(now + kPoll));
      if (calls_.empty())
        changed_.wait(lock);
      else
        changed_.wait_until(lock, next);
    }
  }
  const LinkOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  Deadline free_{};
  std::vector<std::shared_ptr<ThrottledPending>> pool_, calls_;
  std::thread thread_;
};

class ThrottleComm final : public Decorator {
 public:
  ThrottleComm(std::unique_ptr<Comm> inner, std::shared_ptr<VirtualLink> link)
      : Decorator(std::move(inner)), link_(std::move(link)) {}

 protected:
  Handle around(const PassingCall& call, const Start& start) override {
    Handle inner = start();
    return size() == 1 ? inner : link_->submit(call, std::move(inner), membership());
  }
  std::unique_ptr<Comm> wrap(std::unique_ptr<Comm> part) override {
    return std::make_unique<ThrottleComm>(std::move(part), link_);
  }

 private:
  std::shared_ptr<VirtualLink> link_;
};

}  // namespace

void register_throttle(Registry<DecoratorFactory>& registry) {
  registry.add(
      "throttle",
      [](const Spec& spec, std::unique_ptr<Comm> inner) -> std::unique_ptr<Comm> {
        SpecReader reader(spec);
        const std::string rate = reader.text("rate", "");
        LinkOptions options{.latency_s = reader.number("latency_ms", 0) / 1000,
                            .call_s = reader.number("call_ms", 0) / 1000};
        reader.finish();
        if (!rate.empty() && (options.bytes_per_s = parse_rate(rate)) <= 0)
          throw ConfigError("throttle: rate must be above 0, got " + rate);
        if (options.latency_s < 0 || options.call_s < 0)
          throw ConfigError("throttle: latency_ms and call_ms must not be negative, got " +
                            to_string(spec));
        return std::make_unique<ThrottleComm>(std::move(inner),
                                              std::make_shared<VirtualLink>(options));
      },
      "a virtual link a rank; rate=100mbit (none: no limit), latency_ms=0, call_ms=0 (each call's "
      "own "
      "time)");
}

}  // namespace thinwire
