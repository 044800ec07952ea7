// SPDX-License-Identifier: Apache-2.0
// Codes of all ranks on one grid, which a transport adds as integers: the scales on which ranks
// agree first, and the words that hold the codes. Part of codecs; each says what its codes are.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "thinwire/codec/codec.h"
#include "thinwire/codec/grid_size.h"

namespace thinwire {

class AgreedGrid {
 public:
  AgreedGrid(std::string codec, GridSize size, std::int64_t count)
      : codec_(std::move(codec)), size_(size), count_(count) {}

  const GridSize& size() const { return size_; }
  std::int64_t count() const { return count_; }
  Bytes bytes() const { return size_.bytes(count_); }
  CodecTraits traits(bool unbiased, Bytes proposals) const {
    return {.summable = true,
            .fixed_size = true,
            .unbiased = unbiased,
            .merges = true,
            .proposals = proposals};
  }

  /// The first proposal of a step: the largest of each scale over ranks, and how many ranks add.
  /// 4 bytes each.
  static Proposal propose(std::span<const float> scales, const Slot& slot);
  /// What came of it. Where nobody has been asked, as with one rank alone, `own`. ConfigError, on
  /// all ranks, if more ranks add than fields hold.
  std::vector<float> agreed(std::span<const float> own, const Slot& slot) const;
  /// Codes of [-levels, levels], one for each element.
  Payload pack(std::span<const std::int16_t> codes);
  /// DataError where the payload is not one part of so many words.
  std::span<const std::int64_t> words_of(const Payload& payload) const;

 private:
  std::string codec_;
  GridSize size_;
  std::int64_t count_;
  Tensor words_;
};

}  // namespace thinwire
