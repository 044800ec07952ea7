// SPDX-License-Identifier: Apache-2.0
// Hostile bytes on the data connections of the tcp transport. Rank 0 is real and has calls of every
// plan under way; its peers are this program: they know the run id and send any frames they like,
// before and after the calls are started. Nothing but an error of the group may come of it.
//
// An input is a byte that chooses the group, a byte that says how the rest is shared out, and the
// streams of the peers. So that mutation reaches what lies behind the first check, magic and run
// id of each header are put right on the way, unless the first byte says otherwise.
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "thinwire/comm/membership.h"
#include "thinwire/comm/tcp/mesh.h"
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"

namespace {
std::vector<int> ends;  // of rank 0, for the group that is made next
}  // namespace

namespace thinwire::tcp {
/// In place of the transport's own, which connects over the network.
std::vector<int> connect_all(Membership&, const std::string&, std::pair<int, int>) { return ends; }
}  // namespace thinwire::tcp

namespace {

using namespace thinwire;
using Stream = std::vector<std::byte>;

constexpr unsigned kLeaveHeaders = 0x80, kThreeRanks = 0x01, kCallsFirst = 0x02, kSpecAt = 2;
constexpr const char* kSpecs[] = {"tcp{chunk=1024,eager=4096}", "tcp{chunk=1024,eager=0}",
                                  "tcp{chunk=1024,eager=4096,algorithm=shard}",
                                  "tcp{chunk=1024,eager=0,algorithm=shard}"};

/// Puts magic and run id of each header right, following the lengths as the receiver does.
void put_right(Stream& stream) {
  const std::uint64_t run = hash_bytes("fuzz", 4);
  tcp::FrameBytes sample;
  tcp::encode({}, sample);
  for (std::size_t at = 0; stream.size() - at >= tcp::kFrameBytes;) {
    std::memcpy(stream.data() + at, sample.data(), 4);
    std::memcpy(stream.data() + at + 8, &run, sizeof run);
    std::uint32_t length;
    std::memcpy(&length, stream.data() + at + 72, sizeof length);
    at += tcp::kFrameBytes;
    at += std::min<std::size_t>(length, stream.size() - at);
  }
}

struct Memory {
  std::vector<float> large = std::vector<float>(3000), small = std::vector<float>(6),
                     in = std::vector<float>(3000), out = std::vector<float>(9000);
};

Buffer buffer(std::vector<float>& data, std::int64_t count) {
  return {data.data(), count, DType::f32};
}

/// A call of every kind; what is refused because the group is over is as good.
std::vector<Handle> start_calls(Comm& comm, Memory& m) {
  std::vector<Handle> handles;
  const std::int64_t n = comm.size();
  try {
    handles.push_back(comm.all_reduce({0, 0}, buffer(m.large, 3000), Combine::mean));
    handles.push_back(comm.all_reduce({1, 0}, buffer(m.small, 6), Combine::sum));
    handles.push_back(comm.broadcast({2, 0}, buffer(m.out, 2400), 1));
    handles.push_back(comm.all_gather({3, 0}, buffer(m.out, n * 700), buffer(m.in, 700)));
    handles.push_back(
        comm.reduce_scatter({4, 0}, buffer(m.out, 900), buffer(m.in, n * 900), Combine::max));
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(n), 300);
    handles.push_back(
        comm.all_to_all({5, 0}, buffer(m.out, n * 300), buffer(m.in, n * 300), counts, counts));
    handles.push_back(comm.recv({6, 0}, buffer(m.small, 6), std::nullopt));
    handles.push_back(comm.recv({7, 0}, buffer(m.large, 3000), 1));
    handles.push_back(comm.send({8, 0}, buffer(m.in, 3000), 1));
  } catch (const CommError&) {
  }
  return handles;
}

bool taken(int fd) {
  int waiting = 0;
  return ::ioctl(fd, FIONREAD, &waiting) != 0 || waiting == 0;
}

void exercise(std::span<const unsigned char> input, unsigned how, std::size_t share) {
  const int ranks = (how & kThreeRanks) != 0 ? 3 : 2;
  const auto members = local_group(ranks, 60, "fuzz");
  std::vector<int> ours;
  ends.assign(1, -1);
  for (int r = 1; r < ranks; ++r) {
    std::array<int, 2> pair;
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0)
      std::abort();
    ends.push_back(pair[0]);
    ours.push_back(pair[1]);
  }
  std::vector<Stream> streams(ours.size());
  const std::size_t cut = ranks == 3 ? input.size() * share / 256 : input.size();
  for (std::size_t i = 0; i < input.size(); ++i)
    streams[i < cut ? 0 : 1].push_back(static_cast<std::byte>(input[i]));
  if ((how & kLeaveHeaders) == 0)
    for (Stream& stream : streams) put_right(stream);

  Memory memory;
  auto comm = make_tcp(parse_spec(kSpecs[how >> kSpecAt & 3]), members[0], {0, 0});
  std::vector<Handle> handles;
  if ((how & kCallsFirst) != 0) handles = start_calls(*comm, memory);
  for (std::size_t p = 0; p < ours.size(); ++p)
    if (!streams[p].empty() &&
        ::send(ours[p], streams[p].data(), streams[p].size(), MSG_NOSIGNAL) < 0 && errno != EPIPE)
      std::abort();
  for (std::size_t p = 0; p < ours.size(); ++p)
    while (!taken(ends[p + 1]) && !members[0]->fault()) std::this_thread::yield();
  if ((how & kCallsFirst) == 0) handles = start_calls(*comm, memory);
  for (const int fd : ours) ::close(fd);
  comm.reset();
  for (const Handle& handle : handles) try {
      handle.wait();  // it is over, with or without a result
    } catch (const CommError&) {
    } catch (const ConfigError&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size < 2 || size > (64 << 10)) return 0;
  exercise({data + 2, size - 2}, data[0], data[1]);
  return 0;
}
