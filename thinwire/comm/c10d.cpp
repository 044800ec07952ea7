// SPDX-License-Identifier: Apache-2.0
// The one source of comm that knows torch. Data travels as bytes; sums that Gloo makes in another
// way than comm.h promises (16-bit types) or not at all (i16) are made by Thinwire, see
// foreign_calls.cpp.
#include "thinwire/comm/c10d.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "thinwire/comm/foreign.h"
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;
using Store = c10::intrusive_ptr<c10d::Store>;

std::chrono::milliseconds milliseconds(Seconds seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// Gloo's own deadline lies behind ours, so that it is our error that the caller sees.
constexpr Seconds kBehind = 30;

at::Tensor tensor(void* data, std::int64_t count, at::ScalarType type) {
  static char nothing[16];
  return at::from_blob(count > 0 ? data : nothing, {count}, at::TensorOptions().dtype(type));
}
at::Tensor bytes_of(const Buffer& buffer) { return tensor(buffer.data, buffer.bytes(), at::kByte); }

/// As numbers; a complex number is two.
at::Tensor numbers_of(const Buffer& buffer) {
  switch (buffer.dtype) {
    case DType::f64:
      return tensor(buffer.data, buffer.count, at::kDouble);
    case DType::c128:
      return tensor(buffer.data, 2 * buffer.count, at::kDouble);
    case DType::c64:
      return tensor(buffer.data, 2 * buffer.count, at::kFloat);
    case DType::i64:
      return tensor(buffer.data, buffer.count, at::kLong);
    case DType::i32:
      return tensor(buffer.data, buffer.count, at::kInt);
    case DType::i8:
      return tensor(buffer.data, buffer.count, at::kChar);
    case DType::u8:
      return tensor(buffer.data, buffer.count, at::kByte);
    default:
      return tensor(buffer.data, buffer.count, at::kFloat);
  }
}

c10d::ReduceOp operation(Combine op) {
  switch (op) {
    case Combine::max:
      return c10d::ReduceOp::MAX;
    case Combine::min:
      return c10d::ReduceOp::MIN;
    case Combine::bit_and:
      return c10d::ReduceOp::BAND;
    case Combine::bit_or:
      return c10d::ReduceOp::BOR;
    default:
      return c10d::ReduceOp::SUM;
  }
}

/// Collectives of c10d tell when they are done. A backend without host memory works on copies.
class WorkCall final : public ForeignCall {
 public:
  WorkCall(c10::intrusive_ptr<c10d::Work> work, at::Tensor host, std::vector<at::Tensor> used)
      : work_(std::move(work)), host_(std::move(host)), used_(std::move(used)) {}
  bool ready() override {
    if (!work_->isCompleted()) return false;
    work_->wait();  // throws what went wrong
    if (!used_[0].is_same(host_)) host_.copy_(used_[0]);
    return true;
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor host_;
  std::vector<at::Tensor> used_;  ///< the output first
};

/// Messages of Gloo do not; a wait with a deadline would break the connection. One thread sleeps in
/// each.
class MessageCall final : public ForeignCall {
 public:
  explicit MessageCall(c10::intrusive_ptr<c10d::Work> work) : state_(std::make_shared<State>()) {
    state_->work = std::move(work);
    std::thread([state = state_] {
      try {
        state->work->wait();
      } catch (...) {
        state->error = std::current_exception();
      }
      state->done.store(true, std::memory_order_release);
    }).detach();
  }
  bool ready() override {
    if (!state_->done.load(std::memory_order_acquire)) return false;
    if (state_->error) std::rethrow_exception(state_->error);
    return true;
  }

 private:
  struct State {
    c10::intrusive_ptr<c10d::Work> work;
    std::atomic<bool> done{false};
    std::exception_ptr error;
  };
  std::shared_ptr<State> state_;
};

class NothingToDo final : public ForeignCall {
 public:
  bool ready() override { return true; }
};

Backend gloo(const Store& store, Rank rank, int size, const std::string& address,
             Seconds timeout_s) {
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout_s + kBehind));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->threads = 2;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

class C10dOps final : public ForeignOps {
 public:
  C10dOps(Backend backend, at::Device device, Store store, std::string address, Seconds timeout_s)
      : backend_(std::move(backend)),
        device_(device),
        store_(std::move(store)),
        address_(std::move(address)),
        timeout_s_(timeout_s) {}
  Rank rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }
  std::string name() const override { return "c10d"; }
  bool messages() const override { return device_.is_cpu(); }
  bool sums(DType dtype, Combine op) const override {
    if (!device_.is_cpu() && (op == Combine::bit_and || op == Combine::bit_or)) return false;
    switch (dtype) {
      case DType::f64:
      case DType::f32:
      case DType::i64:
      case DType::i32:
      case DType::i8:
      case DType::u8:
        return true;
      case DType::c64:
      case DType::c128:
        return op == Combine::sum;
      default:
        return false;
    }
  }
  std::unique_ptr<ForeignCall> start(const ForeignRequest& r) override;
  std::unique_ptr<ForeignOps> split(std::int64_t nth, int color,
                                    const std::vector<Rank>& members) override;
  // Gloo's destructor waits for its calls; one reference too many keeps it from running.
  void park() override { static_cast<void>(c10::intrusive_ptr<c10d::Backend>(backend_).release()); }

 private:
  Backend backend_;
  at::Device device_;  ///< where the backend's memory is
  Store store_;
  std::string address_;
  Seconds timeout_s_;
};

