// SPDX-License-Identifier: Apache-2.0
// Values at common positions, through an autoencoder that is trained in the run.
// Abrahamyan, Chen, Bekoulis, Deligiannis, "Learned Gradient Compression for Distributed Deep
// Learning" (2021), arXiv 2103.08870: the form with all-reduce, and that for a server.
// Update rule, E and D as in autoencoder_net.h:
//   `dense` steps: send x
//   then, one rank in turn, the leader, says the positions of its k largest |x|, in order of its
//   values there, and their root mean square r; v_i = the values of rank i there
//   `train` steps, and on until the autoencoder is off by less than half: send v_i; one step of
//     Adam, with the same data on all ranks
//     form=ring: on |D(E(m / r)) - m / r|^2, m the mean of all v_i
//     form=server: on the sum over i of |D_i(E(v_m / r), w_i) - v_i / r|^2 + |E(v_i / r) - E(v_m /
//       r)|^2, m the leader, w_i the largest of v_i / r, else zero
//   from then on
//     form=ring: send E(v_i / r); value there = r D(mean of E)
//     form=server: the leader sends z = E(v_m / r), all send w_i; value there = r mean of D_i(z,
//     w_i) with the share of the energy of v_i that is lost. Where the mean of that is more than
//     0.8, training goes on for 20 steps at least.
// Bytes, c = ceil(k / 16), n values, R ranks: 4 n; then one all_reduce of 4 (k + 1) for positions,
// and one of
//   ring: 4 k; later 4 (4 c + 1)
//   server: 4 R k; later 4 (1 + 4 c + R (1 + 2 i)), i = max(1, innovation * k)
// Passes over memory: one that selects, on the leader.
// Departs from the paper: Adam; the order of positions, by value, for in order of index there is
// nothing that convolutions could compress; training goes on while the error is large, and again
// where it has become so; what the autoencoder loses stays behind under ef. The server is a sum in
// the transport: each rank writes to places of its own, so all of them have what a server would.
// First and last layers are not spared: give them a bucket and a form.
#include <fmt/format.h>

#include <algorithm>

#include "thinwire/core/error.h"
#include "thinwire/plan/payload.h"

namespace thinwire {
namespace {

struct AutoencoderOptions {
  std::int64_t k = 0, dense = 200, train = 300, width = 64;
  double rate = 0.001, innovation = 0.01;
  bool server = false;
};

inline AutoencoderOptions read_autoencoder(const Spec& spec, std::span<const TensorDesc> tensors) {
  SpecReader reader(spec);
  AutoencoderOptions out;
  out.k = selected_count(reader, "autoencoder", 0.001, value_count(tensors));
  out.dense = reader.integer("dense", out.dense);
  out.train = reader.integer("train", out.train);
  out.width = reader.integer("width", out.width);
  out.rate = reader.number("rate", out.rate);
  out.innovation = reader.number("innovation", out.innovation);
  const std::string form = reader.text("form", "ring");
  out.server = form == "server";
  reader.finish();
  if (!out.server && form != "ring")
    throw ConfigError(fmt::format("autoencoder: form must be ring or server, got '{}'", form));
  if (out.dense < 0)
    throw ConfigError(fmt::format("autoencoder: dense must be at least 0, got {}", out.dense));
  if (out.train < 1)
    throw ConfigError(fmt::format("autoencoder: train must be at least 1 step, got {}", out.train));
  if (out.width < 2 || out.width > 1024)
    throw ConfigError(fmt::format("autoencoder: width must be in [2, 1024], got {}", out.width));
  if (!(out.rate > 0))
    throw ConfigError(fmt::format("autoencoder: rate must be above 0, got {}", out.rate));
  if (!(out.innovation >= 0 && out.innovation <= 1))
    throw ConfigError(
        fmt::format("autoencoder: innovation must be in [0, 1], got {}", out.innovation));
  if (value_count(tensors) > INT32_MAX)
    throw ConfigError(fmt::format("autoencoder: a bucket must have below 2^31 values, got {}",
                                  value_count(tensors)));
  return out;
}

}  // namespace
}  // namespace thinwire

