// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/comm_checks.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "tests/conformance/comm_values.h"
#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire::test {
namespace {

const std::vector<DType> kAll{DType::f64, DType::f32,  DType::f16, DType::bf16,
                              DType::c64, DType::c128, DType::i64, DType::i32,
                              DType::i16, DType::i8,   DType::u8,  DType::bool8};
const std::vector<std::int64_t> kCounts{0, 1, 7, 8, 1000, 4097};

bool is_complex(DType d) { return d == DType::c64 || d == DType::c128; }
bool is_float(DType d) {
  return d == DType::f64 || d == DType::f32 || d == DType::f16 || d == DType::bf16 || is_complex(d);
}

std::vector<Combine> ops_of(DType dtype) {
  std::vector<Combine> ops{Combine::sum};
  if (is_float(dtype)) ops.push_back(Combine::mean);
  if (!is_complex(dtype)) ops.insert(ops.end(), {Combine::max, Combine::min});
  if (!is_float(dtype)) ops.insert(ops.end(), {Combine::bit_and, Combine::bit_or});
  return ops;
}

std::string words(const Comm& comm, DType dtype, std::int64_t count,
                  Combine op = Combine::replace) {
  return std::string(to_string(dtype)) + " x " + std::to_string(count) + ", " +
         std::string(to_string(op)) + ", rank " + std::to_string(comm.rank()) + " of " +
         std::to_string(comm.size());
}

/// Order-free values everywhere; values that show the order where the transport promises rank
/// order.
std::vector<bool> kinds_of_values(const Comm& comm) {
  return comm.caps().rank_order || comm.size() <= 2 ? std::vector<bool>{false, true}
                                                    : std::vector<bool>{false};
}

void all_reduce_one(Comm& comm, DType dtype, std::int64_t count, Combine op, bool rough,
                    std::int64_t step) {
  Array data = values(dtype, comm.rank(), count, rough);
  comm.all_reduce({0, step}, data.buffer(), op).wait();
  require(data == combined(dtype, comm.size(), 0, count, op, rough),
          "all_reduce: " + words(comm, dtype, count, op));
}

void all_reduce(Comm& comm) {
  std::int64_t step = 0;
  for (const DType dtype : comm.caps().sums)
    for (const Combine op : ops_of(dtype))
      for (const std::int64_t count : kCounts)
        for (const bool rough : kinds_of_values(comm))
          all_reduce_one(comm, dtype, count, op, rough, step++);
}

void all_reduce_large(Comm& comm) {
  all_reduce_one(comm, DType::f32, 1000003, Combine::mean, kinds_of_values(comm).back(), 0);
  const auto sums = comm.caps().sums;
  if (std::find(sums.begin(), sums.end(), DType::bf16) != sums.end())
    all_reduce_one(comm, DType::bf16, 1000003, Combine::sum, false, 1);
}

/// Values whose mean depends on whether the division is done once or for each part: 3 ranks x 0.1
/// in f32.
void mean_divides_once(Comm& comm) {
  std::vector<float> data(3, 0.1f + static_cast<float>(comm.rank()));
  comm.all_reduce({1, 0}, {data.data(), 3, DType::f32}, Combine::mean).wait();
  float sum = 0.1f;
  for (Rank r = 1; r < comm.size(); ++r) sum += 0.1f + static_cast<float>(r);
  if (comm.caps().rank_order || comm.size() <= 2)
    require(data[0] == sum / static_cast<float>(comm.size()), "mean: not the sum divided once");
}

void reduce_scatter(Comm& comm) {
  if (!comm.caps().reduce_scatter) return;
  const int n = comm.size();
  std::int64_t step = 0;
  for (const DType dtype : comm.caps().sums)
    for (const Combine op : ops_of(dtype))
      for (const std::int64_t count : {0, 1, 7, 1000})
        for (const bool rough : kinds_of_values(comm)) {
          const Array want = combined(dtype, n, comm.rank() * count, count, op, rough);
          Array in = values(dtype, comm.rank(), n * count, rough), out(dtype, count);
          comm.reduce_scatter({2, step++}, out.buffer(), in.buffer(), op).wait();
          require(out == want, "reduce_scatter: " + words(comm, dtype, count, op));
        }
}

void all_gather(Comm& comm) {
  const int n = comm.size();
  std::int64_t step = 0;
  for (const DType dtype : kAll)
    for (const std::int64_t count : {0, 1, 7, 1000}) {
      Array want(dtype, n * count), in = values(dtype, comm.rank(), count), out(dtype, n * count);
      for (Rank r = 0; r < n; ++r) {
        Array part = values(dtype, r, count);
        std::memcpy(want.buffer(r * count, count).data, part.buffer().data,
                    static_cast<std::size_t>(in.buffer().bytes()));
      }
      comm.all_gather({3, step++}, out.buffer(), in.buffer()).wait();
      require(out == want, "all_gather: " + words(comm, dtype, count));
      Array own(dtype, n * count);  // in place: in is part rank() of out
      const Buffer part = own.buffer(comm.rank() * count, count);
      std::memcpy(part.data, in.buffer().data, static_cast<std::size_t>(part.bytes()));
      comm.all_gather({3, step++}, own.buffer(), part).wait();
      require(own == want, "all_gather in place: " + words(comm, dtype, count));
    }
}

/// Rank a sends (a * 3 + b * 5) % 7 blocks to rank b: uneven, with zeros.
std::int64_t share(Rank from, Rank to, std::int64_t unit) {
  return ((from * 3 + to * 5) % 7) * unit;
}

void all_to_all(Comm& comm) {
  const int n = comm.size();
  std::int64_t step = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::i64, DType::u8})
    for (const std::int64_t unit : {0, 1, 129}) {
      std::vector<std::int64_t> in_counts, out_counts;
      for (Rank r = 0; r < n; ++r) in_counts.push_back(share(comm.rank(), r, unit));
      for (Rank r = 0; r < n; ++r) out_counts.push_back(share(r, comm.rank(), unit));
      const auto total = [](const auto& c) {
        return std::accumulate(c.begin(), c.end(), std::int64_t{0});
      };
      Array in = values(dtype, comm.rank(), total(in_counts)), out(dtype, total(out_counts)),
            want(dtype, total(out_counts));
      std::int64_t into = 0;
      for (Rank from = 0; from < n; ++from) {
        std::int64_t first = 0, all = 0;
        for (Rank to = 0; to < n; ++to) {
          if (to == comm.rank()) first = all;
          all += share(from, to, unit);
        }
        Array theirs = values(dtype, from, all);
        const Buffer piece = theirs.buffer(first, share(from, comm.rank(), unit));
        if (piece.count > 0)
          std::memcpy(want.buffer(into, piece.count).data, piece.data,
                      static_cast<std::size_t>(piece.bytes()));
        into += piece.count;
      }
      comm.all_to_all({4, step++}, out.buffer(), in.buffer(), out_counts, in_counts).wait();
      require(out == want, "all_to_all: " + words(comm, dtype, unit));
    }
}

