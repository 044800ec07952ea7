// SPDX-License-Identifier: Apache-2.0
// The tcp transport as a Comm: checks at the front, calls behind.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "thinwire/comm/decorator.h"
#include "thinwire/comm/reduce.h"
#include "thinwire/comm/tcp/congestion.h"
#include "thinwire/comm/tcp/mesh.h"
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"
#include "thinwire/core/notice.h"
#include "thinwire/core/rng.h"

namespace thinwire::tcp {
namespace {

constexpr std::uint64_t kWorld = 1;

class TcpComm final : public Comm {
 public:
  TcpComm(std::shared_ptr<Mesh> mesh, std::shared_ptr<const GroupInfo> group)
      : mesh_(std::move(mesh)), group_(std::move(group)) {
    mesh_->add_group(group_);
  }
  ~TcpComm() override { mesh_->drop_group(group_->id); }

  Rank rank() const override { return group_->rank; }
  int size() const override { return group_->size(); }
  CommCaps caps() const override {
    return {.name = "tcp",
            .recv_any = true,
            .reduce_scatter = true,
            .device_buffers = false,
            .rank_order = true,
            .overlaps = true,
            .sums = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::c64, DType::c128,
                     DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}};
  }
  std::string congestion() const { return mesh_->congestion(); }
  CommCounters counters() const override { return mesh_->counters(group_->id); }
  const std::shared_ptr<Membership>& membership() const override { return mesh_->membership(); }

  Handle all_reduce(MessageId id, Buffer data, Combine op) override {
    check_host(CallKind::all_reduce, data, "tcp");
    check_combine(data.dtype, op);
    Call& call = fresh(CallKind::all_reduce, id, data.dtype, data.count, op);
    call.in = call.out = data;
    return mesh_->start(call);
  }

  Handle reduce_scatter(MessageId id, Buffer out, Buffer in, Combine op) override {
    check_host(CallKind::reduce_scatter, in, "tcp");
    check_reduce_scatter(out, in, size());
    check_combine(in.dtype, op);
    Call& call = fresh(CallKind::reduce_scatter, id, in.dtype, out.count, op);
    call.in = in;
    call.out = out;
    return mesh_->start(call);
  }

  Handle all_gather(MessageId id, Buffer out, Buffer in) override {
    check_host(CallKind::all_gather, in, "tcp");
    check_all_gather(out, in, size());
    Call& call = fresh(CallKind::all_gather, id, in.dtype, in.count, Combine::replace);
    call.in = in;
    call.out = out;
    return mesh_->start(call);
  }

  Handle all_to_all(MessageId id, Buffer out, Buffer in, std::span<const std::int64_t> out_counts,
                    std::span<const std::int64_t> in_counts) override {
    check_host(CallKind::all_to_all, in, "tcp");
    check_all_to_all(out, in, out_counts, in_counts, rank(), size());
    Call& call = fresh(CallKind::all_to_all, id, in.dtype, 0, Combine::replace);
    call.in = in;
    call.out = out;
    const Bytes element = dtype_bytes(in.dtype);
    const auto layout = [&](std::span<const std::int64_t> counts, std::vector<std::int64_t>& bytes,
                            std::vector<std::int64_t>& at) {
      bytes.clear();
      at.clear();
      std::int64_t sum = 0;
      for (const std::int64_t count : counts) {
        at.push_back(sum);
        bytes.push_back(count * element);
        sum += count * element;
      }
    };
    layout(in_counts, call.in_bytes, call.in_at);
    layout(out_counts, call.out_bytes, call.out_at);
    return mesh_->start(call);
  }

  Handle broadcast(MessageId id, Buffer data, Rank root) override {
    check_host(CallKind::broadcast, data, "tcp");
    check_rank(CallKind::broadcast, "root", root, size());
    Call& call = fresh(CallKind::broadcast, id, data.dtype, data.count, Combine::replace);
    call.signature.root = root;
    call.in = call.out = data;
    return mesh_->start(call);
  }

  Handle send(MessageId id, Buffer data, Rank to) override {
    check_host(CallKind::send, data, "tcp");
    check_rank(CallKind::send, "the receiver", to, size());
    if (to == rank()) throw ConfigError(fmt::format("send: rank {} cannot send to itself", to));
    Call& call = fresh(CallKind::send, id, data.dtype, data.count, Combine::replace);
    call.in = call.out = data;
    call.partner = to;
    return mesh_->start_message(call);
  }

  Handle recv(MessageId id, Buffer data, std::optional<Rank> from) override {
    check_host(CallKind::recv, data, "tcp");
    if (from) check_rank(CallKind::recv, "the sender", *from, size());
    if (from == rank())
      throw ConfigError(fmt::format("recv: rank {} cannot receive from itself", *from));
    Call& call = fresh(CallKind::recv, id, data.dtype, data.count, Combine::replace);
    call.in = call.out = data;
    call.partner = from.value_or(-1);
    return mesh_->start_message(call);
  }