std::unique_ptr<ForeignCall> C10dOps::start(const ForeignRequest& r) {
  const Signature& s = r.signature;
  const bool uneven = s.kind == CallKind::all_to_all;
  if (!uneven && s.count == 0 && s.kind != CallKind::send && s.kind != CallKind::recv)
    return std::make_unique<NothingToDo>();
  const auto tag = [&] { return tag_of(s.id, 30); };
  at::Tensor host = s.kind == CallKind::all_reduce ? numbers_of(r.out)
                    : s.kind == CallKind::send     ? bytes_of(r.in)
                                                   : bytes_of(r.out);
  std::vector<at::Tensor> data{host.to(device_)};  // the same tensor where the device is the host
  const auto done = [&](c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> in = {}) {
    in.insert(in.begin(), data[0]);
    return std::make_unique<WorkCall>(std::move(work), host, std::move(in));
  };
  switch (s.kind) {
    case CallKind::all_reduce: {
      c10d::AllreduceOptions options;
      options.reduceOp = operation(s.op);
      return done(backend_->allreduce(data, options));
    }
    case CallKind::all_gather: {
      at::Tensor in = bytes_of(r.in).to(device_);
      return done(backend_->_allgather_base(data[0], in), {in});
    }
    case CallKind::all_to_all: {
      at::Tensor in = bytes_of(r.in).to(device_);
      auto in_bytes = r.in_counts, out_bytes = r.out_counts;
      for (auto* counts : {&in_bytes, &out_bytes})
        for (std::int64_t& count : *counts) count *= dtype_bytes(s.dtype);
      return done(backend_->alltoall_base(data[0], in, out_bytes, in_bytes), {in});
    }
    case CallKind::broadcast: {
      c10d::BroadcastOptions options;
      options.rootRank = s.root;
      return done(backend_->broadcast(data, options));
    }
    case CallKind::send:
      return std::make_unique<MessageCall>(backend_->send(data, s.root, tag()));
    case CallKind::recv:
      return std::make_unique<MessageCall>(s.root < 0 ? backend_->recvAnysource(data, tag())
                                                      : backend_->recv(data, s.root, tag()));
    default:
      throw UnsupportedError("c10d: " + describe(s));
  }
}

std::unique_ptr<ForeignOps> C10dOps::split(std::int64_t nth, int color,
                                           const std::vector<Rank>& members) {
  if (!store_)
    throw UnsupportedError(
        "c10d: split needs the store of the process group; give it to wrap_process_group");
  if (members.empty()) return nullptr;
  const Store part = c10::make_intrusive<c10d::PrefixStore>(
      "split/" + std::to_string(nth) + "/" + std::to_string(color), store_);
  Rank mine = 0;
  for (std::size_t i = 0; i < members.size(); ++i)
    if (members[i] == rank()) mine = static_cast<Rank>(i);
  Backend backend =
      device_.is_cpu()
          ? gloo(part, mine, static_cast<int>(members.size()), address_, timeout_s_)
          : backend_->split(part, {members.begin(), members.end()}, backend_->getBackendOptions());
  return std::make_unique<C10dOps>(std::move(backend), device_, part, address_, timeout_s_);
}

