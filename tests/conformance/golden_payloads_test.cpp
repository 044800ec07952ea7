// SPDX-License-Identifier: Apache-2.0
// The bytes of payloads, and what they decode to, as they were when tests/golden/payloads.json was
// written: a codec that changes them raises kPayloadFormat, so that ranks of two formats do not
// join, and writes the file anew:
//   THINWIRE_WRITE_GOLDEN=1 build/bin/codec_conformance_test --gtest_filter='GoldenPayloads*'
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/conformance/codec_specs.h"
#include "thinwire/codec/codec.h"
#include "thinwire/core/json.h"
#include "thinwire/core/rng.h"
#include "thinwire/core/version.h"

namespace thinwire {
namespace {

const char* const kPath = TW_SOURCE "/tests/golden/payloads.json";

std::string hex_of(const void* data, std::size_t bytes) {
  static const char* digits = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<const std::uint8_t*>(data)[i];
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

std::string hex_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return hex_of(flat.const_data_ptr(), flat.nbytes());
}

/// The bytes into a tensor like `like`.
at::Tensor tensor_of(const std::string& hex, const at::Tensor& like) {
  at::Tensor out = at::empty_like(like).contiguous();
  EXPECT_EQ(hex.size(), 2 * out.nbytes());
  auto* to = static_cast<std::uint8_t*>(out.data_ptr());
  for (std::size_t i = 0; i < std::min(hex.size() / 2, out.nbytes()); ++i)
    to[i] = static_cast<std::uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return out;
}

/// Exact in single precision, with both signs, equal values and zeros.
at::Tensor values(int step) {
  at::Tensor out = at::empty({43});
  for (int i = 0; i < 43; ++i)
    out[i] =
        static_cast<float>((i * 37 + step * 11) % 41 - 20) / 16 * static_cast<float>(i % 7 != 3);
  return out;
}

/// Two steps of one rank: the parts of each round's payload, and the values of each step. Where
/// `stored` is given, its payloads take the place of those made here.
Json run(const std::string& text, const Json* stored) {
  const std::vector<TensorDesc> descs{{"a", DType::f32, {6, 6}}, {"b", DType::f32, {7}}};
  const Spec spec = parse_spec(text);
  const auto codec = codecs().find(spec.name).make(spec, descs);
  Json out = Json::array();
  for (int step = 0; step < 2; ++step) {
    at::Tensor x = values(step), decoded;
    Slot slot{.step = step, .seed = 7, .exchange = 2, .rank = 1};
    while (auto proposal = codec->propose(x, slot)) slot.agreed.push_back(proposal->value.clone());
    Json rounds = Json::array();
    for (; slot.round < codec->traits().rounds; ++slot.round) {
      Payload payload = codec->encode(x, slot);
      Json parts = Json::array();
      for (std::size_t p = 0; p < payload.parts.size(); ++p) {
        parts.push_back(hex_of(payload.parts[p]));
        payload.parts[p] = stored ? tensor_of(stored->at(static_cast<std::size_t>(step))
                                                  .at("payloads")
                                                  .at(static_cast<std::size_t>(slot.round))
                                                  .at(p),
                                              payload.parts[p])
                                  : payload.parts[p].clone();  // it may be x itself
      }
      rounds.push_back(std::move(parts));
      codec->residual(x, payload, x);
      codec->commit(payload);
      codec->decode(payload, decoded, slot.round == 0 ? Write::set : Write::add);
    }
    out.push_back({{"payloads", std::move(rounds)}, {"values", hex_of(decoded)}});
  }
  return out;
}

/// Codecs whose bits depend on a library's sums or cosines, which differ between processors.
bool same_everywhere(const std::string& spec) {
  for (const char* name : {"autoencoder", "pca", "chunk_dct", "chunk_topk"})
    if (spec.starts_with(name)) return false;
  return true;
}

}  // namespace

TEST(GoldenPayloads, AreMadeAndDecodedAsBefore) {
  if (std::getenv("THINWIRE_WRITE_GOLDEN")) {
    Json all{{"format", kPayloadFormat}, {"codecs", Json::object()}};
    for (const std::string& spec : codec_specs())
      if (same_everywhere(spec)) all["codecs"][spec] = run(spec, nullptr);
    write_text(kPath, all.dump(1) + "\n");
  }
  const Json golden = parse_json(read_text(kPath), kPath);
  ASSERT_EQ(golden.at("format").get<int>(), kPayloadFormat) << "write the file anew, see above";
  std::size_t met = 0;
  for (const std::string& spec : codec_specs()) {
    if (!same_everywhere(spec)) continue;
    SCOPED_TRACE(spec);
    ASSERT_TRUE(golden.at("codecs").contains(spec)) << "write the file anew, see above";
    const Json& before = golden.at("codecs").at(spec);
    EXPECT_EQ(run(spec, nullptr), before) << "other bytes than before: raise kPayloadFormat";
    const Json decoded = run(spec, &before);
    for (std::size_t step = 0; step < 2; ++step)
      EXPECT_EQ(decoded.at(step).at("values"), before.at(step).at("values")) << "step " << step;
    ++met;
  }
  EXPECT_EQ(met, golden.at("codecs").size()) << "a codec is gone: write the file anew, see above";
}

}  // namespace thinwire