  void barrier(const std::string& name) override {
    const std::int64_t hash =
        static_cast<std::int64_t>(hash_bytes(name.data(), static_cast<std::int64_t>(name.size())));
    std::vector<std::int64_t> names(static_cast<std::size_t>(size()), hash);
    Call& call = fresh(CallKind::barrier, {}, DType::i64, 1, Combine::replace);
    call.in = {names.data() + rank(), 1, DType::i64};
    call.out = {names.data(), size(), DType::i64};
    mesh_->start(call, name).wait();
    const auto other = std::find_if(names.begin(), names.end(),
                                    [&](std::int64_t theirs) { return theirs != names[0]; });
    if (other == names.end()) return;
    const std::string text = fmt::format(
        "the ranks disagree: rank {} and rank {} are at barriers of other names", group_->world[0],
        group_->world[static_cast<std::size_t>(other - names.begin())]);
    std::rethrow_exception(error_of(membership()->fail({-1, text}), "barrier '" + name + "'"));
  }

  std::unique_ptr<Comm> split(int color, int key) override {
    const std::int64_t nth = mesh_->next_split(group_->id);
    std::vector<std::int64_t> all(2 * static_cast<std::size_t>(size()));
    const std::int64_t own[2] = {color, key};
    all_gather({-1, nth}, {all.data(), 2 * size(), DType::i64},
               {const_cast<std::int64_t*>(own), 2, DType::i64})
        .wait();
    if (color < 0) return nullptr;
    std::vector<Rank> members;
    for (Rank r = 0; r < size(); ++r)
      if (all[2 * static_cast<std::size_t>(r)] == color) members.push_back(r);
    std::stable_sort(members.begin(), members.end(), [&](Rank a, Rank b) {
      return all[2 * static_cast<std::size_t>(a) + 1] < all[2 * static_cast<std::size_t>(b) + 1];
    });
    auto group = std::make_shared<GroupInfo>();
    const std::uint64_t words[3] = {group_->id, static_cast<std::uint64_t>(nth),
                                    static_cast<std::uint64_t>(color)};
    group->id = hash_bytes(words, sizeof words);
    group->parent = group_->id;
    for (const Rank r : members) group->world.push_back(group_->world[static_cast<std::size_t>(r)]);
    group->rank =
        static_cast<Rank>(std::find(members.begin(), members.end(), rank()) - members.begin());
    return std::make_unique<TcpComm>(mesh_, std::move(group));
  }

 private:
  Call& fresh(CallKind kind, const MessageId& id, DType dtype, std::int64_t count, Combine op) {
    Call& call = mesh_->fresh_call(group_);
    call.signature = {kind, id, dtype, count, op, -1};
    return call;
  }

  std::shared_ptr<Mesh> mesh_;
  std::shared_ptr<const GroupInfo> group_;
};

}  // namespace

Options parse_options(const Spec& spec) {
  SpecReader reader(spec);
  Options options;
  const std::string algorithm = reader.text("algorithm", "chosen");
  options.chunk = reader.bytes("chunk", options.chunk);
  options.eager = reader.bytes("eager", options.eager);
  options.congestion = reader.text("congestion", "");
  reader.finish();
  if (!options.congestion.empty()) check_congestion(options.congestion);
  if (algorithm == "shard") {
    options.all_reduce = AllReduce::shard;
  } else if (algorithm == "gather") {
    options.all_reduce = AllReduce::gather;
  } else if (algorithm != "chosen") {
    throw ConfigError(
        fmt::format("tcp: algorithm must be chosen, shard or gather, got {}", algorithm));
  }
  if (options.chunk < 1024 || options.chunk > kMostFrameLength)
    throw ConfigError(fmt::format("tcp: chunk must be in [1024, {}] bytes, got {}",
                                  kMostFrameLength, options.chunk));
  if (options.eager < 0 || options.eager > kMostFrameLength)
    throw ConfigError(fmt::format("tcp: eager must be in [0, {}] bytes, got {}", kMostFrameLength,
                                  options.eager));
  return options;
}

std::unique_ptr<Comm> make_tcp(const Spec& spec, std::shared_ptr<Membership> membership,
                               std::pair<int, int> ports) {
  const Options options = parse_options(spec);
  auto group = std::make_shared<GroupInfo>();
  group->id = kWorld;
  group->world.resize(static_cast<std::size_t>(membership->size()));
  std::iota(group->world.begin(), group->world.end(), 0);
  group->rank = membership->rank();
  return std::make_unique<TcpComm>(Mesh::make(std::move(membership), options, ports),
                                   std::move(group));
}

}  // namespace thinwire::tcp

namespace thinwire {

std::string congestion_control(Comm& comm) {
  Comm* inner = &comm;
  while (auto* decorator = dynamic_cast<Decorator*>(inner)) inner = &decorator->inner();
  const auto* over_tcp = dynamic_cast<const tcp::TcpComm*>(inner);
  return over_tcp ? over_tcp->congestion() : "";
}

std::unique_ptr<Comm> make_tcp(const Spec& spec, std::shared_ptr<Membership> membership,
                               std::pair<int, int> ports) {
  return tcp::make_tcp(spec, std::move(membership), ports);
}

void register_tcp(Registry<CommFactory>& registry) {
  registry.add(
      "tcp",
      [](const Spec& spec, const JoinOptions& join) {
        tcp::parse_options(spec);  // a wrong option must not leave the others waiting
        auto comm = tcp::make_tcp(spec, join_group(join), {join.port_first, join.port_last});
        if (comm->rank() == 0 && comm->size() > 1)
          notice(fmt::format("tcp: congestion control {}", congestion_control(*comm)));
        return comm;
      },
      "framed messages over plain sockets; algorithm=chosen|shard|gather, chunk=256KiB, "
      "eager=64KiB, congestion=NAME");
}

}  // namespace thinwire