void broadcast(Comm& comm) {
  std::int64_t step = 0;
  for (const DType dtype : kAll)
    for (Rank root = 0; root < comm.size(); ++root)
      for (const std::int64_t count : {0, 1, 1001}) {
        Array data = values(dtype, comm.rank(), count);
        comm.broadcast({5, step++}, data.buffer(), root).wait();
        require(data == values(dtype, root, count), "broadcast: " + words(comm, dtype, count));
      }
}

/// Each to each, the receives posted in the opposite order of the sends; equal ids stay in order.
void messages(Comm& comm) {
  const int n = comm.size();
  std::vector<Array> out, in;
  std::vector<Handle> handles;
  constexpr int kEach = 3;
  for (int k = 0; k < n * kEach * 2; ++k) in.emplace_back(DType::i32, 1 + k % 5 * 1000);
  for (Rank to = 0; to < n; ++to)
    for (int k = 0; k < kEach * 2; ++k) {
      Array data = values(DType::i32, comm.rank() * 100 + to * 10 + k, 1 + (to * 0 + k) % 5 * 1000);
      out.push_back(data);
    }
  for (Rank to = 0; to < n; ++to)
    for (int k = 0; k < kEach * 2 && to != comm.rank(); ++k)
      handles.push_back(comm.send({6 + k / 2, 4},
                                  out[static_cast<std::size_t>(to * kEach * 2 + k)].buffer(), to));
  std::vector<Array> got;
  got.reserve(static_cast<std::size_t>(n * kEach * 2));
  std::vector<std::string> wrong;
  std::vector<std::pair<Rank, int>> which;
  for (Rank from = n - 1; from >= 0; --from)
    for (int id = kEach - 1; id >= 0 && from != comm.rank(); --id)
      for (int k = 2 * id; k < 2 * id + 2; ++k) {
        got.emplace_back(DType::i32, 1 + k % 5 * 1000);
        which.emplace_back(from, k);
        handles.push_back(comm.recv({6 + id, 4}, got.back().buffer(), from));
      }
  for (const Handle& handle : handles) handle.wait();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto [from, k] = which[i];
    require(got[i] == values(DType::i32, from * 100 + comm.rank() * 10 + k, 1 + k % 5 * 1000),
            "send/recv: from rank " + std::to_string(from) + ", message " + std::to_string(k));
  }
}