std::string address_in(const Membership& group, Rank rank) {
  const std::string address = group.address_of(rank);
  return address.empty() ? "127.0.0.1" : address;
}

Store connect_store(const std::string& host, int port, Seconds timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// Where the memory of a process group's calls has to be: the host if it takes that.
at::Device memory_of(const c10d::ProcessGroup& process_group) {
  const std::vector<at::Device> devices = process_group.getDeviceTypes();
  for (const at::Device& device : devices)
    if (device.is_cpu()) return device;
  if (devices.empty()) throw ConfigError("wrap_process_group: the process group has no backend");
  return c10::impl::getDeviceGuardImpl(devices[0].type())->getDevice();
}

/// c10d's exceptions become CommError with the operation's name.
template <class Fn>
auto translated(const char* what, Fn fn) {
  try {
    return fn();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw CommError(std::string("c10d: ") + what + ": " + text.substr(0, text.find('\n')));
  }
}

}  // namespace

std::unique_ptr<Comm> make_gloo(std::shared_ptr<Membership> group) {
  return translated("making Gloo", [&] {
    Store store;
    std::string port;
    if (group->rank() == 0) {
      c10d::TCPStoreOptions options;
      options.port = 0;
      options.isServer = true;
      options.waitWorkers = false;
      options.timeout = milliseconds(group->timeout_s());
      const auto server = c10::make_intrusive<c10d::TCPStore>(address_in(*group, 0), options);
      port = std::to_string(server->getPort());
      store = server;
    }
    port = group->all_gather("port of the c10d store", port)[0];
    if (!store) store = connect_store(address_in(*group, 0), std::stoi(port), group->timeout_s());
    const std::string own = address_in(*group, group->rank());
    auto ops = std::make_unique<C10dOps>(
        gloo(store, group->rank(), group->size(), own, group->timeout_s()), at::kCPU, store, own,
        group->timeout_s());
    // The store lives on rank 0: nobody goes on before all have what they need of it.
    group->all_gather("c10d is made", "");
    return make_foreign(std::move(ops), group);
  });
}

std::unique_ptr<Comm> wrap_process_group(
    const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, std::shared_ptr<Membership> group,
    const Store& store) {
  return translated("wrapping a process group", [&] {
    if (process_group->getRank() != group->rank() || process_group->getSize() != group->size())
      throw ConfigError("wrap_process_group: the process group must have the membership's ranks, " +
                        std::to_string(group->rank()) + " of " + std::to_string(group->size()) +
                        ", got " + std::to_string(process_group->getRank()) + " of " +
                        std::to_string(process_group->getSize()));
    const at::Device device = memory_of(*process_group);
    auto ops = std::make_unique<C10dOps>(process_group->getBackend(device.type()), device, store,
                                         address_in(*group, group->rank()), group->timeout_s());
    return make_foreign(std::move(ops), group);
  });
}

std::function<std::string(const std::string&)> publish_through_store(const std::string& host,
                                                                     int port,
                                                                     const std::string& key_prefix,
                                                                     Rank rank, Seconds timeout_s) {
  return [=](const std::string& own) {
    return translated("publishing an address", [&] {
      const Store store = connect_store(host, port, timeout_s);
      const std::string key = key_prefix + "/address";
      if (rank == 0) store->set(key, std::vector<std::uint8_t>(own.begin(), own.end()));
      const auto value = store->get(key);
      return std::string(value.begin(), value.end());
    });
  };
}

void register_c10d() {
  c10d_factory() = [](const Spec& spec, const JoinOptions& join) {
    SpecReader(spec).finish();
    return make_gloo(join.size == 1 ? local_group(1, join.timeout_s)[0] : join_group(join));
  };
}

}  // namespace thinwire
