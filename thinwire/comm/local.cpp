// SPDX-License-Identifier: Apache-2.0
// Transport `local`: ranks are threads of one process. A call returns at once; the rank that comes
// last does the work, so the result is there as soon as all have called. Sums run in rank order.
// Nothing is allocated in steady state.
#include <numeric>
#include <thread>

#include "thinwire/comm/comm.h"
#include "thinwire/comm/local_hub.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/reduce.h"
#include "thinwire/comm/traffic.h"
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

class LocalComm final : public Comm {
 public:
  LocalComm(std::shared_ptr<LocalHub> hub, Rank rank, std::shared_ptr<Membership> group,
            std::string name, std::shared_ptr<TrafficCount> parent = nullptr)
      : hub_(std::move(hub)),
        group_(std::move(group)),
        rank_(rank),
        name_(std::move(name)),
        count_(std::make_shared<TrafficCount>(std::move(parent))) {
    token_ = group_->on_fault([hub = hub_, rank](const Fault& fault) { hub->end(rank, fault); });
  }
  ~LocalComm() override { hub_->leave(rank_, *group_); }

  Rank rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  const std::shared_ptr<Membership>& membership() const override { return group_; }

  CommCaps caps() const override {
    return {.name = name_,
            .recv_any = true,
            .reduce_scatter = true,
            .device_buffers = false,
            .rank_order = true,
            .overlaps = true,
            .sums = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::c64, DType::c128,
                     DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}};
  }

  CommCounters counters() const override { return count_->counters(); }

  std::unique_ptr<Comm> split(int color, int key) override {
    const std::int64_t nth = splits_++;
    std::vector<std::int64_t> all(static_cast<std::size_t>(2 * size()));
    const auto own = static_cast<std::size_t>(2 * rank_);
    all[own] = color;
    all[own + 1] = key;
    all_gather({-1, nth}, {all.data(), 2 * size(), DType::i64}, {all.data() + own, 2, DType::i64})
        .wait();
    if (color < 0) return nullptr;
    std::vector<Rank> members;
    for (Rank r = 0; r < size(); ++r)
      if (all[static_cast<std::size_t>(2 * r)] == color) members.push_back(r);
    std::stable_sort(members.begin(), members.end(), [&](Rank a, Rank b) {
      return all[static_cast<std::size_t>(2 * a + 1)] < all[static_cast<std::size_t>(2 * b + 1)];
    });
    const auto mine = std::find(members.begin(), members.end(), rank_) - members.begin();
    return std::make_unique<LocalComm>(hub_->child(nth, color, members), static_cast<Rank>(mine),
                                       group_, name_, count_);
  }

  Handle all_reduce(MessageId id, Buffer data, Combine op) override {
    check_host(CallKind::all_reduce, data, name_);
    check_combine(data.dtype, op);
    count_->add(traffic(CallKind::all_reduce, data.bytes(), size()));
    return start({CallKind::all_reduce, id, data.dtype, data.count, op}, data, data);
  }
  Handle reduce_scatter(MessageId id, Buffer out, Buffer in, Combine op) override {
    check_host(CallKind::reduce_scatter, out, name_);
    check_host(CallKind::reduce_scatter, in, name_);
    check_reduce_scatter(out, in, size());
    check_combine(out.dtype, op);
    count_->add(traffic(CallKind::reduce_scatter, in.bytes(), size()));
    return start({CallKind::reduce_scatter, id, out.dtype, out.count, op}, in, out);
  }
  Handle all_gather(MessageId id, Buffer out, Buffer in) override {
    check_host(CallKind::all_gather, out, name_);
    check_host(CallKind::all_gather, in, name_);
    check_all_gather(out, in, size());
    count_->add(traffic(CallKind::all_gather, in.bytes(), size()));
    return start({CallKind::all_gather, id, in.dtype, in.count}, in, out);
  }
  Handle all_to_all(MessageId id, Buffer out, Buffer in, std::span<const std::int64_t> out_counts,
                    std::span<const std::int64_t> in_counts) override {
    check_host(CallKind::all_to_all, out, name_);
    check_host(CallKind::all_to_all, in, name_);
    check_all_to_all(out, in, out_counts, in_counts, rank_, size());
    count_->add(all_to_all_traffic(out_counts, in_counts, rank_, dtype_bytes(in.dtype)));
    return start({CallKind::all_to_all, id, in.dtype}, in, out, out_counts, in_counts);
  }
  Handle broadcast(MessageId id, Buffer data, Rank root) override {
    check_host(CallKind::broadcast, data, name_);
    check_rank(CallKind::broadcast, "root", root, size());
    count_->add(traffic(CallKind::broadcast, data.bytes(), size(), root == rank_));
    return start({CallKind::broadcast, id, data.dtype, data.count, Combine::replace, root}, data,
                 data);
  }
  Handle send(MessageId id, Buffer data, Rank to) override {
    check_host(CallKind::send, data, name_);
    check_rank(CallKind::send, "to", to, size());
    count_->add(traffic(CallKind::send, data.bytes(), size()));
    return message(CallKind::send, {.id = id, .from = rank_, .to = to, .buffer = data});
  }
  Handle recv(MessageId id, Buffer data, std::optional<Rank> from) override {
    check_host(CallKind::recv, data, name_);
    if (from) check_rank(CallKind::recv, "from", *from, size());
    count_->add(traffic(CallKind::recv, data.bytes(), size()));
    return message(CallKind::recv,
                   {.id = id, .from = from.value_or(-1), .to = rank_, .buffer = data});
  }
  void barrier(const std::string& name) override {
    count_->add({});
    group_->started(CallKind::barrier, {});
    LocalPart part{.signature = {.kind = CallKind::barrier}};
    hub_->collective(rank_, hub_, group_, pool_, part, {}, {}, name).wait();
  }

 private:
  Handle start(const Signature& signature, Buffer in, Buffer out,
               std::span<const std::int64_t> out_counts = {},
               std::span<const std::int64_t> in_counts = {}) {
    group_->started(signature.kind, signature.id);
    return hub_->collective(rank_, hub_, group_, pool_,
                            {.signature = signature, .in = in, .out = out}, out_counts, in_counts);
  }
  Handle message(CallKind kind, LocalMessage message) {
    group_->started(kind, message.id);
    return hub_->message(rank_, hub_, group_, pool_, kind, message);
  }

  std::shared_ptr<LocalHub> hub_;
  std::shared_ptr<Membership> group_;
  Rank rank_;
  std::string name_;
  LocalHub::Pool pool_;  // guarded by the hub's mutex
  std::int64_t splits_ = 0;
  std::shared_ptr<TrafficCount> count_;
  std::shared_ptr<void>
      token_;  // last member: dropped first, so no fault arrives at a half-destroyed object
};

