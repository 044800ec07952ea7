// SPDX-License-Identifier: Apache-2.0
// Internal to comm: what a call must have in common on all ranks, how two calls are compared, and
// the sentence about a difference, with both sides' numbers.
#pragma once
#include <string>

#include "thinwire/comm/comm.h"

namespace thinwire {

struct Signature {
  CallKind kind = CallKind::barrier;
  MessageId id;
  DType dtype = DType::u8;
  std::int64_t count =
      0;  ///< elements; not compared for all_to_all, whose counts are compared pair by pair
  Combine op = Combine::replace;  ///< replace: the call combines nothing
  Rank root = -1;                 ///< broadcast: the root; send, recv: the peer (-1: any)
  bool operator==(const Signature&) const = default;
};

/// "all_reduce, exchange 3, step 10 (1000 f32, 4000 bytes, sum)"
std::string describe(const Signature& call);
/// "rank 0 started X, but rank 1 started Y"
std::string mismatch(Rank a, const Signature& call_a, Rank b, const Signature& call_b);
/// The same for an all_to_all in which a rank sends another number of elements than is expected.
std::string uneven(const Signature& call, Rank from, std::int64_t sends, Rank to,
                   std::int64_t expects);

/// Refuses buffers that do not fit together before anything is sent. ConfigError, UnsupportedError.
void check_host(CallKind kind, const Buffer& buffer, std::string_view transport);
void check_reduce_scatter(const Buffer& out, const Buffer& in, int ranks);
void check_all_gather(const Buffer& out, const Buffer& in, int ranks);
void check_all_to_all(const Buffer& out, const Buffer& in, std::span<const std::int64_t> out_counts,
                      std::span<const std::int64_t> in_counts, Rank rank, int ranks);
void check_rank(CallKind kind, std::string_view what, Rank rank, int ranks);

}  // namespace thinwire