#ifdef TW_PAYLOAD
namespace thinwire {

void register_autoencoder(PayloadRegistry& registry) {
  registry.add(
      "autoencoder",
      summed([](const Spec& spec, std::span<const TensorDesc> tensors) -> std::optional<Bytes> {
        read_autoencoder(spec, tensors);
        return std::nullopt;  // a size for each of three stages
      }),
      "values at common positions, by an autoencoder trained in the run {form=ring|server, "
      "ratio=0.001, or count; dense=200, train=300, width=64, rate=0.001, innovation=0.01}");
}

}  // namespace thinwire
#else
#include <ATen/ops/cat.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <bit>
#include <cmath>

#include "thinwire/codec/autoencoder_net.h"
#include "thinwire/codec/bytes.h"
#include "thinwire/codec/kernels/select.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

class Autoencoder : public Codec {
 public:
  Autoencoder(std::span<const TensorDesc> tensors, const AutoencoderOptions& options)
      : options_(options),
        n_(value_count(tensors)),
        name_(tensors.empty() ? "" : tensors[0].name),
        net_(options.width, options.server,
             hash_bytes(name_.data(), static_cast<std::int64_t>(name_.size()))) {}

  /// Codes of values that are not summed do not decode to their sum; commit() sees to the rest.
  CodecTraits traits() const override {
    return {.summable = true, .fixed_size = false, .merges = true};
  }
  /// Of one rank in form=server, with what is proposed.
  Bytes max_bytes() const override { return 4 * (n_ + 2 * options_.k + 6); }

  std::optional<Proposal> propose(const Tensor& x, const Slot& slot) override {
    follow(slot);
    if (stage() == Stage::dense || !slot.agreed.empty()) return std::nullopt;
    const bool leads = rank_ == leader_;
    return Proposal{leads ? largest(x) : at::zeros({options_.k + 1}, at::kInt), Combine::sum};
  }

  Payload encode(const Tensor& values, const Slot& slot) override {
    follow(slot);
    sent_as_ = stage();
    Tensor x = values.to(at::kFloat);
    if (sent_as_ == Stage::dense) {
      if (!room_.defined()) room_ = at::empty({n_}, at::kFloat);
      room_.copy_(x);
      return {.parts = {room_}};
    }
    take_positions(slot.agreed.empty() ? largest(x) : slot.agreed[0]);
    const Tensor there = x.index_select(0, positions_);
    if (sent_as_ == Stage::train) return {.parts = {options_.server ? in_own_row(there) : there}};
    own_ = padded(there);
    own_code_ = net_.encode(own_);
    last_sent_ = options_.server ? server_code() : ring_code();
    return {.parts = {last_sent_}};
  }

  void decode(const Payload& payload, Tensor& out, Write mode) const override {
    const Tensor values = value_of(payload);
    decode_single(out, n_, mode, [&](Tensor& to, Write how) {
      if (how == Write::set) to.zero_();
      sent_as_ == Stage::dense ? to.add_(values) : to.index_add_(0, positions_, values);
    });
  }

  void commit(Payload& merged) override {
    if (sent_as_ == Stage::train) train(checked(merged));
    if (sent_as_ == Stage::compressed && !(lost_of(checked(merged)) <= kTooMuch)) train_again();
    last_sent_.reset();
    ++count_;
  }

  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override {
    if (x.scalar_type() != at::kFloat) return Codec::residual(x, sent, out);
    if (!out.is_same(x)) out.copy_(x);
    const bool last = sent.parts.size() == 1 && last_sent_.defined() &&
                      sent.parts[0].is_same(last_sent_) && sent_as_ == Stage::compressed;
    const Tensor values = last ? own_decoded_.narrow(0, 0, options_.k).mul(scale_) : value_of(sent);
    sent_as_ == Stage::dense ? out.sub_(values) : out.index_add_(0, positions_, values, -1);
  }

  void visit_state(StateVisitor& visitor) override {
    visitor.integer("steps", count_);
    visitor.integer("steps_trained/" + name_, steps_trained_);
    visitor.integer("is_trained/" + name_, trained_);
    visit(visitor, "error/" + name_, error_, &StateVisitor::tensor);
    visit(visitor, "lost/" + name_, lost_, &StateVisitor::own);
    net_.visit_state(visitor, name_);
  }