/// Rank 0 takes from whoever comes: it gets one message of each other rank, whole.
void receive_any(Comm& comm) {
  if (!comm.caps().recv_any) return;
  constexpr std::int64_t kCount = 513;
  if (comm.rank() != 0) {
    std::vector<std::int64_t> data(kCount, comm.rank());
    comm.send({9, 1}, {data.data(), kCount, DType::i64}, 0).wait();
    return;
  }
  std::vector<std::int64_t> seen(static_cast<std::size_t>(comm.size()));
  for (int i = 1; i < comm.size(); ++i) {
    std::vector<std::int64_t> data(kCount, -1);
    comm.recv({9, 1}, {data.data(), kCount, DType::i64}, std::nullopt).wait();
    require(std::all_of(data.begin(), data.end(), [&](auto x) { return x == data[0]; }),
            "recv any: a torn message");
    ++seen.at(static_cast<std::size_t>(data[0]));
  }
  for (Rank r = 1; r < comm.size(); ++r)
    require(seen[static_cast<std::size_t>(r)] == 1,
            "recv any: rank " + std::to_string(r) + " came not once");
}

/// Many calls of all kinds under way at once, waited for backwards.
void in_flight(Comm& comm) {
  constexpr int kCalls = 24;
  const int n = comm.size();
  std::vector<Array> data, gathered;
  std::vector<Handle> handles;
  data.reserve(kCalls);
  gathered.reserve(kCalls);
  for (int k = 0; k < kCalls; ++k) {
    data.push_back(values(DType::f32, comm.rank(), 100 + k * 37));
    gathered.emplace_back(DType::f32, n * (100 + k * 37));
    if (k % 3 == 0)
      handles.push_back(
          comm.all_gather({10 + k, 2}, gathered.back().buffer(), data.back().buffer()));
    else if (k % 3 == 1)
      handles.push_back(comm.all_reduce({10 + k, 2}, data.back().buffer(), Combine::sum));
    else
      handles.push_back(comm.broadcast({10 + k, 2}, data.back().buffer(), k % n));
  }
  for (int k = kCalls - 1; k >= 0; --k) {
    const auto i = static_cast<std::size_t>(k);
    handles[i].wait();
    require(handles[i].ready(), "in flight: a handle that has been waited for is not ready");
    const std::int64_t count = 100 + k * 37;
    if (k % 3 == 1)
      require(data[i] == combined(DType::f32, n, 0, count, Combine::sum), "in flight: all_reduce");
    if (k % 3 == 2) require(data[i] == values(DType::f32, k % n, count), "in flight: broadcast");
    for (Rank r = 0; r < n && k % 3 == 0; ++r)
      require(std::memcmp(gathered[i].buffer(r * count, count).data,
                          values(DType::f32, r, count).buffer().data,
                          static_cast<std::size_t>(count) * 4) == 0,
              "in flight: all_gather");
  }
}

void sub_groups(Comm& comm) {
  const int n = comm.size();
  // Odd and even, the order turned round.
  const auto half = comm.split(comm.rank() % 2, -comm.rank());
  const int members = (n + 1 - comm.rank() % 2) / 2;
  require(half && half->size() == members,
          "split: the group has " + std::to_string(half->size()) + " ranks");
  require(half->rank() == members - 1 - comm.rank() / 2, "split: keys do not order the ranks");
  std::vector<std::int64_t> all(static_cast<std::size_t>(members));
  std::int64_t own = comm.rank();
  half->all_gather({40, 0}, {all.data(), members, DType::i64}, {&own, 1, DType::i64}).wait();
  for (int i = 0; i < members; ++i)
    require(all[static_cast<std::size_t>(i)] == 2 * (members - 1 - i) + comm.rank() % 2,
            "split: wrong members");
  std::int64_t sum = comm.rank();
  half->all_reduce({40, 1}, {&sum, 1, DType::i64}, Combine::sum).wait();
  require(sum == std::accumulate(all.begin(), all.end(), std::int64_t{0}),
          "split: the sum is not the group's");
  // All but the last; calls of the whole and of the part alternate.
  const auto most = comm.split(comm.rank() == n - 1 ? -1 : 7, comm.rank());
  require((most == nullptr) == (comm.rank() == n - 1), "split: colour -1 gives no group");
  std::int64_t whole = 1, part = 1;
  const Handle first = comm.all_reduce({41, 0}, {&whole, 1, DType::i64}, Combine::sum);
  if (most) most->all_reduce({41, 0}, {&part, 1, DType::i64}, Combine::sum).wait();
  first.wait();
  require(whole == n && (!most || part == n - 1), "split: whole and part mix");
  comm.barrier("sub groups");
}

