// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/json.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/expect_throw.h"
#include "thinwire/core/notice.h"
#include "thinwire/core/types.h"

namespace thinwire {
namespace {

TEST(Json, ErrorsNameSourceAndPlace) {
  TW_EXPECT_THROW(parse_json("{\n  \"a\": 1,\n  oops\n}", "p.json"), DataError,
                  "p.json: not valid JSON at line 3, column 3");
  TW_EXPECT_THROW(parse_json("", "p.json"), DataError, "p.json: not valid JSON");
  const Json json =
      parse_json(R"({"a": "x", "b": 2.5, "c": 300, "d": true, "e": [1, 2.5], "f": 1e3})", "p");
  TW_EXPECT_THROW(get<int>(json, "z", "p"), DataError, "p: 'z' is missing");
  TW_EXPECT_THROW(get<int>(json, "a", "p"), DataError, "p: 'a' has the wrong type: \"x\"");
  TW_EXPECT_THROW(get<int>(json, "b", "p"), DataError, "p: 'b' has the wrong type: 2.5");
  TW_EXPECT_THROW(get<std::uint8_t>(json, "c", "p"), DataError, "'c'");
  TW_EXPECT_THROW(get<int>(json, "d", "p"), DataError, "'d'");
  TW_EXPECT_THROW(get<double>(json, "d", "p"), DataError, "'d'");
  TW_EXPECT_THROW(get<std::vector<int>>(json, "e", "p"), DataError, "'e'");
  TW_EXPECT_THROW(get<int>(Json::array(), "e", "p"), DataError, "an object with 'e' was expected");
  EXPECT_EQ(get<int>(json, "f", "p"), 1000);
  EXPECT_EQ(get<double>(json, "c", "p"), 300);
}

TEST(Files, WriteIsAtomicAndErrorsNameThePath) {
  const std::string folder = ::testing::TempDir() + "/thinwire_json_test";
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/a.json";
  write_text(path, "{}");
  write_text(path, "{\"a\": 1}");
  EXPECT_EQ(read_text(path), "{\"a\": 1}");
  EXPECT_EQ(get<int>(read_json(path), "a", path), 1);
  write_text(path, "");
  EXPECT_EQ(read_text(path), "");
  const auto begin = std::filesystem::directory_iterator(folder);
  EXPECT_EQ(std::distance(begin, std::filesystem::directory_iterator()), 1) << "no temporary left";
  TW_EXPECT_THROW(read_text(folder + "/none"), ConfigError, folder + "/none");
  TW_EXPECT_THROW(read_text(folder), ConfigError, "it is a folder");
  TW_EXPECT_THROW(write_text(folder + "/no/such", "x"), ConfigError, folder + "/no/such");
  TW_EXPECT_THROW(write_text(folder, "x"), ConfigError, "it is a folder");
  std::filesystem::remove_all(folder);
}

TEST(Notice, GoesToTheInstalledCallback) {
  std::string heard;
  const NoticeFn before = on_notice([&](const std::string& text) { heard += text; });
  notice("a");
  on_notice(before);
  notice("b");
  EXPECT_EQ(heard, "a");
}

TEST(Types, NamesRoundTrip) {
  for (int i = 0; i < 12; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from(to_string(dtype)), dtype);
    EXPECT_GT(dtype_bytes(dtype), 0);
  }
  for (int i = 0; i < 11; ++i) {
    const auto combine = static_cast<Combine>(i);
    EXPECT_EQ(combine_from(to_string(combine)), combine);
  }
  EXPECT_FALSE(dtype_from("float32"));
}

}  // namespace
}  // namespace thinwire
