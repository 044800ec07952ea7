// SPDX-License-Identifier: Apache-2.0
// How one exchange runs:
//   for m in memories: m.before(x)
//   while p = codec.propose(x): agreed += reduce(p)
//   payload = codec.encode(x); own = decode(payload); for m reversed: m.sent(x, own)
//   direct (identity form, in place) or gather (all-gather of payloads, decoded and added in rank
//   order) for m reversed: m.received(value)
#include "thinwire/exchange/exchanger.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

Buffer buffer_of(const Tensor& tensor) {
  const auto dtype = dtype_of(tensor.scalar_type());
  if (!dtype)
    throw UnsupportedError(
        fmt::format("no message carries elements of type {}", c10::toString(tensor.scalar_type())));
  return {tensor.data_ptr(), tensor.numel(), *dtype, -1};
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
  /// What a gather needs until it is decoded.
  struct Gathered {
    Payload own;
    std::vector<Tensor> all;  ///< one a payload part: the parts of all ranks, in rank order
    std::vector<Handle> handles;
  };
  struct Running {
    std::unique_ptr<Codec> codec;
    std::vector<std::unique_ptr<Memory>> memories;
    bool in_place = false;
    bool in_flight = false, recorded = true;
    Handle handle;
    Gathered gathered;
    Tensor data;
    Slot slot;
    Event event;
  };

  Impl(Comm& w, const Plan& p, Recorder& r) : world(w), plan(p), recorder(r) {
    agree(*world.membership(), plan, world.size());
    plan_digest = digest(plan);
    for (const Group& group : plan.groups) {
      const bool member =
          std::find(group.ranks.begin(), group.ranks.end(), world.rank()) != group.ranks.end();
      groups.push_back(world.split(member ? 0 : -1, world.rank()));
    }
    for (const Exchange& exchange : plan.exchanges) running.push_back(make(exchange));
  }

  Running make(const Exchange& exchange) const {
    std::vector<TensorDesc> descs;
    if (exchange.bucket >= 0)
      for (const Slice& slice : plan.grouping[static_cast<std::size_t>(exchange.bucket)].slices) {
        const TensorDesc& whole = plan.tensors[static_cast<std::size_t>(slice.tensor)];
        descs.push_back({whole.name, whole.dtype, {slice.end - slice.begin}});
      }
    Running out;
    const Spec none{.name = "none"};
    const std::size_t last = exchange.form.empty() ? 0 : exchange.form.size() - 1;
    for (std::size_t i = 0; i < last; ++i)
      out.memories.push_back(memories().find(exchange.form[i].name).make(exchange.form[i], descs));
    const Spec& codec = exchange.form.empty() ? none : exchange.form[last];
    out.codec = codecs().find(codec.name).make(codec, descs);
    out.in_place = out.memories.empty() && out.codec->traits().identity;
    return out;
  }

  Comm& comm(const Exchange& exchange) const {
    return *groups[static_cast<std::size_t>(exchange.group)];
  }

  void start_gather(const Exchange& exchange, Running& run) {
    if (exchange.pattern != Pattern::all_reduce || !run.codec->traits().fixed_size)
      throw UnsupportedError(fmt::format("exchange {}: {} in the form '{}' is not built in",
                                         exchange.id, to_string(exchange.pattern),
                                         to_string(std::span<const Spec>(exchange.form))));
    Tensor& x = run.data;
    Comm& group = comm(exchange);
    for (auto& memory : run.memories) memory->before(x, run.slot);
    std::int32_t part = 0;
    while (auto proposal = run.codec->propose(x, run.slot)) {
      group
          .all_reduce({exchange.id, run.slot.step, part++}, buffer_of(proposal->value),
                      proposal->op)
          .wait();
      run.slot.agreed.push_back(proposal->value);
    }
    Gathered& gathered = run.gathered;
    gathered.own = run.codec->encode(x, run.slot);
    if (!run.memories.empty()) {
      Tensor own = at::empty_like(x);
      run.codec->decode(gathered.own, own, Write::set);
      for (auto memory = run.memories.rbegin(); memory != run.memories.rend(); ++memory)
        (*memory)->sent(x, own, run.slot);
    }
    gathered.all.clear();
    gathered.handles.clear();
    for (Tensor& sent : gathered.own.parts) {
      sent = sent.contiguous();
      std::vector<std::int64_t> shape(sent.sizes().begin(), sent.sizes().end());
      shape.insert(shape.begin(), group.size());
      gathered.all.push_back(at::empty(shape, sent.options()));
      gathered.handles.push_back(group.all_gather({exchange.id, run.slot.step, part++},
                                                  buffer_of(gathered.all.back()), buffer_of(sent)));
    }
    run.event.bytes = gathered.own.bytes() * (group.size() - 1);
  }

  void finish_gather(const Exchange& exchange, Running& run) {
    for (Handle& handle : run.gathered.handles) handle.wait();
    const int ranks = comm(exchange).size();
    Tensor value = at::empty_like(run.data);
    for (int rank = 0; rank < ranks; ++rank) {
      Payload payload;
      for (const Tensor& all : run.gathered.all) payload.parts.push_back(all.select(0, rank));
      run.codec->decode(payload, value, rank == 0 ? Write::set : Write::add);
    }
    if (exchange.combine == Combine::mean) value.div_(ranks);
    for (auto memory = run.memories.rbegin(); memory != run.memories.rend(); ++memory)
      (*memory)->received(value, kCombined, run.slot);
    // The caller's memory is filled, never replaced: a decode may hand back memory of its own.
    run.data.copy_(value.view_as(run.data));
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

  void record(Running& run) {
    if (run.recorded) return;
    run.recorded = true;
    run.event.end_s = recorder.now();
    recorder.add(run.event);
  }

  Comm& world;
  Plan plan;
  Recorder& recorder;
  std::uint64_t plan_digest = 0;
  std::vector<std::unique_ptr<Comm>> groups;
  std::vector<Running> running;
};

Exchanger::Exchanger(Comm& world, const Plan& plan, Recorder& recorder)
    : impl_(std::make_unique<Impl>(world, plan, recorder)) {}
Exchanger::~Exchanger() = default;

void Exchanger::start(int exchange_id, Tensor& data, const Slot& slot) {
  const at::NoGradGuard no_grad;
  const Exchange& exchange = impl_->plan.exchanges.at(static_cast<std::size_t>(exchange_id));
  Impl::Running& run = impl_->running[static_cast<std::size_t>(exchange_id)];
  run.data = data;
  run.slot = slot;
  run.event = {.step = slot.step,
               .kind = OpKind::exchange,
               .index = exchange_id,
               .begin_s = impl_->recorder.now()};
  run.recorded = false;
  run.in_flight = true;
  impl_->with_words(exchange_id, [&] {
    if (!run.in_place) return impl_->start_gather(exchange, run);
    Comm& group = impl_->comm(exchange);
    const Buffer buffer = buffer_of(data);
    run.event.bytes = 2 * buffer.bytes() * (group.size() - 1) / group.size();
    run.handle = group.all_reduce({exchange_id, slot.step, 0}, buffer, exchange.combine);
  });
}

void Exchanger::wait(int exchange_id) {
  Impl::Running& run = impl_->running.at(static_cast<std::size_t>(exchange_id));
  if (!run.in_flight) return;
  run.in_flight = false;
  impl_->with_words(exchange_id, [&] {
    const at::NoGradGuard no_grad;
    if (run.in_place)
      run.handle.wait();
    else
      impl_->finish_gather(impl_->plan.exchanges[static_cast<std::size_t>(exchange_id)], run);
  });
  run.handle = Handle();
  run.data.reset();  // a gradient that travelled in its own memory is its owner's again
  impl_->record(run);
}

void Exchanger::poll() {
  for (auto& run : impl_->running)
    if (run.in_flight && run.in_place && run.handle.ready()) impl_->record(run);
}

bool Exchanger::in_place(int exchange_id) const {
  return impl_->running.at(static_cast<std::size_t>(exchange_id)).in_place;
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
