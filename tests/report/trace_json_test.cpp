// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/trace_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "tests/report/scratch.h"
#include "thinwire/core/error.h"
#include "thinwire/report/timeline.h"

namespace thinwire {
namespace {

Trace example() {
  return {{0, 0, OpKind::forward, 0, 0.0, 0.1, 0},
          {0, 0, OpKind::backward, 1, 0.1, 0.3, 0},
          {0, 0, OpKind::exchange, 0, 0.2, 0.5, 800},
          {0, 0, OpKind::exchange, 1, 0.25, 0.7, 400},
          {0, 0, OpKind::update, 0, 0.6, 0.9, 0},
          {1, 3, OpKind::exchange, 0, 1.0 / 3, 0.5, 1LL << 40}};
}

void expect_equal(const Trace& a, const Trace& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(trace_lines({a[i]}), trace_lines({b[i]}));
}

// KF-51: one reader for simulated and measured traces, the unit in the field names.
TEST(KnownFailures, KF51_OneReaderForBothClocksAndBothForms) {
  for (const TraceClock clock : {TraceClock::measured, TraceClock::virtual_time}) {
    const TraceFile trace{example(), clock};
    for (const std::string& text : {to_json_lines(trace), to_chrome_json(trace)}) {
      for (const char* field : {"\"begin_s\"", "\"end_s\"", "\"bytes\"", "\"rank\"", "\"step\""})
        EXPECT_NE(text.find(field), std::string::npos) << field;
      const TraceFile back = trace_from_text(text, "test");
      EXPECT_EQ(back.clock, clock);
      expect_equal(back.events, trace.events);  // seconds bit for bit
    }
  }
}

TEST(TraceJson, FilesByExtension) {
  const test::Scratch scratch;
  for (const char* name : {"trace.jsonl", "trace.json"}) {
    write_trace(scratch.file(name), {example(), TraceClock::virtual_time});
    const TraceFile back = read_trace(scratch.file(name));
    EXPECT_EQ(back.clock, TraceClock::virtual_time);
    expect_equal(back.events, example());
  }
  EXPECT_EQ(read_text(scratch.file("trace.json")).front(), '{');
}

TEST(TraceJson, ChromeTracksNeverOverlap) {
  const Json json =
      parse_json(to_chrome_json({example(), {}}, [](const Event&) { return "named"; }), "test");
  std::map<std::pair<int, int>, double> end_us;
  std::set<int> tracks;
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_EQ(event.at("name"), "named");
    auto& end = end_us[{event.at("pid"), event.at("tid")}];
    EXPECT_GE(event.at("ts").get<double>(), end);
    end = event.at("ts").get<double>() + event.at("dur").get<double>();
    if (event.at("pid") == 0) tracks.insert(event.at("tid").get<int>());
  }
  EXPECT_EQ(tracks, (std::set<int>{0, 1, 2}));  // compute and two exchanges that overlap
}

TEST(TraceJson, MalformedTracesNameTheLine) {
  const std::string good = trace_lines({example()[0]});
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      trace_from_text(text, "t.jsonl");
    } catch (const DataError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(error_of(good + "{]\n").find("t.jsonl:2"), std::string::npos);
  EXPECT_NE(
      error_of(good +
               R"({"rank":0,"step":0,"kind":"swim","index":0,"begin_s":0,"end_s":1,"bytes":0})" +
               "\n")
          .find("got 'swim'"),
      std::string::npos);
  EXPECT_NE(
      error_of(R"({"rank":0,"step":0,"kind":"update","index":0,"begin_s":2,"end_s":1,"bytes":0})"
               "\n")
          .find("end after it begins"),
      std::string::npos);
  EXPECT_NE(error_of(R"({"rank":0,"step":0,"kind":"update","index":0,"begin_s":2,"bytes":0})"
                     "\n")
                .find("'end_s'"),
            std::string::npos);
  EXPECT_NE(error_of("{\"trace\": 1, \"clock\": \"cycles\"}\n").find("got 'cycles'"),
            std::string::npos);
  EXPECT_NE(error_of("{\"traceEvents\": 3}").find("'traceEvents' must be an array"),
            std::string::npos);
  EXPECT_NE(error_of("[1]\n").find("must be an object"), std::string::npos);
  EXPECT_EQ(trace_from_text(good + "{\"rank\":", "t").events.size(),
            1U);  // the writer died in its last line
  EXPECT_TRUE(trace_from_text("", "t").events.empty());
}

TEST(Timeline, ExposedIsExchangeOutsideCompute) {
  const auto steps = step_times(example());
  ASSERT_EQ(steps.size(), 2U);
  const StepTimes& first = steps[0];
  EXPECT_EQ(first.rank, 0);
  EXPECT_DOUBLE_EQ(first.begin_s, 0);
  EXPECT_DOUBLE_EQ(first.end_s, 0.9);
  EXPECT_NEAR(first.compute_s, 0.6, 1e-12);   // 0 to 0.3, 0.6 to 0.9
  EXPECT_NEAR(first.exchange_s, 0.5, 1e-12);  // 0.2 to 0.7
  EXPECT_NEAR(first.exposed_s, 0.3, 1e-12);   // 0.3 to 0.6
  EXPECT_EQ(first.bytes, 1200);
  ASSERT_EQ(first.exposed.size(), 1U);
  EXPECT_DOUBLE_EQ(first.exposed[0].begin_s, 0.3);
  EXPECT_EQ(steps[1].rank, 1);
  EXPECT_EQ(steps[1].step, 3);
  EXPECT_DOUBLE_EQ(steps[1].exposed_s, steps[1].exchange_s);
}

TEST(Timeline, SetsOfIntervals) {
  EXPECT_EQ(united({{3, 4}, {0, 1}, {1, 2}, {0.5, 0.7}, {5, 5}}),
            (std::vector<Interval>{{0, 2}, {3, 4}}));
  EXPECT_EQ(without({{0, 10}}, {{1, 2}, {3, 4}, {9, 12}}),
            (std::vector<Interval>{{0, 1}, {2, 3}, {4, 9}}));
  EXPECT_EQ(without({{0, 1}}, {{0, 1}}), std::vector<Interval>{});
  EXPECT_DOUBLE_EQ(total({{0, 2}, {3, 4}}), 3);
}

}  // namespace
}  // namespace thinwire
