// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/report/scratch.h"
#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

std::string with_header(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

std::string written(const test::Scratch& scratch) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> b{-7};
  write_safetensors(scratch.file("x"),
                    {{"a", DType::f32, {2, 3}, a.data()},
                     {"b", DType::i64, {}, b.data()},
                     {"empty", DType::f32, {0, 4}, nullptr}},
                    {{"k", "v"}});
  return read_text(scratch.file("x"));
}

TEST(Safetensors, RoundTrip) {
  const test::Scratch scratch;
  const auto file = parse_safetensors(written(scratch), "x");
  EXPECT_EQ(file.metadata.at("k"), "v");
  EXPECT_EQ(file.tensors.size(), 3u);
  EXPECT_EQ(file.tensors.at("a").shape, (std::vector<std::int64_t>{2, 3}));
  float third = 0;
  std::memcpy(&third, file.data.data() + file.tensors.at("a").begin + 8, 4);
  EXPECT_EQ(third, 3);
  EXPECT_EQ(file.tensors.at("b").dtype, DType::i64);
  EXPECT_EQ(file.tensors.at("b").begin % 8, 0);
  EXPECT_EQ(file.tensors.at("empty").bytes, 0);
}

TEST(Safetensors, CutAtEveryByteIsADataError) {
  const test::Scratch scratch;
  const std::string whole = written(scratch);
  for (std::size_t length = 0; length < whole.size(); ++length)
    TW_EXPECT_THROW(parse_safetensors(whole.substr(0, length), "cut"), DataError, "cut");
  TW_EXPECT_THROW(parse_safetensors(whole + "x", "longer"), DataError, "longer");
}

TEST(Safetensors, HostileHeaders) {
  const std::string data(8, 'd');
  for (
      const char* header :
      {"[]", "{", "{\"a\":1}", "{\"__metadata__\":[]}",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})",
       R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F32","shape":[1e30],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"})
    TW_EXPECT_THROW(parse_safetensors(with_header(header, data), "evil"), DataError, "evil");
  std::string huge = with_header("{}", "");
  std::memset(huge.data(), 0xff, 8);
  TW_EXPECT_THROW(parse_safetensors(huge, "evil"), DataError, "evil");
}

TEST(Safetensors, FlippedBytesNeverCrash) {
  const test::Scratch scratch;
  const std::string whole = written(scratch);
  Rng rng({.seed = 1});
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (int flips = 0; flips < 3; ++flips)
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.next_u32());
    try {
      parse_safetensors(bytes, "flipped");
    } catch (const DataError&) {
    }
  }
}

TEST(Safetensors, RefusesTwoOfOneName) {
  const test::Scratch scratch;
  const float one = 1;
  TW_EXPECT_THROW(write_safetensors(scratch.file("x"),
                                    {{"a", DType::f32, {}, &one}, {"a", DType::f32, {}, &one}}),
                  ConfigError, "'a'");
  TW_EXPECT_THROW(write_safetensors("/nowhere/x", {{"a", DType::f32, {}, &one}}), ConfigError,
                  "/nowhere/x");
}

}  // namespace
}  // namespace thinwire
