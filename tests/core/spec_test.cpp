// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/spec.h"

#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

TEST(Spec, ParsesChains) {
  const auto chain = parse_chain("momentum{beta=0.9}|ef|topk{ratio=0.01}");
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(chain[0], (Spec{"momentum", {{"beta", "0.9"}}, {}}));
  EXPECT_EQ(chain[1], (Spec{"ef", {}, {}}));
  EXPECT_EQ(to_string(chain), "momentum{beta=0.9}|ef|topk{ratio=0.01}");
}

TEST(Spec, InnerSpecsAndCanonicalForm) {
  const Spec spec = parse_spec(" a { z = 1 , b{y=2} , c=x y , d } ");
  EXPECT_EQ(spec.params.at("c"), "x y");
  ASSERT_EQ(spec.inner.size(), 2u);
  EXPECT_EQ(to_string(spec), "a{c=x y,z=1,b{y=2},d}");
  EXPECT_EQ(parse_spec(to_string(spec)), spec);
  EXPECT_EQ(to_string(parse_spec("none{}")), "none");
  EXPECT_EQ(to_string(parse_spec("tcp{join=[::1]:80,file=/tmp/a=b}")),
            "tcp{file=/tmp/a=b,join=[::1]:80}");
}

TEST(Spec, RefusesAndShowsThePlace) {
  TW_EXPECT_THROW(parse_chain(""), ConfigError, "'': expected a name at character 1");
  TW_EXPECT_THROW(parse_chain("ef|"), ConfigError, "'ef|': expected a name at character 4");
  TW_EXPECT_THROW(parse_chain("topk{ratio=0.01"), ConfigError,
                  "expected ',' or '}' at character 16");
  TW_EXPECT_THROW(parse_chain("topk{ratio=}"), ConfigError, "expected a value for 'ratio'");
  TW_EXPECT_THROW(parse_chain("topk{a=1,a=2}"), ConfigError, "'a' is given twice at character 10");
  TW_EXPECT_THROW(parse_chain("topk}"), ConfigError, "unexpected '}' at character 5");
  TW_EXPECT_THROW(parse_chain("topk{a=1}x"), ConfigError, "unexpected 'x' at character 10");
  TW_EXPECT_THROW(parse_spec("ef|topk"), ConfigError, "not a chain of 2");
  TW_EXPECT_THROW(parse_chain(std::string("a\0b", 3)), ConfigError, "at character 2");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "a{";
  TW_EXPECT_THROW(parse_chain(deep), ConfigError, "nested braces");
}

TEST(SpecReader, ReadsTypedValues) {
  const Spec spec = parse_spec("x{a=word,b=0.5,c=7,d=25MiB,e=yes,f=1e6}");
  SpecReader in(spec);
  EXPECT_EQ(in.text("a", ""), "word");
  EXPECT_EQ(in.number("b", 0), 0.5);
  EXPECT_EQ(in.integer("c", 0), 7);
  EXPECT_EQ(in.bytes("d", 0), 25 << 20);
  EXPECT_TRUE(in.flag("e", false));
  EXPECT_EQ(in.integer("f", 0), 1'000'000);
  EXPECT_EQ(in.integer("absent", 4), 4);
  in.finish();
}

TEST(SpecReader, RefusesWrongValues) {
  const Spec spec = parse_spec("x{a=1.5,b=many,c=maybe,d=12parsec}");
  SpecReader in(spec);
  TW_EXPECT_THROW(in.integer("a", 0), ConfigError, "x: a must be a whole number, got '1.5'");
  TW_EXPECT_THROW(in.number("b", 0), ConfigError, "x: b must be a number, got 'many'");
  TW_EXPECT_THROW(in.flag("c", false), ConfigError, "x: c must be true or false, got 'maybe'");
  TW_EXPECT_THROW(in.bytes("d", 0), ConfigError, "x: d: '12parsec' has an unknown unit");
}

TEST(KnownFailures, KF58_MisspeltParameterNamesTheNearest) {
  const Spec spec = parse_spec("topk{ratoi=0.01}");
  SpecReader in(spec);
  in.number("ratio", 0.01);
  in.integer("levels", 1);
  TW_EXPECT_THROW(in.finish(), ConfigError,
                  "topk: unknown parameter 'ratoi'; did you mean 'ratio'? valid: levels, ratio");
}

TEST(SpecReader, RefusesInnerSpecsNobodyRead) {
  const Spec spec = parse_spec("topk{ratio}"), odd = parse_spec("topk{sign}");
  SpecReader in(spec), other(odd);
  in.number("ratio", 0.01);
  TW_EXPECT_THROW(in.finish(), ConfigError, "topk: 'ratio' needs a value");
  other.number("ratio", 0.01);
  TW_EXPECT_THROW(other.finish(), ConfigError, "topk: unknown parameter 'sign'; valid: ratio");
  EXPECT_EQ(other.inner().size(), 1u);
  other.finish();
}

}  // namespace
}  // namespace thinwire
