// SPDX-License-Identifier: Apache-2.0
// What the links between rank 0 and the others carry, measured with the transport that training
// uses.
#include <algorithm>
#include <limits>
#include <vector>

#include "thinwire/cli/doctor.h"
#include "thinwire/comm/comm.h"

namespace thinwire::cli {
namespace {

constexpr Bytes kFirst = 64 << 10, kMost = 256 << 20;
constexpr Seconds kEnough = 0.5;  // of one transfer; then slow start no longer counts
constexpr int kRoundTrips = 20;
constexpr int kRepeats = 3;  // of that transfer: a busy machine slows some

/// Messages between two ranks; both count the same ids, so that each meets its partner.
class Pair {
 public:
  Pair(Comm& comm, Rank peer) : comm_(comm), peer_(peer) {}
  void send(void* data, Bytes bytes) { comm_.send(next(), {data, bytes, DType::u8}, peer_).wait(); }
  void recv(void* data, Bytes bytes) { comm_.recv(next(), {data, bytes, DType::u8}, peer_).wait(); }

 private:
  MessageId next() { return {.exchange = -1, .step = step_++}; }
  Comm& comm_;
  Rank peer_;
  std::int64_t step_ = 0;
};

Seconds since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct LinkFigures {
  double bytes_per_s = 0;
  Seconds round_trip_s = std::numeric_limits<double>::infinity();
};

/// Larger and larger transfers until one takes long enough, and the best of a few of that size. The
/// sender says each size; 0 ends.
LinkFigures send_side(Pair& pair) {
  LinkFigures figures;
  std::uint8_t mark = 0;
  for (int i = 0; i < kRoundTrips; ++i) {
    const auto begin = Clock::now();
    pair.send(&mark, 1);
    pair.recv(&mark, 1);
    figures.round_trip_s = std::min(figures.round_trip_s, since(begin));
  }
  std::vector<std::uint8_t> data;
  const auto transfer = [&](Bytes bytes) {
    data.resize(static_cast<std::size_t>(bytes));
    pair.send(&bytes, sizeof bytes);
    const auto begin = Clock::now();
    pair.send(data.data(), bytes);
    pair.recv(&mark, 1);
    return since(begin);
  };
  Bytes bytes = kFirst;
  Seconds best = transfer(bytes);
  while (best < kEnough && bytes < kMost) best = transfer(bytes *= 2);
  for (int i = 1; i < kRepeats; ++i) best = std::min(best, transfer(bytes));
  figures.bytes_per_s =
      static_cast<double>(bytes) / std::max(best - figures.round_trip_s / 2, 1e-9);
  Bytes end = 0;
  pair.send(&end, sizeof end);
  return figures;
}

void recv_side(Pair& pair) {
  std::uint8_t mark = 0;
  for (int i = 0; i < kRoundTrips; ++i) {
    pair.recv(&mark, 1);
    pair.send(&mark, 1);
  }
  std::vector<std::uint8_t> data;
  for (;;) {
    Bytes bytes = 0;
    pair.recv(&bytes, sizeof bytes);
    if (bytes == 0) return;
    data.resize(static_cast<std::size_t>(bytes));
    pair.recv(data.data(), bytes);
    pair.send(&mark, 1);
  }
}

}  // namespace

Json measure_links(Comm& comm) {
  Json links = Json::array();
  for (Rank peer = 1; peer < comm.size(); ++peer) {
    for (const bool from_first : {true, false}) {
      const bool first = comm.rank() == 0, other = comm.rank() == peer;
      if (first || other) {
        Pair pair(comm, first ? peer : 0);
        LinkFigures figures;
        if (first == from_first)
          figures = send_side(pair);
        else
          recv_side(pair);
        // Rank 0 gathers; what the other measured travels to it.
        if (!from_first) {
          if (other) pair.send(&figures, sizeof figures);
          if (first) pair.recv(&figures, sizeof figures);
        }
        if (first)
          links.push_back({{"from", from_first ? 0 : peer},
                           {"to", from_first ? peer : 0},
                           {"bytes_per_s", figures.bytes_per_s},
                           {"round_trip_s", figures.round_trip_s}});
      }
      comm.barrier("link check");
    }
  }
  return links;
}

}  // namespace thinwire::cli
