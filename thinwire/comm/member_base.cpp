// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/member_base.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>

#include "thinwire/core/error.h"

namespace thinwire {

/// One all_gather as this rank sees it. Parts may arrive before this rank has called it.
class MemberBase::Round : public Pending {
 public:
  explicit Round(MemberBase& owner) : owner_(owner), parts_(owner.size_) {
    restart(after(owner.timeout_s_));
  }
  struct Part {
    std::string topic, blob;
  };
  std::vector<Rank> missing() const {
    std::vector<Rank> ranks;
    for (Rank r = 0; r < owner_.size_; ++r)
      if (!parts_[r]) ranks.push_back(r);
    return ranks;
  }
  std::vector<std::optional<Part>>& parts() { return parts_; }
  const std::vector<std::optional<Part>>& parts() const { return parts_; }

 protected:
  std::exception_ptr expired(Seconds waited_s) override {
    std::vector<Rank> absent;
    std::string topic;
    {
      std::lock_guard lock(owner_.mutex_);
      absent = missing();
      topic = parts_[owner_.rank_]->topic;
    }
    // All are here: the round is complete, or take_part() is about to report different topics.
    const auto text = absent.empty() ? "the ranks are in different rounds"
                                     : owner_.describe_missing(absent, topic, waited_s);
    const Rank culprit = absent.size() == 1 ? absent[0] : -1;
    return error_of(owner_.fail({culprit, text}), fmt::format("all_gather of '{}'", topic));
  }

