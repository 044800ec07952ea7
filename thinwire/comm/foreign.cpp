// SPDX-License-Identifier: Apache-2.0
// The communicator of the adapters: checks what is asked and hands it to the progress thread.
#include "thinwire/comm/foreign.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "thinwire/comm/foreign_engine.h"
#include "thinwire/comm/reduce.h"
#include "thinwire/comm/traffic.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

class ForeignComm final : public Comm {
 public:
  ForeignComm(std::shared_ptr<Engine> engine, std::shared_ptr<ForeignOps> ops,
              std::vector<Rank> world, std::shared_ptr<TrafficCount> parent = nullptr)
      : engine_(std::move(engine)),
        ops_(std::move(ops)),
        lane_(std::make_shared<Lane>()),
        world_(std::make_shared<const std::vector<Rank>>(std::move(world))),
        count_(std::make_shared<TrafficCount>(std::move(parent))) {
    lane_->ops = ops_;
    lane_->world = *world_;
    engine_->add(lane_);
  }
  Rank rank() const override { return ops_->rank(); }
  int size() const override { return ops_->size(); }
  const std::shared_ptr<Membership>& membership() const override { return engine_->group(); }
  CommCaps caps() const override {
    return {.name = ops_->name(),
            .recv_any = ops_->messages(),
            .reduce_scatter = true,
            .device_buffers = false,
            .rank_order = size() <= 2,
            .overlaps = true,
            .sums = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::c64, DType::c128,
                     DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}};
  }
  CommCounters counters() const override { return count_->counters(); }
  std::unique_ptr<Comm> split(int color, int key) override;
  Handle all_reduce(MessageId id, Buffer data, Combine op) override {
    check_host(CallKind::all_reduce, data, ops_->name());
    check_combine(data.dtype, op);
    count_->add(traffic(CallKind::all_reduce, data.bytes(), size()));
    return start({{CallKind::all_reduce, id, data.dtype, data.count, op}, data, data, {}, {}});
  }
  Handle reduce_scatter(MessageId id, Buffer out, Buffer in, Combine op) override {
    check_host(CallKind::reduce_scatter, out, ops_->name());
    check_host(CallKind::reduce_scatter, in, ops_->name());
    check_reduce_scatter(out, in, size());
    check_combine(out.dtype, op);
    count_->add(traffic(CallKind::reduce_scatter, in.bytes(), size()));
    return start({{CallKind::reduce_scatter, id, out.dtype, out.count, op}, in, out, {}, {}});
  }
  Handle all_gather(MessageId id, Buffer out, Buffer in) override {
    check_host(CallKind::all_gather, out, ops_->name());
    check_host(CallKind::all_gather, in, ops_->name());
    check_all_gather(out, in, size());
    count_->add(traffic(CallKind::all_gather, in.bytes(), size()));
    return start({{CallKind::all_gather, id, in.dtype, in.count}, in, out, {}, {}});
  }
  Handle all_to_all(MessageId id, Buffer out, Buffer in, std::span<const std::int64_t> out_counts,
                    std::span<const std::int64_t> in_counts) override;
  Handle broadcast(MessageId id, Buffer data, Rank root) override {
    check_host(CallKind::broadcast, data, ops_->name());
    check_rank(CallKind::broadcast, "root", root, size());
    count_->add(traffic(CallKind::broadcast, data.bytes(), size(), root == rank()));
    return start({{CallKind::broadcast, id, data.dtype, data.count, Combine::replace, root},
                  data,
                  data,
                  {},
                  {}});
  }
  Handle send(MessageId id, Buffer data, Rank to) override {
    check_host(CallKind::send, data, ops_->name());
    check_rank(CallKind::send, "to", to, size());
    count_->add(traffic(CallKind::send, data.bytes(), size()));
    return start(
        {{CallKind::send, id, data.dtype, data.count, Combine::replace, to}, data, {}, {}, {}});
  }
  Handle recv(MessageId id, Buffer data, std::optional<Rank> from) override {
    check_host(CallKind::recv, data, ops_->name());
    if (from) check_rank(CallKind::recv, "from", *from, size());
    count_->add(traffic(CallKind::recv, data.bytes(), size()));
    return start({{CallKind::recv, id, data.dtype, data.count, Combine::replace, from.value_or(-1)},
                  {},
                  data,
                  {},
                  {}});
  }
  void barrier(const std::string& name) override {
    count_->add({});
    start({{.kind = CallKind::barrier}, {}, {}, {}, {}},
          hash_bytes(name.data(), static_cast<std::int64_t>(name.size())))
        .wait();
  }

 private:
  Handle start(ForeignRequest request, std::uint64_t extra = 0);
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<ForeignOps> ops_;
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<const std::vector<Rank>> world_;
  std::int64_t splits_ = 0;
  std::shared_ptr<TrafficCount> count_;
};

