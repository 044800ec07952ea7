// SPDX-License-Identifier: Apache-2.0
// The cases of whole forms: what an exchange does before its first message, and after its last.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <random>

#include "bench/micro/codec_cases.h"
#include "thinwire/core/error.h"
#include "thinwire/exchange/call.h"

namespace thinwire::bench {
namespace {

/// One bucket of a matrix with 4000 columns, in a form.
struct Chain {
  Chain(std::int64_t some, const std::string& text) {
    const std::int64_t columns = 4000, elements = some / columns * columns;
    out = at::zeros({elements});
    exchange.form = parse_chain(text);
    call.descs = {{"w", DType::f32, {elements / columns, columns}}};
    call.exchange = &exchange;
    call.codec = make_codec(exchange, call.descs);
    for (std::size_t i = 0; i + 1 < exchange.form.size(); ++i)
      call.memories.push_back(
          memories().find(exchange.form[i].name).make(exchange.form[i], call.descs));
    call.data = at::empty({elements});
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1e-3F);
    std::vector<float> drawn(65537);  // a length that no pattern of the kernels shares
    for (float& x : drawn) x = normal(random);
    auto* to = call.data.data_ptr<float>();
    for (std::int64_t i = 0; i < elements; ++i)
      to[i] = drawn[static_cast<std::size_t>(i) % drawn.size()] *
              (1 + static_cast<float>(i / 65537 % 13) / 16);
  }

  /// All that is done with a gradient but the messages and, unless `decodes`, what comes of them.
  void send(bool decodes) {
    const at::NoGradGuard no_grad;
    call.slot.round = 0;
    open_call(call);
    for (; call.slot.round < call.codec->traits().rounds; ++call.slot.round) {
      payload = encode(call, *call.codec, 0, call.x.numel());
      tell_sent(call, Sent({{call.codec.get(), &payload, 0, call.x.numel()}}));
      call.codec->commit(payload);
      if (decodes) call.codec->decode(payload, out, call.slot.round == 0 ? Write::set : Write::add);
    }
  }
  void decode() { call.codec->decode(payload, out, Write::add); }
  /// A step without sending: the memory alone, or with the gradient cleared.
  void skip(bool clears) {
    const at::NoGradGuard no_grad;
    call.slot.fires = false;
    if (clears) return keep_all(call);
    at::Tensor x = call.data;
    call.memories[0]->before(x, call.slot);
    call.memories[0]->sent(x, Sent(), call.slot);
  }

  Exchange exchange;
  Call call;
  Payload payload;
  at::Tensor out;
};

/// The same by the calls of a memory and a codec one after the other.
struct OneByOne : Chain {
  using Chain::Chain;
  void send() {
    at::Tensor x = call.data;
    for (auto& memory : call.memories) memory->before(x, call.slot);
    if (call.memories.empty()) x = x.clone();
    for (call.slot.round = 0; call.slot.round < call.codec->traits().rounds; ++call.slot.round) {
      payload = call.codec->encode(x, call.slot);
      const Sent sent({{call.codec.get(), &payload, 0, x.numel()}});
      for (auto& memory : call.memories) memory->sent(x, sent, call.slot);
      if (call.memories.empty()) sent.residual(x, x);
      call.codec->commit(payload);
    }
  }
};

void check(std::int64_t elements, const std::string& form) {
  const at::NoGradGuard no_grad;
  Chain joined(elements, form);
  OneByOne apart(elements, form);
  for (int step = 0; step < 3; ++step) {
    joined.call.slot.step = apart.call.slot.step = step;
    joined.send(false);
    apart.send();
    for (std::size_t p = 0; p < joined.payload.parts.size(); ++p)
      if (!at::equal(joined.payload.parts[p], apart.payload.parts[p]))
        throw Error(form + ": joined passes make another payload");
  }
}

struct Row {
  const char* form;
  double target, reads, writes;
  const char* why;
};

}  // namespace

std::vector<Case> make_chain_cases(std::int64_t elements) {
  at::set_num_threads(1);
  std::vector<Case> cases;
  const auto add = [&](const Row& row, const std::string& what, auto run) {
    const auto chain = std::make_shared<Chain>(elements, row.form);
    const std::string form = row.form;
    cases.push_back({"form " + form + " " + what, row.target, row.reads, row.writes, row.why,
                     [chain, run] { run(*chain); }, [elements, form] { check(elements, form); }});
  };
  const auto send = [](Chain& chain) { chain.send(false); };
  const auto all = [](Chain& chain) { chain.send(true); };
  const auto decode = [](Chain& chain) {
    if (chain.payload.parts.empty()) chain.send(false);
    chain.decode();
  };
  add({"cast{f16}", 0.9, 1, 0.5, "half as many bytes are written"}, "encode", send);
  add({"cast{f16}", 0, 1.5, 1, "the sum is read and written"}, "decode and add", decode);
  add({"ef|cast{f16}", 0, 2, 1.5, "one pass"}, "encode and residual", send);
  add({"sign", 0, 2, 0.03, "the scale is the mean of all magnitudes"}, "encode", send);
  add({"sign", 0, 1, 1, "the sum is read and written"}, "decode and add", decode);
  add({"ef|sign", 2, 3, 2, "the scale is known after the first pass, the residual needs it"},
      "encode and residual", send);
  add({"qsgd{bits=4}", 1.5, 1, 0.125, "a block is in the cache when its scale is known"}, "encode",
      send);
  add({"qsgd{bits=4}", 0, 1.125, 1, "the sum is read and written"}, "decode and add", decode);
  add({"ef|qsgd{bits=4}", 0, 2, 1.125, "one pass"}, "encode and residual", send);
  add({"ef|topk{ratio=0.01}", 1.3, 2, 1, "candidates are collected while the memory is added to"},
      "encode and residual", send);
  add({"topk{ratio=0.01}", 0, 0.15, 0.15, "a cache line for each element sent"}, "decode and add",
      decode);
  const char* rounds = "each round needs the whole factor of the one before";
  add({"ef|powersgd{rank=1}", 2.7, 5, 3, rounds}, "encode and residual", send);
  add({"ef|powersgd{rank=1}", 0, 6, 5, rounds}, "all passes", all);
  add({"ef|powersgd{rank=4}", 5, 5, 3, rounds}, "encode and residual", send);
  add({"ef|none", 1, 2, 1, "one pass"}, "skipped step of covap, memory",
      [](Chain& chain) { chain.skip(false); });
  add({"ef|none", 0, 2, 2, "one pass; the gradient is zero then"}, "skipped step of covap, all",
      [](Chain& chain) { chain.skip(true); });
  return cases;
}

}  // namespace thinwire::bench