 private:
  MemberBase& owner_;
  std::vector<std::optional<Part>> parts_;  // guarded by the owner's mutex
};

MemberBase::MemberBase(Rank rank, int size, std::string run_id, Seconds timeout_s)
    : rank_(rank),
      size_(size),
      run_id_(std::move(run_id)),
      timeout_s_(timeout_s),
      exceptions_(std::uncaught_exceptions()),
      last_(size),
      left_(size) {}

MemberBase::~MemberBase() = default;

bool MemberBase::unwinding() const { return std::uncaught_exceptions() > exceptions_; }

std::vector<std::string> MemberBase::all_gather(const std::string& topic, std::string_view blob) {
  const auto what = fmt::format("all_gather of '{}'", topic);
  if (const auto over = fault()) std::rethrow_exception(error_of(*over, what));
  if (size_ == 1) return {std::string(blob)};
  std::int64_t number;
  std::shared_ptr<Round> round;
  std::vector<Rank> gone;
  {
    std::lock_guard lock(mutex_);
    number = next_round_++;
    round = round_at(number);
    round->restart(after(timeout_s_));
  }
  send_part(number, topic, blob);
  take_part(rank_, number, topic, std::string(blob));
  if (const auto over = fault()) round->fail(error_of(*over, what));  // between the check and here
  Handle(round).wait();
  std::lock_guard lock(mutex_);
  rounds_.erase(number);
  std::vector<std::string> blobs;
  for (auto& part : round->parts()) blobs.push_back(std::move(part->blob));
  return blobs;
}

std::shared_ptr<MemberBase::Round> MemberBase::round_at(std::int64_t round) {
  auto& slot = rounds_[round];
  if (!slot) slot = std::make_shared<Round>(*this);
  return slot;
}

void MemberBase::take_part(Rank from, std::int64_t number, std::string topic, std::string blob) {
  std::optional<Fault> wrong;
  {
    std::lock_guard lock(mutex_);
    // A rank can be one round ahead at most: it needs our part to end the one before.
    if (number < next_round_ - 1 || number > next_round_) {
      wrong = {from, fmt::format("rank {} sent part {} of the control messages, rank {} is at {}",
                                 from, number, rank_, next_round_)};
    } else {
      const auto round = round_at(number);
      auto& parts = round->parts();
      parts[from] = Round::Part{std::move(topic), std::move(blob)};
      for (Rank r = 0; r < size_ && !wrong; ++r)
        if (parts[r] && parts[r]->topic != parts[from]->topic)
          wrong = {-1, fmt::format("rank {} has started '{}' where rank {} has started '{}'",
                                   std::min(r, from), parts[std::min(r, from)]->topic,
                                   std::max(r, from), parts[std::max(r, from)]->topic)};
      const auto absent = round->missing();
      if (absent.empty() && !wrong) round->complete();
      if (!wrong && parts[rank_])
        for (const Rank r : absent)
          if (left_[r])
            wrong = {r,
                     fmt::format("rank {} has left the group before '{}'", r, parts[rank_]->topic)};
    }
  }
  if (wrong) fail(*wrong);
}

std::string MemberBase::describe_missing(const std::vector<Rank>& missing, const std::string& topic,
                                         Seconds waited_s) const {
  std::vector<std::string> each;
  for (const Rank r : missing) {
    auto words = fmt::format("rank {} (last sign of life {:.1f} s ago", r, silent_s(r));
    if (const auto call = last_started(r); !call.empty()) words += ", last started " + call;
    each.push_back(words + ")");
  }
  return fmt::format("missing after {:.1f} s in '{}': {}", waited_s, topic, fmt::join(each, ", "));
}

void MemberBase::started(CallKind kind, const MessageId& id) {
  std::lock_guard lock(mutex_);
  last_[rank_] = {kind, id};
}

std::optional<StartedCall> MemberBase::started_by(Rank rank) const {
  std::lock_guard lock(mutex_);
  return last_[rank];
}

std::string MemberBase::last_started(Rank rank) const {
  const auto call = started_by(rank);
  return call ? thinwire::describe(call->kind, call->id) : "";
}

void MemberBase::take_started(Rank from, const StartedCall& call) {
  std::lock_guard lock(mutex_);
  last_[from] = call;
}

bool MemberBase::has_left(Rank rank) const {
  std::lock_guard lock(mutex_);
  return left_[rank];
}

void MemberBase::take_farewell(Rank from) {
  std::optional<Fault> wrong;
  {
    std::lock_guard lock(mutex_);
    left_[from] = true;
    for (const auto& [number, round] : rounds_)
      if (round->parts()[rank_] && !round->parts()[from])
        wrong = {from, fmt::format("rank {} has left the group before '{}'", from,
                                   round->parts()[rank_]->topic)};
  }
  if (wrong) fail(*wrong);
}

Fault MemberBase::fail(const Fault& fault) {
  if (take_fault(fault)) spread(fault);
  return *cell_.get();
}

bool MemberBase::take_fault(const Fault& fault) {
  if (!cell_.set(fault)) return false;
  fail_rounds();
  return true;
}

void MemberBase::fail_rounds() {
  const auto over = *cell_.get();
  std::lock_guard lock(mutex_);
  for (const auto& [number, round] : rounds_)
    if (const auto& own = round->parts()[rank_])
      round->fail(error_of(over, fmt::format("all_gather of '{}'", own->topic)));
}

std::shared_ptr<void> MemberBase::on_fault(std::function<void(const Fault&)> fn) {
  return cell_.subscribe(std::move(fn));
}

std::exception_ptr error_of(const Fault& fault, const std::string& what) {
  const auto text = what.empty() ? fault.text : what + ": " + fault.text;
  return fault.config ? std::make_exception_ptr(ConfigError(text))
                      : std::make_exception_ptr(CommError(text));
}

void must_agree(Membership& group, const std::string& what, const std::string& value) {
  const auto values = group.all_gather(what, value);
  std::vector<std::string> seen, words;
  for (std::size_t r = 0; r < values.size(); ++r)
    if (std::find(seen.begin(), seen.end(), values[r]) == seen.end()) {
      seen.push_back(values[r]);
      words.push_back(fmt::format("rank {} has {}", r, values[r]));
    }
  if (seen.size() > 1)
    throw ConfigError(fmt::format("{} differs between ranks: {}", what, fmt::join(words, ", ")));
}

}  // namespace thinwire
