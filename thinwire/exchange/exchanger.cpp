// SPDX-License-Identifier: Apache-2.0
// How one exchange runs:
//   for m in memories: m.before(x)                        x is then a memory's own
//   while p = codec.propose(x): agreed += reduce(p)
//   payload = codec.encode(x); for m reversed: m.sent(x, payload)
//     (a last memory that only adds lends its tensor instead, and the codec does all three)
//   direct | gather | shard | tree | hierarchical: a source file each, in stages
//   for m reversed: m.received(value)
// In a step in which it does not fire (start.every, start.offset) nothing is sent: when it is
// waited for, before() and sent() with nothing sent, and the value is zero. start() sends the first
// messages. What has to wait for them, and sends more, is done for all exchanges under way when the
// first of them is waited for: the same place on all ranks.
#include "thinwire/exchange/exchanger.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"
#include "thinwire/exchange/call.h"
#include "thinwire/exchange/choice.h"

namespace thinwire {
namespace {

constexpr std::array<const Algorithm*, 5> kAlgorithms{&kDirect, &kGather, &kShard, &kTree,
                                                      &kHierarchical};

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Every rank says what it thinks of its own plan before any of them goes on, so that a plan that
/// one rank refuses ends all of them.
void agree(Membership& group, const Plan& plan, int ranks) {
  std::string mine = fmt::format("{:016x}", digest(plan));
  try {
    validate(plan, ranks);
  } catch (const ConfigError& error) {
    mine = std::string("!") + error.what();
  }
  const auto all = group.all_gather("plan digest", mine);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].starts_with("!"))
      throw ConfigError(all[r] == mine ? all[r].substr(1)
                                       : fmt::format("rank {}: {}", r, all[r].substr(1)));
  std::size_t other = 0;
  while (other < all.size() && all[other] == all[0]) ++other;
  if (other == all.size()) return;
  const auto texts = group.all_gather("plan", to_json(plan));
  const Plan first = plan_from_json(texts[0], "the plan of rank 0");
  const Plan second = plan_from_json(texts[other], fmt::format("the plan of rank {}", other));
  std::string where = first_difference(first, second);
  // The first exchange that differs is named even where a tensor or bucket differs before it.
  for (std::size_t i = 0; i < std::min(first.exchanges.size(), second.exchanges.size()); ++i)
    if (!(first.exchanges[i] == second.exchanges[i])) {
      if (where.find(fmt::format("exchange {}", i)) == std::string::npos)
        where += fmt::format("; the first exchange that differs is exchange {}", i);
      break;
    }
  throw ConfigError(
      fmt::format("the plan differs between ranks: rank 0 has digest {}, rank {} has {}; {}",
                  all[0], other, all[other], where));
}

}  // namespace

struct Exchanger::Impl {
  Impl(Comm& w, const Plan& p, Recorder& r) : world(w), plan(p), recorder(r) {
    agree(*world.membership(), plan, world.size());
    plan_digest = digest(plan);
    for (const Group& group : plan.groups) {
      const bool member =
          std::find(group.ranks.begin(), group.ranks.end(), world.rank()) != group.ranks.end();
      groups.push_back(world.split(member ? 0 : -1, world.rank()));
    }
    make_all_hosts();
    for (const Exchange& exchange : plan.exchanges) calls.push_back(make(exchange));
  }

  /// Of the groups whose exchanges name hierarchical.
  void make_all_hosts() {
    hosts.resize(groups.size());
    std::vector<std::string> names;
    for (const Exchange& exchange : plan.exchanges) {
      const auto g = static_cast<std::size_t>(exchange.group);
      if (exchange.algorithm != kHierarchical.name || hosts[g]) continue;
      if (names.empty()) names = world.membership()->all_gather("names of hosts", host_name());
      hosts[g] = make_hosts(groups[g].get(), plan.groups[g], names);
    }
  }

  Call make(const Exchange& exchange) const {
    Call out;
    out.exchange = &exchange;
    out.group = groups[static_cast<std::size_t>(exchange.group)].get();
    out.hosts = hosts[static_cast<std::size_t>(exchange.group)].get();
    if (exchange.bucket >= 0)
      out.descs =
          tensors_of(plan.grouping[static_cast<std::size_t>(exchange.bucket)], plan.tensors);
    for (std::size_t i = 0; i + 1 < exchange.form.size(); ++i)
      out.memories.push_back(
          memories().find(exchange.form[i].name).make(exchange.form[i], out.descs));
    out.codec = make_codec(exchange, out.descs);
    if (exchange.bucket >= 0) choose(out);
    return out;
  }

