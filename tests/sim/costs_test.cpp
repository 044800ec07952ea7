// SPDX-License-Identifier: Apache-2.0
// Published costs, to the byte and to the message: strategies, control, all-reduces in groups.
#include <gtest/gtest.h>

#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"
#include "thinwire/sim/control_cost.h"
#include "thinwire/sim/strategy_cost.h"

namespace thinwire {
namespace {

// arXiv 2505.12832: 2 + 2 + 12 bytes a parameter, P parameters, N workers, S servers.
TEST(StrategyCost, IsTheTableToTheByte) {
  constexpr std::int64_t p = 960'000;
  for (const std::int64_t n : {1, 2, 4, 8, 64}) {
    const Bytes share = p / n, once = 2 * (p - share);  // 2 bytes of the (N-1)/N P that others have
    const StrategyCost ddp = strategy_cost("ddp", p, n);
    EXPECT_EQ(ddp.worker_state, 16 * p) << n;
    EXPECT_EQ(ddp.worker_sent, 2 * once) << n;
    const StrategyCost zero1 = strategy_cost("zero1", p, n);
    EXPECT_EQ(zero1.worker_state, 4 * p + 12 * share) << n;
    EXPECT_EQ(zero1.worker_sent, 2 * once) << n;
    const StrategyCost zero2 = strategy_cost("zero2", p, n);
    EXPECT_EQ(zero2.worker_state, 2 * p + 14 * share) << n;
    EXPECT_EQ(zero2.worker_sent, 2 * once) << n;
    const StrategyCost zero3 = strategy_cost("zero3", p, n, 1, 5000);
    EXPECT_EQ(zero3.worker_state, 16 * share + (n > 1 ? 2 * 5000 : 0)) << n;
    EXPECT_EQ(zero3.worker_sent, 3 * once) << n;
    for (const char* name : {"ps_sync", "ps_async"})
      for (const std::int64_t s : {1, 2, 4}) {
        const StrategyCost ps = strategy_cost(name, p, n, s);
        EXPECT_EQ(ps.worker_state, 4 * p);
        EXPECT_EQ(ps.worker_sent, 2 * 2 * p);
        EXPECT_EQ(ps.server_state, 16 * p / s);
        EXPECT_EQ(ps.server_sent, n * 2 * 2 * p / s);
      }
  }
}

TEST(StrategyCost, ShardsThatDoNotDivideArePadded) {
  const StrategyCost zero3 = strategy_cost("zero3", 10, 4);
  EXPECT_EQ(zero3.worker_state, 16 * 3);
  EXPECT_EQ(zero3.worker_sent, 6 * 3 * 3);
  EXPECT_EQ(strategy_cost("ddp", 10, 4).worker_state, 160);
}

// A character transformer of a million parameters on four ranks: half as many bytes again as DDP.
TEST(StrategyCost, FullShardingSendsHalfAsMuchAgain) {
  const StrategyCost ddp = strategy_cost("ddp", 1'000'000, 4);
  const StrategyCost zero3 = strategy_cost("zero3", 1'000'000, 4, 1, 65'536);
  EXPECT_EQ(2 * zero3.worker_sent, 3 * ddp.worker_sent);
  EXPECT_EQ(zero3.worker_state, 4'000'000 + 131'072);
}

TEST(StrategyCost, RefusesWhatCannotBe) {
  TW_EXPECT_THROW(strategy_cost("zero4", 1, 1), ConfigError, "unknown strategy 'zero4'");
  TW_EXPECT_THROW(strategy_cost("ddp", 0, 1), ConfigError, "parameters must be at least 1, got 0");
  TW_EXPECT_THROW(strategy_cost("ddp", 1, 0), ConfigError, "ranks must be at least 1, got 0");
  TW_EXPECT_THROW(strategy_cost("ps_sync", 1, 1, 0), ConfigError, "servers must be at least 1");
}

// arXiv 1907.13257: never where batches cost nothing, always where twice the batch needs twice the
// epochs.
TEST(StrategyCost, ModelParallelismPaysFromAThreshold) {
  EXPECT_DOUBLE_EQ(least_model_speedup(2, 1, 1, 10, 16), 1.25);
  EXPECT_DOUBLE_EQ(least_model_speedup(4, 1, 1, 10, 10), 4);
  EXPECT_DOUBLE_EQ(least_model_speedup(2, 1, 1, 10, 20), 1);
  EXPECT_DOUBLE_EQ(least_model_speedup(2, 0.9, 0.45, 10, 10), 1);
  TW_EXPECT_THROW(least_model_speedup(2, 0, 1, 1, 1), ConfigError, "above 0, got 0");
}

// arXiv 1909.11150: 500 tensors are 64 bytes a rank, and about 60 * T * (K - 1) at the coordinator.
TEST(ControlCost, IsAsPublished) {
  EXPECT_EQ(bit_vector_bytes(500), 64);
  EXPECT_EQ(bit_vector_bytes(61), 8);
  EXPECT_EQ(bit_vector_bytes(62), 16);
  const PointToPoint wire{.latency_s = 1, .s_per_byte = 0};
  for (const std::int64_t k : {1, 2, 3, 8, 64, 27600}) {
    const ControlCost root = control_cost("coordinator", 500, k, wire);
    EXPECT_EQ(root.received, 60.0 * 500 * static_cast<double>(k - 1)) << k;
    EXPECT_EQ(root.messages, k - 1) << k;
  }
  EXPECT_EQ(control_cost("bit_vector", 500, 8, wire).messages, 3);
  EXPECT_EQ(control_cost("bit_vector", 500, 27600, wire).messages, 15);
  EXPECT_EQ(control_cost("bit_vector", 500, 27600, wire).seconds, 15);
  EXPECT_EQ(control_cost("bit_vector", 500, 1, wire).received, 0);
  EXPECT_EQ(control_cost("coordinator", 500, 8, wire).seconds, 7 + 3);
  TW_EXPECT_THROW(control_cost("bitvector", 1, 1, wire), ConfigError,
                  "unknown control 'bitvector'; did you mean 'bit_vector'");
  TW_EXPECT_THROW(control_cost("bit_vector", 0, 1, wire), ConfigError, "units must be at least 1");
}

// arXiv 1807.11205: 4 (k - 1) + 2 (p / k - 1) messages in a row against 2 (p - 1).
TEST(GroupedAllReduce, HasThePublishedMessagesInARow) {
  const PointToPoint wire{.latency_s = 1, .s_per_byte = 1e-3};
  EXPECT_EQ(all_reduce_link("ring", 1024, wire).latency_s, 2046);
  EXPECT_EQ(all_reduce_link("ring", 2048, wire).latency_s, 4094);
  EXPECT_EQ(grouped_all_reduce_link("hierarchical", 1024, 16, wire).latency_s, 186);
  EXPECT_EQ(grouped_all_reduce_link("hierarchical", 2048, 16, wire).latency_s, 314);
  EXPECT_EQ(grouped_all_reduce_link("torus", 1024, 16, wire).latency_s, 156);
  EXPECT_EQ(grouped_all_reduce_link("hierarchical", 40, 16, wire).latency_s, 60 + 4);  // ragged
}

TEST(GroupedAllReduce, TradesBytesForMessages) {
  const PointToPoint wire{.latency_s = 1, .s_per_byte = 1e-3};
  const auto per_byte = [](const Link& link) { return 1e3 / link.bytes_per_s; };
  const double ring = per_byte(all_reduce_link("ring", 1024, wire));
  const double grouped = per_byte(grouped_all_reduce_link("hierarchical", 1024, 16, wire));
  EXPECT_LE(grouped, 2 + 2 + 2 * 63.0 / 64);  // at most, as the paper's cost is read
  EXPECT_NEAR(grouped / ring, 3, 0.15);
  EXPECT_NEAR(per_byte(grouped_all_reduce_link("torus", 1024, 16, wire)), ring, 1e-12);
  // One group of all, and groups of one, are no groups.
  const Link whole = grouped_all_reduce_link("torus", 16, 16, wire);
  EXPECT_EQ(whole.latency_s, all_reduce_link("ring", 16, wire).latency_s);
  EXPECT_EQ(grouped_all_reduce_link("hierarchical", 16, 1, wire).latency_s, whole.latency_s);
  TW_EXPECT_THROW(grouped_all_reduce_link("torus", 16, 17, wire), ConfigError,
                  "inner must be in [1, 16], got 17");
  TW_EXPECT_THROW(grouped_all_reduce_link("tours", 16, 4, wire), ConfigError, "'torus'");
}

}  // namespace
}  // namespace thinwire
