// SPDX-License-Identifier: Apache-2.0
// Headers of any bytes, and strangers at the data ports.
#include "thinwire/comm/tcp/frame.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"

namespace thinwire::test {
namespace {

using namespace thinwire::tcp;

Frame sample() {
  Frame frame;
  frame.kind = FrameKind::data;
  frame.phase = 1;
  frame.eager = true;
  frame.run = 0x0123456789abcdef;
  frame.group = 77;
  frame.sequence = 12;
  frame.call = {CallKind::all_reduce, {3, 1000000007, 2}, DType::bf16, 4097, Combine::mean, -1};
  frame.offset = 8192;
  frame.length = 2;
  frame.taken = 0xfffffff0;
  return frame;
}

TEST(TcpFrame, ReadsWhatItWrote) {
  FrameBytes bytes;
  encode(sample(), bytes);
  const Frame back = decode(bytes);
  FrameBytes again;
  encode(back, again);
  EXPECT_EQ(bytes, again);
  EXPECT_EQ(back.call, sample().call);
  EXPECT_EQ(back.run, sample().run);
  EXPECT_EQ(back.length, sample().length);
  EXPECT_EQ(back.taken, sample().taken);
  EXPECT_TRUE(back.eager);
}

TEST(TcpFrame, RefusesOrReadsAnyBytes) {
  Rng rng({.seed = 1});
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    FrameBytes bytes;
    encode(sample(), bytes);
    const int changes = i % 3 == 0 ? static_cast<int>(kFrameBytes) : 1 + i % 4;
    for (int k = 0; k < changes; ++k)
      bytes[rng.below(kFrameBytes)] = static_cast<std::byte>(rng.next_u32());
    try {
      const Frame frame = decode(bytes);
      EXPECT_LE(frame.length, kMostFrameLength);
      EXPECT_GE(frame.offset, 0);
      EXPECT_GE(frame.call.count, 0);
      EXPECT_LE(frame.call.count, kMostElements);
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(TcpFrame, AnnouncementsCarryNothing) {
  for (const auto kind :
       {FrameKind::posted, FrameKind::offer, FrameKind::accept, FrameKind::credit}) {
    Frame frame = sample();
    frame.kind = kind;
    FrameBytes bytes;
    encode(frame, bytes);
    EXPECT_THROW(decode(bytes), DataError);
  }
}

TEST(TcpFrame, PiecesCarrySomething) {
  for (const auto kind : {FrameKind::data, FrameKind::piece}) {
    Frame frame = sample();
    frame.kind = kind;
    frame.length = 0;
    FrameBytes bytes;
    encode(frame, bytes);
    EXPECT_THROW(decode(bytes), DataError);
  }
}

/// A membership whose ranks' data addresses can be read by the test.
int port_in(const std::string& blob) {
  const auto space = blob.find(' ');
  return std::stoi(blob.substr(space + 1));
}

class Spy final : public Membership {
 public:
  explicit Spy(std::shared_ptr<Membership> inner) : inner_(std::move(inner)) {}
  Rank rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& run_id() const override { return inner_->run_id(); }
  Seconds timeout_s() const override { return inner_->timeout_s(); }
  std::string address_of(Rank rank) const override { return inner_->address_of(rank); }
  std::string describe() const override { return inner_->describe(); }
  std::vector<std::string> all_gather(const std::string& topic, std::string_view blob) override {
    auto blobs = inner_->all_gather(topic, blob);
    if (before) before(blobs);
    return blobs;
  }
  void started(CallKind kind, const MessageId& id) override { inner_->started(kind, id); }
  std::string last_started(Rank rank) const override { return inner_->last_started(rank); }
  Seconds silent_s(Rank rank) const override { return inner_->silent_s(rank); }
  bool has_left(Rank rank) const override { return inner_->has_left(rank); }
  Fault fail(const Fault& fault) override { return inner_->fail(fault); }
  std::optional<Fault> fault() const override { return inner_->fault(); }
  std::shared_ptr<void> on_fault(std::function<void(const Fault&)> fn) override {
    return inner_->on_fault(std::move(fn));
  }
  void leave() override { inner_->leave(); }
  std::function<void(const std::vector<std::string>&)> before;

 private:
  std::shared_ptr<Membership> inner_;
};

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

/// Strangers connect to rank 0's data port before rank 1 does, with noise, with half a greeting and
/// with nothing. The group forms all the same and works.
TEST(TcpFrame, StrangersAtTheDataPortAreDropped) {
  const Watchdog watchdog("strangers");
  auto members = local_group(2, 10);
  auto spy = std::make_shared<Spy>(members[1]);
  std::vector<int> strangers;
  spy->before = [&](const std::vector<std::string>& blobs) {
    Rng rng({.seed = 2});
    for (int i = 0; i < 8; ++i) {
      const int fd = connect_to(port_in(blobs[0]));
      std::vector<std::uint32_t> noise(i % 4 * 100);
      for (auto& word : noise) word = rng.next_u32();
      if (i == 4) noise.assign(1, 0x48575754);
      if (!noise.empty()) {
        EXPECT_GT(::send(fd, noise.data(), noise.size() * 4, MSG_NOSIGNAL), 0);
      }
      strangers.push_back(fd);
    }
  };
  ranks_as_threads(2, [&](Rank rank) {
    const auto comm = make_tcp(parse_spec("tcp"),
                               rank == 1 ? std::static_pointer_cast<Membership>(spy) : members[0]);
    float x = static_cast<float>(rank + 1);
    comm->all_reduce({0, 0}, {&x, 1, DType::f32}, Combine::sum).wait();
    EXPECT_EQ(x, 3);
  });
  for (const int fd : strangers) ::close(fd);
}

/// What ranks tell each other about their data ports, as a run with these options says it.
std::string address_blob() {
  std::string blob;
  auto members = local_group(2, 10);
  const auto spy = std::make_shared<Spy>(members[0]);
  spy->before = [&](const std::vector<std::string>& blobs) { blob = blobs[1]; };
  ranks_as_threads(2, [&](Rank rank) {
    make_tcp(parse_spec("tcp"), rank == 0 ? std::static_pointer_cast<Membership>(spy) : members[1]);
  });
  return blob;
}

/// Greets rank 0 as rank 1 and returns the connection.
int greet_as_rank_1(Membership& member, const std::string& blob) {
  const int fd = connect_to(port_in(member.all_gather("tcp data addresses", blob)[0]));
  struct {
    std::uint32_t magic = 0x48575754;
    std::int32_t rank = 1;
    std::uint64_t run = 0;
  } hello, answer;
  hello.run = hash_bytes(member.run_id().data(), static_cast<std::int64_t>(member.run_id().size()));
  EXPECT_EQ(::send(fd, &hello, sizeof hello, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
  EXPECT_EQ(::recv(fd, &answer, sizeof answer, MSG_WAITALL), static_cast<ssize_t>(sizeof answer));
  return fd;
}

/// The greeting of a rank, then frames with bytes turned: rank 0 gets an error or, where the turn
/// does not matter, the deadline; never anything worse. The sanitizers watch the memory.
TEST(TcpFrame, FramesOfNoiseEndTheGroup) {
  const Watchdog watchdog("noise", 60);
  const std::string blob = address_blob();
  Rng rng({.seed = 3});
  for (int round = 0; round < 60; ++round) {
    auto members = local_group(2, 0.3);
    std::vector<std::byte> bytes;
    for (int k = 0; k < 4; ++k) {
      Frame frame = sample();
      frame.kind = static_cast<FrameKind>(rng.below(7));
      frame.run = hash_bytes("local", 5);
      frame.group = rng.below(3);
      frame.sequence = static_cast<std::int64_t>(rng.below(2));
      frame.call = {CallKind::all_reduce, {0, 0}, DType::f32, 1000, Combine::sum, -1};
      frame.offset = static_cast<std::int64_t>(rng.below(3)) * 2000;
      frame.length = static_cast<std::uint32_t>(rng.below(3)) * 2000;
      frame.taken = 0;
      FrameBytes header;
      encode(frame, header);
      if (round % 2 == 1) header[rng.below(kFrameBytes)] = static_cast<std::byte>(rng.next_u32());
      bytes.insert(bytes.end(), header.begin(), header.end());
      bytes.resize(bytes.size() + rng.below(2) * 2000);
    }
    const auto errors = errors_of_ranks(2, [&](Rank rank) {
      if (rank == 1) {
        const int fd = greet_as_rank_1(*members[1], blob);
        EXPECT_GT(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
        ::shutdown(fd, SHUT_WR);
        std::array<char, 4096> ignored;
        while (::recv(fd, ignored.data(), ignored.size(), 0) > 0) {
        }
        ::close(fd);
        return;
      }
      const auto comm = make_tcp(parse_spec("tcp"), members[0]);
      std::vector<float> x(1000);
      comm->all_reduce({0, 0}, {x.data(), 1000, DType::f32}, Combine::sum).wait();
      comm->all_reduce({0, 1}, {x.data(), 1000, DType::f32}, Combine::sum).wait();
    });
    EXPECT_NE(text_of(errors[0]).find("CommError"), std::string::npos) << text_of(errors[0]);
  }
}

}  // namespace
}  // namespace thinwire::test
