// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/text.h"

#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"
#include "thinwire/core/registry.h"

namespace thinwire {
namespace {

using Names = std::vector<std::string>;

TEST(Nearest, ASwapIsOneEditAndFarNamesAreLeftOut) {
  const Names names{"none", "qsgd", "topk", "powersgd"};
  EXPECT_EQ(nearest("tokp", names), Names{"topk"});
  EXPECT_EQ(nearest("powersdg", names), Names{"powersgd"});
  EXPECT_EQ(nearest("zzzzzz", names), Names{});
  EXPECT_EQ(nearest("non", names), (Names{"none"}));
  EXPECT_EQ(nearest("TopK", names), Names{"topk"});
  EXPECT_EQ(nearest("", names), Names{});
}

TEST(Nearest, BestFirstAndAtMost) {
  const Names names{"abcx", "abcd", "abxy"};
  EXPECT_EQ(nearest("abcd", names, 2), (Names{"abcd", "abcx"}));
}

TEST(UnknownName, NamesTheNearestAndAllValidOnes) {
  EXPECT_EQ(unknown_name("codec", "tokp", Names{"none", "topk"}),
            "unknown codec 'tokp'; did you mean 'topk'? valid: none, topk");
  EXPECT_EQ(unknown_name("codec", "zzzz", Names{"none", "topk"}),
            "unknown codec 'zzzz'; valid: none, topk");
}

TEST(Registry, RefusesTwiceAndUnknown) {
  Registry<int> registry("codec");
  registry.add("topk", 1, "");
  registry.add("none", 2, "");
  EXPECT_EQ(registry.find("topk").make, 1);
  EXPECT_EQ(registry.names(), (Names{"none", "topk"}));
  TW_EXPECT_THROW(registry.add("topk", 3, ""), ConfigError, "codec 'topk' is registered twice");
  TW_EXPECT_THROW(registry.find("tokp"), ConfigError,
                  "unknown codec 'tokp'; did you mean 'topk'? valid: none, topk");
}

TEST(Format, BytesRatesSeconds) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1500), "1.5 kB");
  EXPECT_EQ(format_bytes(999'999), "1 MB");
  EXPECT_EQ(format_bytes(53'760'000), "53.8 MB");
  EXPECT_EQ(format_bytes(-2000), "-2 kB");
  EXPECT_EQ(format_rate(941e6 / 8), "941 Mbit/s");
  EXPECT_EQ(format_rate(1.25e9), "10 Gbit/s");
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(0), "0 ns");
  EXPECT_EQ(format_seconds(2.5e-6), "2.5 us");
  EXPECT_EQ(format_seconds(0.9999), "1 s");
  EXPECT_EQ(format_seconds(3924), "3924 s");
}

TEST(ParseBytes, UnitsAndRefusals) {
  EXPECT_EQ(parse_bytes("25MiB"), 25 << 20);
  EXPECT_EQ(parse_bytes("1e6"), 1'000'000);
  EXPECT_EQ(parse_bytes(" 64 KB "), 64'000);
  EXPECT_EQ(parse_bytes("0.5kib"), 512);
  EXPECT_EQ(parse_bytes("0"), 0);
  for (const auto* bad : {"", "MiB", "25MiBs", "-1", "1e30", "0.3", "nan", "inf", "0x10", "1 2"})
    EXPECT_THROW(parse_bytes(bad), ConfigError) << bad;
}

TEST(Text, ReadsTimes) {
  EXPECT_DOUBLE_EQ(parse_seconds("0.2ms"), 2e-4);
  EXPECT_DOUBLE_EQ(parse_seconds("50 us"), 5e-5);
  EXPECT_DOUBLE_EQ(parse_seconds("1.5"), 1.5);
  EXPECT_THROW(parse_seconds("3 weeks"), ConfigError);
  EXPECT_THROW(parse_seconds("-1ms"), ConfigError);
}

TEST(ParseRate, BitsAndBytes) {
  EXPECT_DOUBLE_EQ(parse_rate("100mbit"), 12.5e6);
  EXPECT_DOUBLE_EQ(parse_rate("1 Gbit/s"), 125e6);
  EXPECT_DOUBLE_EQ(parse_rate("12.5MB/s"), 12.5e6);
  EXPECT_DOUBLE_EQ(parse_rate("1MiB/s"), 1048576);
  for (const auto* bad : {"", "100", "100mbps", "12.5Mb/s", "0mbit", "-1gbit", "mbit", "1e999gbit"})
    EXPECT_THROW(parse_rate(bad), ConfigError) << bad;
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (Names{"a", "", "b"}));
  EXPECT_EQ(split("", ','), Names{""});
  EXPECT_EQ(join(Names{"a", "b"}, ", "), "a, b");
  EXPECT_EQ(join(Names{}, ", "), "");
}

}  // namespace
}  // namespace thinwire