 private:
  enum class Stage { dense, train, compressed };
  static constexpr double kGoodEnough = 0.5, kTooMuch = 0.8;  // shares of energy
  static constexpr std::int64_t kAgain = 20;

  static void visit(StateVisitor& visitor, const std::string& name, double& value,
                    void (StateVisitor::*how)(const std::string&, Tensor&)) {
    Tensor kept = at::full({1}, value, at::kDouble);
    (visitor.*how)(name, kept);
    if (kept.numel() == 1) value = kept.item().toDouble();
  }
  Stage stage() const {
    if (count_ < options_.dense || options_.k == 0) return Stage::dense;
    return trained_ != 0 ? Stage::compressed : Stage::train;
  }
  void train_again() {
    trained_ = 0;
    error_ = -1;
    steps_trained_ = std::max<std::int64_t>(0, options_.train - kAgain);
  }
  /// Who leads, and whether each rank has a decoder.
  void follow(const Slot& slot) {
    ranks_ = slot.ranks;
    rank_ = slot.rank;
    leader_ = slot.step % slot.ranks;
    if (options_.server && trained_ != 0 && net_.decoders() != ranks_) train_again();
  }

  /// Positions of the largest, by value, and the bits of their root mean square.
  Tensor largest(const Tensor& values) {
    const Tensor x = values.to(at::kFloat);
    select_.select(floats_of(x), options_.k, chosen_);
    const float* from = x.const_data_ptr<float>();
    double energy = 0;
    for (const float value : chosen_.values)
      energy += static_cast<double>(value) * static_cast<double>(value);
    // A NaN is above all numbers: the order must be one where there are some.
    const auto below = [from](std::uint32_t a, std::uint32_t b) {
      const bool no_a = std::isnan(from[a]), no_b = std::isnan(from[b]);
      if (no_a || no_b) return no_a == no_b ? a < b : no_b;
      return from[a] != from[b] ? from[a] < from[b] : a < b;
    };
    std::sort(chosen_.indices.begin(), chosen_.indices.end(), below);
    Tensor out = at::empty({options_.k + 1}, at::kInt);
    auto* to = out.data_ptr<std::int32_t>();
    for (const std::uint32_t index : chosen_.indices) *to++ = static_cast<std::int32_t>(index);
    *to = std::bit_cast<std::int32_t>(
        static_cast<float>(std::sqrt(energy / static_cast<double>(options_.k))));
    return out;
  }
  void take_positions(const Tensor& agreed) {
    const auto* from = agreed.const_data_ptr<std::int32_t>();
    sorted_.assign(from, from + options_.k);
    std::sort(sorted_.begin(), sorted_.end());
    const bool twice = std::adjacent_find(sorted_.begin(), sorted_.end()) != sorted_.end();
    if (twice || sorted_.front() < 0 || sorted_.back() >= n_)
      throw DataError(
          fmt::format("autoencoder: positions must be {} different ones below {}", options_.k, n_));
    if (!positions_.defined()) positions_ = at::empty({options_.k}, at::kLong);
    std::copy(from, from + options_.k, positions_.data_ptr<std::int64_t>());
    scale_ = std::bit_cast<float>(from[options_.k]);
    if (!(scale_ > 0) || !std::isfinite(scale_)) scale_ = 1;
  }