  /// The algorithm the plan names, or the first that can of those that suit.
  static void choose(Call& call) {
    const Exchange& exchange = *call.exchange;
    const auto refuse = [&](const std::string& why) {
      throw UnsupportedError(fmt::format("exchange {}: {} {} in the form '{}': {}", exchange.id,
                                         to_string(exchange.pattern), exchange.algorithm,
                                         to_string(std::span<const Spec>(exchange.form)), why));
    };
    if (exchange.pattern != Pattern::all_reduce) refuse("this pattern is not built in");
    std::vector<std::string_view> names{exchange.algorithm};
    if (exchange.algorithm.empty())
      names = ranked_algorithms({.traits = call.codec->traits(),
                                 .caps = call.group ? call.group->caps() : CommCaps(),
                                 .payload = exchange.payload,
                                 .ranks = call.group ? call.group->size() : 1});
    std::string why;
    for (const std::string_view name : names) {
      const auto found = std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                                      [&](const Algorithm* each) { return each->name == name; });
      TW_ASSERT(found != kAlgorithms.end(), ==, true);
      why = (*found)->prepare(call);
      if (!why.empty()) continue;
      call.algorithm = *found;
      return;
    }
    refuse(why);
  }

  std::string describe(int exchange_id) const {
    const Exchange& exchange = plan.exchanges.at(static_cast<std::size_t>(exchange_id));
    if (exchange.bucket < 0) return fmt::format("exchange {}", exchange_id);
    const auto& slices = plan.grouping[static_cast<std::size_t>(exchange.bucket)].slices;
    return fmt::format("exchange {} (bucket {}, first tensor '{}')", exchange_id, exchange.bucket,
                       plan.tensors[static_cast<std::size_t>(slices.front().tensor)].name);
  }

  /// A transport knows exchanges by number; a person knows tensors by name.
  template <class Fn>
  void with_words(int exchange_id, const Fn& fn) const {
    try {
      fn();
    } catch (const CommError& error) {
      throw CommError(fmt::format("{}: {}", describe(exchange_id), error.what()));
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: {}", describe(exchange_id), error.what()));
    }
  }

  void record(Call& call) {
    if (call.recorded) return;
    call.recorded = true;
    call.event.end_s = recorder.now();
    recorder.add(call.event);
  }

  /// Brings a call one stage further.
  void advance(Call& call) {
    with_words(call.exchange->id, [&] {
      if (!call.proposal) return call.algorithm->advance(call);
      call.handles[0].wait();
      call.slot.agreed.push_back(call.proposal->value);
      if (!propose(call)) call.algorithm->start(call);
    });
  }

  void advance_all() {
    for (bool again = true; again;) {
      again = false;
      for (Call& call : calls)
        if (call.in_flight && call.more) {
          advance(call);
          again = true;
        }
    }
  }

  void close(Call& call) {
    if (!call.off) call.event.bytes = call.algorithm->sent_bytes(call);
    call.data.reset();  // a gradient that travelled in its own memory is its owner's again
    call.x.reset();
    call.value.reset();
    record(call);
  }

  /// All memories and codecs: fn(prefix, bucket, one).
  template <class Fn>
  void visit(const Fn& fn) {
    for (Call& call : calls) {
      if (call.exchange->bucket < 0 || !call.group) continue;
      const Bucket& bucket = plan.grouping[static_cast<std::size_t>(call.exchange->bucket)];
      const std::string role = std::string(to_string(call.exchange->what)) + "/";
      for (std::size_t i = 0; i < call.memories.size(); ++i)
        fn(role + call.exchange->form[i].name + "/", bucket, *call.memories[i]);
      if (!call.exchange->form.empty())
        fn(role + call.exchange->form.back().name + "/", bucket, *call.codec);
    }
  }

  Comm& world;
  const Plan plan;
  Recorder& recorder;
  std::uint64_t plan_digest = 0;
  std::vector<std::unique_ptr<Comm>> groups;
  std::vector<std::unique_ptr<Hosts>> hosts;  ///< by group; null where none are needed
  std::vector<Call> calls;
};

