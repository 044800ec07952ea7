// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/record.h"

#include <algorithm>

#include "thinwire/comm/decorator.h"
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"

namespace thinwire {

CallLog::CallLog(std::int64_t capacity) : capacity_(static_cast<std::size_t>(capacity)) {
  ring_.reserve(capacity_);  // nothing is allocated while calls are running
}

std::int64_t CallLog::begin(CallRecord record) {
  std::lock_guard lock(mutex_);
  sweep();
  record.order = next_++;
  payload_bytes_ += record.payload_bytes;
  if (ring_.size() < capacity_)
    ring_.push_back(record);
  else
    ring_[static_cast<std::size_t>(record.order - first_) % capacity_] = record;
  return record.order;
}

void CallLog::under_way(std::int64_t order, Handle handle) {
  std::lock_guard lock(mutex_);
  if (handle.ready())
    set_ended(order, handle.ended().value_or(Clock::now()));
  else
    open_.emplace_back(order, std::move(handle));
}

// A handle is let go as soon as its end is known, so that the transport can use its memory again.
void CallLog::sweep() const {
  std::erase_if(open_, [this](const auto& open) {
    if (!open.second.ready()) return false;
    set_ended(open.first, open.second.ended().value_or(Clock::now()));
    return true;
  });
}

void CallLog::set_ended(std::int64_t order, Deadline when) const {
  if (order < first_ || ring_.empty()) return;
  CallRecord& record = ring_[static_cast<std::size_t>(order - first_) % capacity_];
  if (record.order == order) record.ended = when;
}

std::vector<CallRecord> CallLog::calls() const {
  std::lock_guard lock(mutex_);
  sweep();
  std::vector<CallRecord> out = ring_;
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.order < b.order; });
  return out;
}

std::int64_t CallLog::total() const {
  std::lock_guard lock(mutex_);
  return next_ - first_;
}

Bytes CallLog::payload_bytes() const {
  std::lock_guard lock(mutex_);
  return payload_bytes_;
}

std::int64_t CallLog::count(CallKind kind, std::int32_t exchange,
                            std::optional<std::int64_t> step) const {
  std::lock_guard lock(mutex_);
  return std::count_if(ring_.begin(), ring_.end(), [&](const CallRecord& record) {
    return record.kind == kind && record.id.exchange == exchange &&
           (!step || record.id.step == *step);
  });
}

void CallLog::clear() {
  std::lock_guard lock(mutex_);
  ring_.clear();
  open_.clear();
  first_ = next_;
  payload_bytes_ = 0;
}

class RecordComm final : public Decorator {
 public:
  RecordComm(std::unique_ptr<Comm> inner, std::shared_ptr<CallLog> log)
      : Decorator(std::move(inner)), log_(std::move(log)) {}
  const std::shared_ptr<CallLog>& log() const { return log_; }
  void barrier(const std::string& name) override {
    const auto order =
        log_->begin({.kind = CallKind::barrier, .ranks = size(), .started = Clock::now()});
    Decorator::barrier(name);
    log_->under_way(order, Handle());
  }

 protected:
  Handle around(const PassingCall& call, const Start& start) override {
    const Signature& s = call.signature;
    const auto order = log_->begin({.kind = s.kind,
                                    .id = s.id,
                                    .dtype = s.dtype,
                                    .count = s.count,
                                    .payload_bytes = s.count * dtype_bytes(s.dtype),
                                    .sent_bytes = call.traffic.sent,
                                    .ranks = size(),
                                    .started = Clock::now()});
    Handle handle = start();
    log_->under_way(order, handle);
    return handle;
  }
  std::unique_ptr<Comm> wrap(std::unique_ptr<Comm> part) override {
    return std::make_unique<RecordComm>(std::move(part), log_);
  }

 private:
  std::shared_ptr<CallLog> log_;
};

std::unique_ptr<Comm> record(std::unique_ptr<Comm> inner, std::shared_ptr<CallLog> log) {
  return std::make_unique<RecordComm>(std::move(inner), std::move(log));
}

std::shared_ptr<CallLog> call_log(Comm& comm) {
  const auto* found = find_decorator<RecordComm>(comm);
  return found ? found->log() : nullptr;
}

void register_record(Registry<DecoratorFactory>& registry) {
  registry.add(
      "record",
      [](const Spec& spec, std::unique_ptr<Comm> inner) {
        SpecReader reader(spec);
        const std::int64_t calls = reader.integer("calls", 16384);
        reader.finish();
        if (calls < 1)
          throw ConfigError("record: calls must be at least 1, got " + std::to_string(calls));
        return record(std::move(inner), std::make_shared<CallLog>(calls));
      },
      "keeps what was called, with bytes and times; calls=16384 (how many are kept)");
}

}  // namespace thinwire
