// SPDX-License-Identifier: Apache-2.0
// Memberships of ranks that are threads of one process: the others are told directly, by a call.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/comm/member_base.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class LocalMember;

/// Who is there. A member that is being destroyed can no longer be locked, so nobody calls it.
struct Hub {
  std::vector<std::weak_ptr<LocalMember>> members;  // filled once, before any member is used
};

class LocalMember final : public MemberBase {
 public:
  LocalMember(std::shared_ptr<Hub> hub, Rank rank, int size, std::string run_id, Seconds timeout_s)
      : MemberBase(rank, size, std::move(run_id), timeout_s), hub_(std::move(hub)) {}
  ~LocalMember() override {
    if (unwinding() && !gone_)
      fail({rank(), fmt::format("rank {} died: an exception ended it", rank())});
    leave();
  }
  std::string address_of(Rank) const override { return ""; }
  std::string describe() const override {
    return fmt::format("{} ranks as threads of one process", size());
  }
  std::string last_started(Rank rank) const override {
    const auto member = hub_->members[rank].lock();
    return member ? member->MemberBase::last_started(rank) : "";
  }
  Seconds silent_s(Rank) const override { return 0; }  // a thread alone cannot freeze
  void leave() override {
    if (gone_.exchange(true)) return;
    others([this](LocalMember& member) { member.take_farewell(rank()); });
  }

 protected:
  void send_part(std::int64_t round, const std::string& topic, std::string_view blob) override {
    others([&](LocalMember& member) { member.take_part(rank(), round, topic, std::string(blob)); });
  }
  void spread(const Fault& fault) override {
    others([&](LocalMember& member) {
      if (member.take_fault(fault)) member.deliver();
    });
    deliver();
  }

 private:
  template <class Fn>
  void others(Fn fn) {
    for (Rank r = 0; r < size(); ++r)
      if (r != rank())
        if (const auto member = hub_->members[r].lock()) fn(*member);
  }
  std::shared_ptr<Hub> hub_;
  std::atomic<bool> gone_{false};
};

}  // namespace

std::vector<std::shared_ptr<Membership>> local_group(int ranks, Seconds timeout_s,
                                                     std::string run_id) {
  if (ranks < 1) throw ConfigError(fmt::format("a group needs at least 1 rank, got {}", ranks));
  const auto hub = std::make_shared<Hub>();
  std::vector<std::shared_ptr<Membership>> group;
  for (Rank r = 0; r < ranks; ++r) {
    const auto member = std::make_shared<LocalMember>(hub, r, ranks, run_id, timeout_s);
    hub->members.push_back(member);
    group.push_back(member);
  }
  return group;
}

}  // namespace thinwire