Handle ForeignComm::all_to_all(MessageId id, Buffer out, Buffer in,
                               std::span<const std::int64_t> out_counts,
                               std::span<const std::int64_t> in_counts) {
  check_host(CallKind::all_to_all, out, ops_->name());
  check_host(CallKind::all_to_all, in, ops_->name());
  check_all_to_all(out, in, out_counts, in_counts, rank(), size());
  count_->add(all_to_all_traffic(out_counts, in_counts, rank(), dtype_bytes(in.dtype)));
  return start({{CallKind::all_to_all, id, in.dtype},
                in,
                out,
                {in_counts.begin(), in_counts.end()},
                {out_counts.begin(), out_counts.end()}});
}

Handle ForeignComm::start(ForeignRequest request, std::uint64_t extra) {
  const Signature signature = request.signature;
  membership()->started(signature.kind, signature.id);
  const bool message = signature.kind == CallKind::send || signature.kind == CallKind::recv;
  if (message && signature.root == rank())
    throw UnsupportedError(ops_->name() + ": a rank cannot send to itself or receive from itself");
  if (message && !ops_->messages())
    throw UnsupportedError(ops_->name() +
                           ": this process group's backend does not match messages by tags, so "
                           "there is neither send nor recv");
  if (size() == 1) {
    if (!message) move_bytes(request.out.data, request.in.data, request.in.bytes());
    return Handle();
  }
  auto job = std::make_unique<Job>();
  job->mine = say(signature, extra, request.in_counts, size());
  job->pending = std::make_shared<ForeignPending>(engine_, membership(), world_, signature);
  job->request = std::move(request);
  Handle handle(job->pending);
  engine_->submit(*lane_, std::move(job));
  return handle;
}

std::unique_ptr<Comm> ForeignComm::split(int color, int key) {
  const std::int64_t nth = splits_++;
  std::vector<std::int64_t> all(static_cast<std::size_t>(2 * size()));
  std::int64_t own[2]{color, key};
  all_gather({-1, nth}, {all.data(), 2 * size(), DType::i64}, {own, 2, DType::i64}).wait();
  std::vector<Rank> members, worlds;
  for (Rank r = 0; r < size() && color >= 0; ++r)
    if (all[static_cast<std::size_t>(2 * r)] == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](Rank a, Rank b) {
    return all[static_cast<std::size_t>(2 * a + 1)] < all[static_cast<std::size_t>(2 * b + 1)];
  });
  for (const Rank member : members) worlds.push_back((*world_)[static_cast<std::size_t>(member)]);
  std::shared_ptr<ForeignOps> part = ops_->split(nth, color, members);
  return part ? std::make_unique<ForeignComm>(engine_, std::move(part), std::move(worlds), count_)
              : nullptr;
}

}  // namespace

std::unique_ptr<Comm> make_foreign(std::unique_ptr<ForeignOps> ops,
                                   std::shared_ptr<Membership> group) {
  std::vector<Rank> world(static_cast<std::size_t>(ops->size()));
  std::iota(world.begin(), world.end(), 0);
  return std::make_unique<ForeignComm>(std::make_shared<Engine>(std::move(group)), std::move(ops),
                                       std::move(world));
}

}  // namespace thinwire
