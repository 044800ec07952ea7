// SPDX-License-Identifier: Apache-2.0
// What was measured is found again, for a week, on the same machine; a broken file is no error.
#include "thinwire/train/speed_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "thinwire/core/json.h"

namespace thinwire {
namespace {

class SpeedCacheTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = ::testing::TempDir() + "/speeds." + std::to_string(::getpid());
  const std::string path_ = folder_ + "/deep/forms.json";
  const SpeedCache cache_{path_};
};

TEST_F(SpeedCacheTest, FindsForAWeekWhatWasAdded) {
  EXPECT_FALSE(cache_.find("a", 100));
  cache_.add("a", {1e9, 2e9}, 100);
  cache_.add("b", {3e9, 4e9}, 100);
  ASSERT_TRUE(cache_.find("a", 106));
  EXPECT_EQ(cache_.find("a", 106)->encode_bytes_per_s, 1e9);
  EXPECT_EQ(cache_.find("b", 100)->decode_bytes_per_s, 4e9);
  EXPECT_FALSE(cache_.find("a", 107));
  EXPECT_FALSE(cache_.find("a", 99)) << "from the future";
  cache_.add("a", {5e9, 6e9}, 107);
  EXPECT_EQ(cache_.find("a", 107)->encode_bytes_per_s, 5e9);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/deep"))
    EXPECT_EQ(entry.path().filename(), "forms.json") << "nothing else is left";
}

TEST_F(SpeedCacheTest, WhatCannotBeReadOrWrittenIsMeasured) {
  std::filesystem::create_directories(folder_ + "/deep");
  for (const char* text : {"", "{", "[]", R"({"a": [1, 2]})", R"({"a": ["x", 2, 100]})",
                           R"({"a": [0, 2, 100]})", R"({"a": {}})"}) {
    write_text(path_, text);
    EXPECT_FALSE(cache_.find("a", 100)) << text;
  }
  cache_.add("a", {1, 2}, 100);
  EXPECT_TRUE(cache_.find("a", 100)) << "a broken file is replaced";
  const SpeedCache nowhere("/proc/none/forms.json");
  nowhere.add("a", {1, 2}, 100);
  EXPECT_FALSE(nowhere.find("a", 100));
}

TEST(SpeedKey, TellsFormsMatricesAndRanksApart) {
  EXPECT_EQ(speed_key("sign", 64, 2), speed_key("sign", 64, 2));
  EXPECT_NE(speed_key("sign", 64, 2), speed_key("topk", 64, 2));
  EXPECT_NE(speed_key("sign", 64, 2), speed_key("sign", 128, 2));
  EXPECT_NE(speed_key("sign", 64, 2), speed_key("sign", 64, 3));
}

TEST(CacheFolder, FollowsTheEnvironment) {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  const std::string cache = value("XDG_CACHE_HOME"), home = value("HOME");
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(cache_folder(), "/somewhere/thinwire");
  ::setenv("XDG_CACHE_HOME", "", 1);
  ::setenv("HOME", "/elsewhere", 1);
  EXPECT_EQ(cache_folder(), "/elsewhere/.cache/thinwire");
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  ::setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace thinwire
