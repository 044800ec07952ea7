// SPDX-License-Identifier: Apache-2.0
// The header in front of every message between two ranks on the data connection. Little endian,
// fixed size; every field is checked before a byte that follows is used.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "thinwire/comm/signature.h"

namespace thinwire::tcp {

enum class FrameKind : std::uint8_t {
  posted,   ///< "I have started this collective": its signature; data of it may now be sent to me
  data,     ///< part of a collective
  offer,    ///< "I have a message for you" (send): its signature and number
  accept,   ///< "send it": the number of the offer
  message,  ///< a whole short message, without an offer
  piece,    ///< part of an accepted message
  credit    ///< nothing but the `taken` that every frame carries
};

struct Frame {
  FrameKind kind = FrameKind::posted;
  std::uint8_t phase = 0;     ///< of a collective: 0 contributions, 1 results
  bool eager = false;         ///< sent before the receiver has said that it has a place for it
  std::uint64_t run = 0;      ///< hash of the run id
  std::uint64_t group = 0;    ///< communicator
  std::int64_t sequence = 0;  ///< number of the collective in its communicator, or of the message
  Signature call;             ///< of the sender; count is what it exchanges with the receiver
  std::int64_t offset = 0;    ///< bytes, within the call's memory
  std::uint32_t length = 0;   ///< bytes that follow this header
  /// Eager bytes of the receiver of this frame that the sender has taken in so far, modulo 2^32.
  std::uint32_t taken = 0;
};

constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
constexpr std::size_t kFrameBytes = 80;
constexpr std::uint32_t kMostFrameLength = 1u << 24;
using FrameBytes = std::array<std::byte, kFrameBytes>;

void encode(const Frame& frame, FrameBytes& out);
/// DataError that says which field is wrong: foreign magic, unknown kind or type, negative or
/// absurd sizes. Pure: safe on any bytes.
Frame decode(std::span<const std::byte, kFrameBytes> bytes);

}  // namespace thinwire::tcp
