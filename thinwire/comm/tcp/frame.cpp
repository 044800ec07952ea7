// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/tcp/frame.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "thinwire/core/error.h"

namespace thinwire::tcp {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

constexpr std::uint32_t kMagic = 0x31575754;  // "TWW1"

struct Layout {
  std::uint32_t magic;
  std::uint8_t kind, phase, call_kind, dtype;
  std::uint64_t run, group;
  std::int64_t sequence, step, count, offset;
  std::int32_t exchange, part;
  std::int16_t op;
  std::uint8_t eager, unused;
  std::int32_t root;
  std::uint32_t length;
  std::uint32_t taken;
};
static_assert(sizeof(Layout) == kFrameBytes);

void require(bool holds, const char* field, std::int64_t value) {
  if (!holds) throw DataError(fmt::format("malformed frame: {} cannot be {}", field, value));
}

}  // namespace

void encode(const Frame& frame, FrameBytes& out) {
  const Signature& call = frame.call;
  const Layout layout{kMagic,
                      static_cast<std::uint8_t>(frame.kind),
                      frame.phase,
                      static_cast<std::uint8_t>(call.kind),
                      static_cast<std::uint8_t>(call.dtype),
                      frame.run,
                      frame.group,
                      frame.sequence,
                      call.id.step,
                      call.count,
                      frame.offset,
                      call.id.exchange,
                      call.id.part,
                      static_cast<std::int16_t>(call.op),
                      frame.eager,
                      0,
                      call.root,
                      frame.length,
                      frame.taken};
  std::memcpy(out.data(), &layout, kFrameBytes);
}

Frame decode(std::span<const std::byte, kFrameBytes> bytes) {
  Layout in;
  std::memcpy(&in, bytes.data(), kFrameBytes);
  require(in.magic == kMagic, "magic", in.magic);
  require(in.kind <= static_cast<std::uint8_t>(FrameKind::credit), "kind", in.kind);
  require(in.phase <= 1, "phase", in.phase);
  require(in.call_kind <= static_cast<std::uint8_t>(CallKind::barrier), "call", in.call_kind);
  require(in.dtype <= static_cast<std::uint8_t>(DType::bool8), "dtype", in.dtype);
  require(in.op >= 0 && in.op <= static_cast<std::int16_t>(Combine::replace), "op", in.op);
  require(in.eager <= 1, "eager", in.eager);
  require(in.count >= 0 && in.count <= kMostElements, "count", in.count);
  require(in.offset >= 0 && in.offset <= 16 * kMostElements, "offset", in.offset);
  require(in.sequence >= 0, "sequence", in.sequence);
  require(in.length <= kMostFrameLength, "length", in.length);
  const auto kind = static_cast<FrameKind>(in.kind);
  const bool carries =
      kind == FrameKind::data || kind == FrameKind::message || kind == FrameKind::piece;
  require(carries || in.length == 0, "length of an announcement", in.length);
  // A piece stands for a whole chunk of its call, counted by its offset; none is empty.
  const bool piece = kind == FrameKind::data || kind == FrameKind::piece;
  require(!piece || in.length > 0, "length of a piece", in.length);
  Frame out;
  out.kind = kind;
  out.phase = in.phase;
  out.eager = in.eager != 0;
  out.run = in.run;
  out.group = in.group;
  out.sequence = in.sequence;
  out.call = {static_cast<CallKind>(in.call_kind), {in.exchange, in.step, in.part},
              static_cast<DType>(in.dtype),        in.count,
              static_cast<Combine>(in.op),         in.root};
  out.offset = in.offset;
  out.length = in.length;
  out.taken = in.taken;
  return out;
}

}  // namespace thinwire::tcp
