// SPDX-License-Identifier: Apache-2.0
// One bit a value, and a majority in which a rank weighs as much as its bits have been worth: who
// is wrong more often than right counts against what it says.
// Park, Lee, "SignSGD with Federated Defense: Harnessing Adversarial Attacks through Gradient Sign
// Decoding" (2024), rule=fd; Park, Poor, Lee, "SignSGD with Federated Voting" (2024), rule=fv.
// Update rule, sign(0) = +1: value[i] = sign(sum over ranks of w[r][i] sign(x_r[i])), a tie is +1;
// then agreements[r][i] += 1 where sign(x_r[i]) = value[i]. w = ln((q + e) / (1 - q + e)), e =
// 1e-5, within +-10, q the share of votes so far in which the rank agreed: before `start` votes
// over the whole bucket (fd; fv has w = 1 there), then of each value by itself; 1 in the first.
// Bytes: 1 bit a value.
// State: 2 bytes a value and rank, the same on all ranks.
// Passes over memory: one to encode; one over all bits and counters to decode, one to count.
// Departs from the papers: every rank counts the votes, without a server; counters are halved when
// they are full, after 32767 votes, instead of a decay that is 1 in the papers.
#include <fmt/format.h>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

#ifdef TW_PAYLOAD
namespace thinwire {

void register_sign_weighted(PayloadRegistry& registry) {
  registry.add(
      "sign_weighted",
      [](const Spec&, std::span<const TensorDesc> tensors) {
        return bytes_of_bits(value_count(tensors));
      },
      "one bit a value, and a majority weighted by how often a rank was right {rule=fd or fv, "
      "start=100 votes}");
}

}  // namespace thinwire
#else
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <string>

#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/signs.h"
#include "thinwire/codec/kernels/votes.h"

namespace thinwire {
namespace {

class SignWeighted : public Codec {
 public:
  SignWeighted(std::span<const TensorDesc> tensors, std::int64_t start, bool pools)
      : count_(value_count(tensors)), start_(start), pools_(pools) {
    if (!tensors.empty()) name_ = tensors[0].name;
  }

  CodecTraits traits() const override { return {.fixed_size = true}; }
  Bytes max_bytes() const override { return bytes_of_bits(count_); }

  Payload encode(const Tensor& x, const Slot&) override {
    Tensor& out = byte_room(payload_, max_bytes(), x);
    kernels::pack_signs(floats_of(x.to(at::kFloat)), section(out, 0, max_bytes()));
    return {.parts = {out}};
  }

  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    decode_single(out, count_, mode, [&](Tensor& to, Write how) {
      kernels::decode_signs(bits_of(payload), kernels::scaled_signs(1), floats_in(to), how);
    });
  }

  void conclude(Tensor& sum, int) const override { sum.copy_(sum.ge(0)).mul_(2).sub_(1); }

  void combine(std::span<const Payload> payloads, int, Tensor& out) override {
    std::vector<std::span<const std::uint8_t> > votes;
    for (const Payload& payload : payloads) votes.push_back(bits_of(payload));
    keep_counters(votes.size());
    std::vector<std::uint8_t> bits(static_cast<std::size_t>(max_bytes()));
    vote(votes, bits);
    count(votes, bits);
    Tensor outcome = at::empty({max_bytes()}, at::kByte);
    std::copy(bits.begin(), bits.end(), outcome.data_ptr<std::uint8_t>());
    decode({.parts = {outcome}}, out, Write::set);
  }

  void visit_state(StateVisitor& visitor) override {
    if (!votes_.defined()) votes_ = at::zeros({1}, at::kLong);
    visitor.tensor("votes/" + name_, votes_);
    visitor.tensor("agreements/" + name_, agreements_);
  }

 private:
  std::span<const std::uint8_t> bits_of(const Payload& payload) const {
    return section(checked_bytes("sign_weighted", payload, max_bytes()), 0, max_bytes());
  }

  /// Counters of other ranks or values, from before a change, start anew.
  void keep_counters(std::size_t ranks) {
    const std::array<std::int64_t, 2> shape{static_cast<std::int64_t>(ranks), count_};
    if (agreements_.defined() && agreements_.sizes() == at::IntArrayRef(shape) &&
        agreements_.scalar_type() == at::kShort && agreements_.is_contiguous() &&
        votes_.defined() && votes_.numel() == 1 && votes_.scalar_type() == at::kLong)
      return;
    agreements_ = at::zeros(shape, at::kShort);
    votes_ = at::zeros({1}, at::kLong);
  }

  std::int64_t& votes() { return *votes_.data_ptr<std::int64_t>(); }
  std::span<std::int16_t> counters_of(std::size_t rank) {
    const auto count = static_cast<std::size_t>(count_);
    return {agreements_.data_ptr<std::int16_t>() + rank * count, count};
  }

  void vote(const std::vector<std::span<const std::uint8_t> >& votes_now,
            std::span<std::uint8_t> bits) {
    const std::int64_t before = votes();
    if (before == 0 || (before < start_ && !pools_))
      return kernels::majority_of_signs(votes_now, count_, bits);
    if (before < start_) {
      std::vector<std::int64_t> weights;
      for (std::size_t rank = 0; rank < votes_now.size(); ++rank) {
        std::int64_t agreed = 0;
        for (const std::int16_t each : counters_of(rank)) agreed += each;
        weights.push_back(kernels::vote_weight(static_cast<double>(agreed) /
                                               static_cast<double>(before * count_)));
      }
      return kernels::weighted_majority(votes_now, weights, count_, bits);
    }
    std::vector<std::int64_t> table;
    for (std::int64_t agreed = 0; agreed <= before; ++agreed)
      table.push_back(
          kernels::vote_weight(static_cast<double>(agreed) / static_cast<double>(before)));
    std::vector<std::span<const std::int16_t> > counters;
    for (std::size_t rank = 0; rank < votes_now.size(); ++rank)
      counters.push_back(counters_of(rank));
    kernels::weighted_majority(votes_now, counters, table, count_, bits);
  }

  void count(const std::vector<std::span<const std::uint8_t> >& votes_now,
             std::span<const std::uint8_t> bits) {
    constexpr std::int64_t kFull = 32767;
    for (std::size_t rank = 0; rank < votes_now.size(); ++rank) {
      const auto counters = counters_of(rank);
      if (votes() == kFull)
        for (std::int16_t& each : counters) each = static_cast<std::int16_t>(each / 2);
      kernels::count_agreements(votes_now[rank], bits, counters);
    }
    if (votes() == kFull) votes() /= 2;
    ++votes();
  }

  std::int64_t count_, start_;
  bool pools_;
  std::string name_;   ///< of the bucket's first tensor
  Tensor agreements_;  ///< ranks x values
  Tensor votes_;       ///< how many there have been
  Tensor payload_;
};

}  // namespace

void register_sign_weighted(CodecRegistry& registry) {
  registry.add("sign_weighted", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    SpecReader reader(spec);
    const std::string rule = reader.text("rule", "fd");
    const std::int64_t start = reader.integer("start", 100);
    reader.finish();
    if (rule != "fd" && rule != "fv")
      throw ConfigError(fmt::format("sign_weighted: rule must be fd or fv, got '{}'", rule));
    if (start < 1)
      throw ConfigError(fmt::format("sign_weighted: start must be at least 1, got {}", start));
    return std::make_unique<SignWeighted>(tensors, start, rule == "fd");
  });
}

}  // namespace thinwire
#endif
