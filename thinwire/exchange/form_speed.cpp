// SPDX-License-Identifier: Apache-2.0
#include "thinwire/exchange/form_speed.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "thinwire/core/error.h"
#include "thinwire/core/median.h"
#include "thinwire/exchange/call.h"

namespace thinwire {
namespace {

constexpr int kRuns = 5;

/// What an exchange does with a bucket of noise but for its messages.
class Rehearsal {
 public:
  Rehearsal(const std::vector<Spec>& form, std::span<const TensorDesc> tensors, int ranks)
      : ranks_(ranks) {
    exchange_.form = form;
    call_.descs.assign(tensors.begin(), tensors.end());
    call_.exchange = &exchange_;
    call_.codec = make_codec(exchange_, call_.descs);
    if (call_.codec->traits().proposals > 0)
      throw UnsupportedError(fmt::format(
          "'{}' agrees with other ranks first: its speed cannot be measured by one alone",
          to_string(form.back())));
    for (std::size_t i = 0; i + 1 < form.size(); ++i)
      call_.memories.push_back(memories().find(form[i].name).make(form[i], call_.descs));
    std::int64_t elements = 0;
    for (const TensorDesc& tensor : tensors) elements += thinwire::elements(tensor);
    call_.data = at::empty({elements});
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1e-3F);
    auto* to = call_.data.data_ptr<float>();
    for (std::int64_t i = 0; i < elements; ++i) to[i] = normal(random);
    out_ = at::zeros({elements});
  }

  Seconds encode() {
    const auto begin = Clock::now();
    run(false);
    return since(begin);
  }
  /// Rounds after the first encode what the payloads before have left, so all must be decoded.
  Seconds encode_and_decode() {
    const auto begin = Clock::now();
    run(true);
    return since(begin);
  }

 private:
  static Seconds since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  void run(bool decodes) {
    const bool adds = call_.codec->traits().summable;
    call_.slot.step = step_++;
    call_.slot.round = 0;
    open_call(call_);
    for (; call_.slot.round < call_.codec->traits().rounds; ++call_.slot.round) {
      payload_ = thinwire::encode(call_, *call_.codec, 0, call_.x.numel());
      tell_sent(call_, Sent({{call_.codec.get(), &payload_, 0, call_.x.numel()}}));
      call_.codec->commit(payload_);
      if (decodes && adds)
        call_.codec->decode(payload_, out_, call_.slot.round == 0 ? Write::set : Write::add);
    }
    if (decodes && !adds)
      call_.codec->combine(std::vector<Payload>(static_cast<std::size_t>(ranks_), payload_), ranks_,
                           out_);
  }

  Exchange exchange_;
  Call call_;
  Payload payload_;
  at::Tensor out_;
  int ranks_;
  std::int64_t step_ = 0;
};

}  // namespace

CodecSpeed form_speed(const std::vector<Spec>& form, std::span<const TensorDesc> tensors,
                      int ranks) {
  const at::NoGradGuard no_grad;
  Rehearsal rehearsal(form, tensors, ranks);
  double dense = 0;
  for (const TensorDesc& tensor : tensors) dense += static_cast<double>(dense_bytes(tensor));
  rehearsal.encode_and_decode();  // memories and buffers are made
  std::vector<Seconds> encode, both;
  for (int i = 0; i < kRuns; ++i) {
    encode.push_back(rehearsal.encode());
    both.push_back(rehearsal.encode_and_decode());
  }
  const Seconds encode_s = std::max(1e-9, median(encode));
  // A decode that noise has hidden takes no longer than memory does.
  const Seconds decode_s = std::max(median(both) - encode_s, dense / 50e9);
  const int payloads = payload_sums(form) ? 1 : ranks;
  return {.encode_bytes_per_s = dense / encode_s,
          .decode_bytes_per_s = payloads * dense / decode_s};
}

}  // namespace thinwire
