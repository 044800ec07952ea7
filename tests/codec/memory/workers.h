// SPDX-License-Identifier: Apache-2.0
// Several ranks with a form each, without messages: what the exchanger does with memories and a
// codec, in a loop.
#pragma once
#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "thinwire/codec/memory.h"

namespace thinwire::test {

/// Names and copies of what a memory keeps.
struct StateOf : StateVisitor {
  std::map<std::string, at::Tensor> found;
  void tensor(const std::string& name, at::Tensor& value) override {
    if (value.defined()) found[name] = value.clone();
  }
  void integer(const std::string& name, std::int64_t& value) override {
    found[name] = at::full({1}, value, at::kLong);
  }
  void elements(const std::string& name, at::Tensor& value) override { tensor(name, value); }
};

class Workers {
 public:
  Workers(int ranks, const std::string& form, const std::vector<TensorDesc>& descs) {
    const auto chain = parse_chain(form);
    for (int rank = 0; rank < ranks; ++rank) {
      One one;
      for (std::size_t i = 0; i + 1 < chain.size(); ++i)
        one.memories.push_back(memories().find(chain[i].name).make(chain[i], descs));
      one.codec = codecs().find(chain.back().name).make(chain.back(), descs);
      ranks_.push_back(std::move(one));
    }
  }
  /// The mean of what is sent of one value a rank. `counts` false: every rank takes the step back.
  at::Tensor step(const std::vector<at::Tensor>& produced, bool counts = true) {
    std::vector<Payload> payloads;
    std::vector<at::Tensor> own;
    const int n = static_cast<int>(ranks_.size());
    for (int rank = 0; rank < n; ++rank) {
      One& one = ranks_[static_cast<std::size_t>(rank)];
      const Slot slot = slot_of(rank);
      at::Tensor x = produced[static_cast<std::size_t>(rank)];
      std::vector<at::Tensor> kept;
      for (auto& memory : one.memories) {
        memory->before(x, slot);
        kept.push_back(x);
      }
      Payload payload;
      for (const at::Tensor& part : one.codec->encode(x, slot).parts)
        payload.parts.push_back(part.clone());
      own.push_back(at::empty_like(x));
      one.codec->decode(payload, own.back(), Write::set);
      for (std::size_t i = one.memories.size(); i-- > 0;)
        one.memories[i]->sent(kept[i], Sent({{one.codec.get(), &payload, 0, x.numel()}}), slot);
      for (std::size_t i = one.memories.size(); !counts && i-- > 0;)
        one.memories[i]->take_back(i == 0 ? produced[static_cast<std::size_t>(rank)] : kept[i - 1],
                                   own.back(), slot);
      payloads.push_back(payload);
    }
    last_own = own;
    if (!counts) return {};
    at::Tensor value = at::empty_like(produced[0]);
    ranks_[0].codec->combine(payloads, n, value);
    at::Tensor out;
    last_received.clear();
    for (int rank = 0; rank < n; ++rank) {
      at::Tensor received = value.clone();
      auto& chain = ranks_[static_cast<std::size_t>(rank)].memories;
      for (auto memory = chain.rbegin(); memory != chain.rend(); ++memory)
        (*memory)->received(received, kCombined, slot_of(rank));
      if (out.defined()) equal_ = equal_ && at::equal(out, received);
      out = received;
      last_received.push_back(received);
    }
    ++step_;
    return out;
  }
  /// What a memory of a rank keeps under this name.
  at::Tensor kept(int rank, const std::string& name, std::size_t memory = 0) const {
    return state(rank, memory)[name];
  }
  std::map<std::string, at::Tensor> state(int rank, std::size_t memory = 0) const {
    StateOf visitor;
    ranks_[static_cast<std::size_t>(rank)].memories[memory]->visit_state(visitor);
    return visitor.found;
  }
  /// Whether all ranks have received the same bits in every step.
  bool equal() const { return equal_; }
  std::vector<at::Tensor> last_own;       ///< what each rank has sent, decoded
  std::vector<at::Tensor> last_received;  ///< what came out on each rank

 private:
  struct One {
    std::vector<std::unique_ptr<Memory>> memories;
    std::unique_ptr<Codec> codec;
  };
  Slot slot_of(int rank) const {
    return {.step = step_, .seed = 3, .rank = rank, .ranks = static_cast<int>(ranks_.size())};
  }
  std::vector<One> ranks_;
  std::int64_t step_ = 0;
  bool equal_ = true;
};

/// A step that is taken back leaves what was there, but for rounding.
inline double changed_by_a_step_back(const std::string& form) {
  const std::vector<TensorDesc> descs{{"w", DType::f64, {6}}, {"b", DType::f64, {2}}};
  Workers workers(1, form, descs);
  const auto g = [](int t) { return at::sin(at::arange(8, at::kDouble) * 1.7 + t); };
  for (int t = 0; t < 4; ++t) workers.step({g(t)});
  const auto before = workers.state(0);
  workers.step({g(9) * 3}, false);
  double most = 0;
  const auto after = workers.state(0);
  if (after.size() != before.size()) return 1e9;
  for (const auto& [name, value] : before)
    most = std::max(most, (after.at(name) - value).abs().max().item<double>());
  return most;
}

}  // namespace thinwire::test