Exchanger::Exchanger(Comm& world, const Plan& plan, Recorder& recorder)
    : impl_(std::make_unique<Impl>(world, plan, recorder)) {}
Exchanger::~Exchanger() = default;

void Exchanger::start(int exchange_id, Tensor& data, const Slot& slot) {
  const at::NoGradGuard no_grad;
  Call& call = impl_->calls.at(static_cast<std::size_t>(exchange_id));
  TW_ASSERT(call.algorithm != nullptr, ==, true);
  call.slot = slot;
  call.slot.exchange = exchange_id;
  call.slot.rank = call.group->rank();
  call.slot.ranks = call.group->size();
  call.slot.round = 0;
  call.part = 0;
  call.payload = 0;
  call.sent = 0;
  call.event = {.step = slot.step,
                .kind = OpKind::exchange,
                .index = exchange_id,
                .begin_s = impl_->recorder.now()};
  call.recorded = false;
  call.in_flight = true;
  call.more = false;
  call.slot.counts = slot.counts || call.memories.empty();
  call.slot.fires = fires(call.exchange->start, slot.step);
  call.off = !call.slot.fires;
  if (call.off) {
    call.recorded = true;  // no event: nothing is sent
    call.data = flat_of(data);
    call.handles.clear();
    return;  // the rest when it is known that the step counts
  }
  impl_->with_words(exchange_id, [&] {
    if (call.in_place()) {
      call.data = data;
      call.algorithm->start(call);
      call.event.bytes = call.algorithm->sent_bytes(call);
      return;
    }
    call.data = flat_of(data);
    open_call(call);
    if (!propose(call)) call.algorithm->start(call);
  });
}

void Exchanger::wait(int exchange_id) {
  Call& call = impl_->calls.at(static_cast<std::size_t>(exchange_id));
  if (!call.in_flight) return;
  const at::NoGradGuard no_grad;
  if (call.off) {
    call.in_flight = false;
    keep_all(call);
    return impl_->close(call);
  }
  impl_->advance_all();
  call.in_flight = false;
  impl_->with_words(exchange_id, [&] {
    call.algorithm->finish(call);
    if (!call.in_place()) close_call(call);
  });
  impl_->close(call);
}

void Exchanger::take_back(int exchange_id) {
  Call& call = impl_->calls.at(static_cast<std::size_t>(exchange_id));
  if (!call.in_flight) return;
  if (call.memories.empty()) return wait(exchange_id);
  const at::NoGradGuard no_grad;
  call.in_flight = false;
  if (!call.off) impl_->with_words(exchange_id, [&] { thinwire::take_back(call); });
  impl_->close(call);
}

bool Exchanger::has_memories(int exchange_id) const {
  return !impl_->calls.at(static_cast<std::size_t>(exchange_id)).memories.empty();
}

FormState Exchanger::state() const {
  FormState out;
  impl_->visit([&](const std::string& prefix, const Bucket& bucket, auto& one) {
    SaveState visitor(out, prefix, impl_->plan, bucket);
    one.visit_state(visitor);
  });
  return out;
}

void Exchanger::load_state(const FormState& state) {
  impl_->visit([&](const std::string& prefix, const Bucket& bucket, auto& one) {
    LoadState visitor(state, prefix, impl_->plan, bucket);
    one.visit_state(visitor);
  });
}

void Exchanger::poll() {
  for (Call& call : impl_->calls)
    if (call.in_flight && !call.off && call.in_place() && !call.handles.empty() &&
        call.handles[0].ready())
      impl_->record(call);
}

bool Exchanger::in_place(int exchange_id) const {
  return impl_->calls.at(static_cast<std::size_t>(exchange_id)).in_place();
}

const Plan& Exchanger::plan() const { return impl_->plan; }
std::uint64_t Exchanger::plan_digest() const { return impl_->plan_digest; }

Comm& Exchanger::group(int index) {
  auto& group = impl_->groups.at(static_cast<std::size_t>(index));
  if (!group)
    throw ConfigError(
        fmt::format("rank {} does not belong to group {} of the plan", impl_->world.rank(), index));
  return *group;
}

std::string Exchanger::describe_exchange(int exchange_id) const {
  return impl_->describe(exchange_id);
}

}  // namespace thinwire