std::vector<std::unique_ptr<Comm>> ranks_as_threads(const std::string& name, int ranks,
                                                    Seconds timeout_s) {
  std::vector<Rank> world(static_cast<std::size_t>(ranks));
  std::iota(world.begin(), world.end(), 0);
  const auto hub = std::make_shared<LocalHub>(std::move(world), timeout_s);
  const auto groups = local_group(ranks, timeout_s);
  std::vector<std::unique_ptr<Comm>> out;
  for (Rank r = 0; r < ranks; ++r)
    out.push_back(std::make_unique<LocalComm>(hub, r, groups[static_cast<std::size_t>(r)], name));
  return out;
}

/// One rank alone; with `local` a person who asked for more is told how to get them.
CommFactory alone(std::string name) {
  return
      [name = std::move(name)](const Spec& spec, const JoinOptions& join) -> std::unique_ptr<Comm> {
        SpecReader(spec).finish();
        if (join.size != 1)
          throw ConfigError(name + ": " +
                            (name == "none" ? "is for 1 rank"
                                            : "ranks are threads of one process, made together") +
                            ", got " + std::to_string(join.size) + " ranks that join one by one");
        return std::move(ranks_as_threads(name, 1, join.timeout_s)[0]);
      };
}

}  // namespace

void register_local(Registry<CommFactory>& registry) {
  registry.add("local", alone("local"),
               "ranks are threads of one process (--ranks N --comm local)");
  registry.add("none", alone("none"), "one rank, no copies");
}

namespace {

/// Ranks of one process that talk through real sockets. Connecting is collective, hence the
/// threads.
std::vector<std::unique_ptr<Comm>> tcp_as_threads(const Spec& spec, int ranks, Seconds timeout_s) {
  const auto members = local_group(ranks, timeout_s);
  std::vector<std::unique_ptr<Comm>> out(members.size());
  std::vector<std::exception_ptr> errors(members.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < members.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        out[r] = make_tcp(spec, members[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return out;
}

}  // namespace

std::vector<std::unique_ptr<Comm>> make_local(int ranks, Seconds timeout_s,
                                              std::string_view transport) {
  auto chain = parse_chain(transport);
  const Spec last = chain.back();
  const bool sockets = last.name == "tcp";
  if (!sockets) SpecReader(last).finish();
  if (last.name != "local" && !sockets && !(last.name == "none" && ranks == 1))
    throw ConfigError("make_local: the transport must be local, tcp, or none with 1 rank, got " +
                      last.name + " with " + std::to_string(ranks) + " ranks");
  if (ranks < 1)
    throw ConfigError("make_local: ranks must be at least 1, got " + std::to_string(ranks));
  chain.pop_back();
  auto out = sockets ? tcp_as_threads(last, ranks, timeout_s)
                     : ranks_as_threads(last.name, ranks, timeout_s);
  for (auto& comm : out) comm = decorate(chain, std::move(comm));
  return out;
}

}  // namespace thinwire