/// Independent groups used from several threads of a rank at once.
void groups_in_threads(Comm& comm) {
  constexpr int kThreads = 3;
  std::vector<std::unique_ptr<Comm>> groups;
  for (int t = 0; t < kThreads; ++t) groups.push_back(comm.split(0, comm.rank()));
  std::vector<std::exception_ptr> errors(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      try {
        for (int step = 0; step < 20; ++step) {
          Array data = values(DType::i32, comm.rank() + t, 300 + step);
          groups[static_cast<std::size_t>(t)]
              ->all_reduce({50, step}, data.buffer(), Combine::max)
              .wait();
          for (std::int64_t i = 0; i < 300 + step; ++i) {
            std::int32_t want = 0;
            for (Rank r = 0; r < comm.size(); ++r)
              want = std::max(want, value<std::int32_t>(r + t, i, false));
            require(data.get<std::int32_t>(i) == want,
                    "groups in threads: thread " + std::to_string(t));
          }
        }
      } catch (...) {
        errors[static_cast<std::size_t>(t)] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

void barriers(Comm& comm) {
  for (int i = 0; i < 20; ++i) comm.barrier("barrier " + std::to_string(i));
}

void counts_bytes(Comm& comm) {
  const CommCounters before = comm.counters();
  std::vector<float> data(1000, 1);
  comm.all_reduce({60, 0}, {data.data(), 1000, DType::f32}, Combine::sum).wait();
  const CommCounters after = comm.counters();
  require(after.calls == before.calls + 1, "counters: one call counts as one");
  const bool sent = after.payload_bytes > before.payload_bytes;
  require(sent == (comm.size() > 1),
          "counters: an all_reduce of several ranks sends, one of one rank does not");

  const auto part = comm.split(0, comm.rank());
  const CommCounters made = comm.counters();
  part->all_reduce({60, 1}, {data.data(), 1000, DType::f32}, Combine::sum).wait();
  const CommCounters own = part->counters(), all = comm.counters();
  require(own.calls == 1, "counters: a part begins at 0 and counts its own");
  require(all.calls == made.calls + 1, "counters: the calls of a part count for its parent too");
  require(all.payload_bytes - made.payload_bytes == own.payload_bytes,
          "counters: the bytes of a part count for its parent too");
}

template <class E, class Fn>
void refused(Fn fn, const std::string& expected) {
  try {
    fn();
  } catch (const E& error) {
    return require(std::string(error.what()).find(expected) != std::string::npos,
                   "refusal: '" + std::string(error.what()) + "' does not hold '" + expected + "'");
  }
  throw std::runtime_error("refusal: nothing was thrown; expected: " + expected);
}

/// What is wrong on its face is refused before anything starts, and the communicator lives on.
void refuses_nonsense(Comm& comm) {
  std::vector<float> data(8);
  const Buffer buffer{data.data(), 8, DType::f32};
  refused<UnsupportedError>([&] { comm.all_reduce({70, 0}, buffer, Combine::bit_and); }, "bit_and");
  refused<ConfigError>([&] { comm.broadcast({70, 0}, buffer, comm.size()); }, "root");
  refused<ConfigError>([&] { comm.all_gather({70, 0}, {data.data(), 0, DType::f32}, buffer); },
                       "all_gather");
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()), 3);
  refused<ConfigError>(
      [&] { comm.all_to_all({70, 0}, {data.data(), 1, DType::f32}, buffer, counts, counts); },
      "all_to_all");
  comm.barrier("after nonsense");
}

}  // namespace

std::vector<CommCheck> comm_checks(bool large) {
  std::vector<CommCheck> checks{{"all_reduce", all_reduce},
                                {"mean_divides_once", mean_divides_once},
                                {"reduce_scatter", reduce_scatter},
                                {"all_gather", all_gather},
                                {"all_to_all", all_to_all},
                                {"broadcast", broadcast},
                                {"messages", messages},
                                {"receive_any", receive_any},
                                {"in_flight", in_flight},
                                {"sub_groups", sub_groups},
                                {"groups_in_threads", groups_in_threads},
                                {"barriers", barriers},
                                {"counts_bytes", counts_bytes},
                                {"refuses_nonsense", refuses_nonsense}};
  if (large) checks.push_back({"all_reduce_large", all_reduce_large});
  return checks;
}

void run_comm_checks(Comm& comm, bool large) {
  for (const CommCheck& check : comm_checks(large)) {
    try {
      check.run(comm);
    } catch (const std::exception& error) {
      throw std::runtime_error(check.name + ": " + error.what());
    }
  }
}

}  // namespace thinwire::test