  std::int64_t codes() const { return (options_.k + 15) / 16 * 4; }
  std::int64_t innovations() const {
    return std::clamp<std::int64_t>(
        static_cast<std::int64_t>(options_.innovation * static_cast<double>(options_.k)), 1,
        options_.k);
  }
  /// In form=server, of one rank: what it loses, then positions + 1, then values.
  std::int64_t row() const { return 1 + 2 * innovations(); }
  /// In units of the scale, filled up to a multiple of 16.
  Tensor padded(const Tensor& values) const {
    Tensor out = at::zeros({4 * codes()}, at::kFloat);
    out.narrow(0, 0, options_.k).copy_(values).div_(scale_);
    return out;
  }
  /// Of padded values, the largest, and zero elsewhere.
  Tensor innovation_of(const Tensor& values) {
    Tensor out = at::zeros_like(values);
    select_.select(floats_of(values).first(static_cast<std::size_t>(options_.k)), innovations(),
                   chosen_);
    for (std::size_t i = 0; i < chosen_.indices.size(); ++i)
      out.data_ptr<float>()[chosen_.indices[i]] = chosen_.values[i];
    return out;
  }
  /// The share of own_ that is not in `decoded`; one that is no number says no less than the most.
  double share_lost(const Tensor& decoded) const {
    constexpr double kMost = 4;
    const auto wanted = floats_of(own_), made = floats_of(decoded);
    double energy = 0, lost = 0;  // in one order of sums: ranks decide by them
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double value = wanted[i], off = static_cast<double>(made[i]) - value;
      energy += value * value;
      lost += off * off;
    }
    const double share = energy > 0 ? lost / energy : 0;
    return share < kMost ? share : kMost;
  }

  /// Zeros in the rows of others.
  Tensor in_own_row(const Tensor& values) const {
    Tensor out = at::zeros({ranks_, options_.k}, at::kFloat);
    out.select(0, rank_).copy_(values);
    return out.view(at::kInt).view({-1});
  }
  Tensor ring_code() {
    own_decoded_ = net_.decode(own_code_, 0, {});
    const double lost = share_lost(own_decoded_);
    return at::cat({own_code_, at::full({1}, lost, at::kFloat)});
  }
  /// Bits, so that sums with the zeros of others are exact: 1 and the code, of the leader; then a
  /// row for each rank. What is lost with the leader's code is known a step later.
  Tensor server_code() {
    own_innovation_ = innovation_of(own_);
    own_decoded_ = net_.decode(own_code_, rank_, own_innovation_);
    const double lost = std::max(share_lost(own_decoded_), lost_);
    Tensor out = at::zeros({1 + codes() + ranks_ * row()}, at::kInt);
    auto* to = out.data_ptr<std::int32_t>();
    if (rank_ == leader_) {
      *to = 1;
      const auto code = floats_of(own_code_);
      for (std::size_t i = 0; i < code.size(); ++i)
        to[1 + i] = std::bit_cast<std::int32_t>(code[i]);
    }
    to += 1 + codes() + rank_ * row();
    *to++ = std::bit_cast<std::int32_t>(static_cast<float>(lost));
    for (std::size_t i = 0; i < chosen_.indices.size(); ++i) {
      to[i] = static_cast<std::int32_t>(chosen_.indices[i] + 1);
      to[innovations() + static_cast<std::int64_t>(i)] =
          std::bit_cast<std::int32_t>(chosen_.values[i]);
    }
    return out;
  }

  Tensor checked(const Payload& payload) const {
    const bool bits = options_.server && sent_as_ != Stage::dense;
    std::int64_t count = n_;
    if (sent_as_ == Stage::train) count = options_.server ? ranks_ * options_.k : options_.k;
    if (sent_as_ == Stage::compressed)
      count = options_.server ? 1 + codes() + ranks_ * row() : codes() + 1;
    if (payload.parts.size() != 1 || payload.parts[0].dim() != 1 ||
        payload.parts[0].scalar_type() != (bits ? at::kInt : at::kFloat) ||
        payload.parts[0].numel() != count || !payload.parts[0].is_contiguous())
      throw DataError(fmt::format("autoencoder: a payload must be {} {} in one part", count,
                                  bits ? "integers" : "values"));
    return payload.parts[0];
  }
  /// At the positions; of several ranks, their sum.
  Tensor value_of(const Payload& payload) const {
    const Tensor sent = checked(payload);
    if (sent_as_ == Stage::dense) return sent;
    if (sent_as_ == Stage::train) {
      if (!options_.server) return sent;
      const Tensor rows = sent.view(at::kFloat).view({ranks_, options_.k});
      Tensor sum = rows.select(0, 0).clone();
      for (std::int64_t rank = 1; rank < ranks_; ++rank) sum.add_(rows.select(0, rank));
      return sum;
    }
    const Tensor all = options_.server ? sum_of_rows(sent) : net_.decode(code_in(sent), 0, {});
    return all.narrow(0, 0, options_.k).mul(scale_);
  }
  /// form=server: that of the leader, or what this rank would have sent.
  Tensor code_in(const Tensor& sent) const {
    if (!options_.server) return sent.narrow(0, 0, codes());
    const bool there = sent.const_data_ptr<std::int32_t>()[0] != 0;
    return there ? sent.view(at::kFloat).narrow(0, 1, codes()) : own_code_;
  }
  Tensor sum_of_rows(const Tensor& sent) const {
    const Tensor code = code_in(sent);
    Tensor sum = at::zeros({4 * codes()}, at::kFloat);
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::int32_t* from =
          sent.const_data_ptr<std::int32_t>() + 1 + codes() + rank * row() + 1;
      if (from[0] == 0) continue;  // not in this payload
      Tensor innovation = at::zeros_like(sum);
      for (std::int64_t i = 0; i < innovations(); ++i) {
        if (from[i] < 1 || from[i] > options_.k)
          throw DataError(fmt::format("autoencoder: innovation {} of rank {} is at {} of {} values",
                                      i, rank, from[i] - 1, options_.k));
        innovation.data_ptr<float>()[from[i] - 1] = std::bit_cast<float>(from[innovations() + i]);
      }
      sum.add_(net_.decode(code, rank, innovation));
    }
    return sum;
  }
  /// The mean over ranks.
  double lost_of(const Tensor& sent) {
    if (!options_.server) return sent[-1].item().toDouble();
    lost_ = share_lost(net_.decode(code_in(sent), rank_, own_innovation_));
    const Tensor rows = sent.view(at::kFloat).narrow(0, 1 + codes(), ranks_ * row());
    double sum = 0;
    for (std::int64_t rank = 0; rank < ranks_; ++rank)
      sum += static_cast<double>(floats_of(rows)[static_cast<std::size_t>(rank * row())]);
    return sum / static_cast<double>(ranks_);
  }

  void train(const Tensor& sent) {
    Tensor values, innovations;
    if (options_.server) {
      const Tensor rows = sent.view(at::kFloat).view({ranks_, options_.k});
      values = at::zeros({ranks_, 4 * codes()}, at::kFloat);
      innovations = at::zeros_like(values);
      for (int rank = 0; rank < ranks_; ++rank) {
        values.select(0, rank).copy_(padded(rows.select(0, rank)));
        innovations.select(0, rank).copy_(innovation_of(values.select(0, rank)));
      }
    } else {
      values = padded(sent).unsqueeze(0);
    }
    // Weights that have seen a NaN would never be numbers again.
    const auto all = floats_of(values);
    if (!std::all_of(all.begin(), all.end(), [](float one) { return std::isfinite(one); })) return;
    const double error =
        net_.train(values, innovations, options_.server ? leader_ : 0, options_.rate).error;
    error_ = error_ < 0 ? error : 0.9 * error_ + 0.1 * error;
    lost_ = 0;
    if (++steps_trained_ >= options_.train && error_ <= kGoodEnough) trained_ = 1;
  }

  AutoencoderOptions options_;
  std::int64_t n_;
  std::string name_;
  AutoencoderNet net_;
  std::int64_t count_ = 0, steps_trained_ = 0, trained_ = 0;
  double error_ = -1;  ///< a mean over the last steps of training; below 0: none yet
  double lost_ = 0;    ///< form=server: in the step before, with the leader's code
  Stage sent_as_ = Stage::dense;
  std::int64_t ranks_ = 1, rank_ = 0, leader_ = 0;  ///< of the step that was encoded last
  Tensor room_, positions_, own_, own_code_, own_innovation_;
  Tensor own_decoded_, last_sent_;  ///< until the payload is merged
  float scale_ = 1;
  kernels::TopK select_;
  kernels::Selection chosen_;
  std::vector<std::int32_t> sorted_;
};

}  // namespace

void register_autoencoder(CodecRegistry& registry) {
  registry.add("autoencoder", [](const Spec& spec, std::span<const TensorDesc> tensors) {
    return std::make_unique<Autoencoder>(tensors, read_autoencoder(spec, tensors));
  });
}

}  // namespace thinwire
#endif
