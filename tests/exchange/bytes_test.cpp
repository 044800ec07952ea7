// SPDX-License-Identifier: Apache-2.0
// The plan's payload is what travels, byte for byte: KF-20 for the form 'none', and a whole step
// with its header.
#include <numeric>

#include "tests/train/sync_ranks.h"
#include "thinwire/comm/record.h"
#include "thinwire/plan/plan_builder.h"

namespace thinwire::test {
namespace {

void one_step(GradientSync& sync, std::vector<at::Tensor>& p) {
  sync.begin();
  at::Tensor out = at::zeros({});
  for (auto& one : p) out = out + one.sum();
  at::Tensor* const outputs[] = {&out};
  sync.mark(outputs);
  out.backward();
  sgd(p, 0);
}

/// All-reduces of these transports send 2 P (n-1)/n a rank on average (P (n-1) for short ones on
/// tcp), all_gathers P (n-1).
Bytes sent_by_all(const Exchange& exchange, int n, bool short_calls_gather) {
  constexpr Bytes kShort = 32 << 10;
  if (exchange.pattern == Pattern::all_gather || exchange.algorithm == "gather" ||
      (short_calls_gather && exchange.payload <= kShort))
    return exchange.payload * n * (n - 1);
  return 2 * exchange.payload * (n - 1);
}

}  // namespace

TEST(Bytes, OfAStepAreThoseOfThePlan) {
  const Watchdog watchdog;
  for (const std::string algorithm : {"", "direct", "gather"})
    for (int n = 2; n <= 4; ++n)
      for (const std::string transport : {"local", "tcp"}) {
        auto comms = make_local(n, 20, "record|" + transport);
        ranks_as_threads(n, [&](Rank rank) {
          at::set_num_threads(1);
          Comm& world = *comms[static_cast<std::size_t>(rank)];
          std::vector<at::Tensor> p;
          std::vector<NamedTensor> list;
          for (const std::int64_t count : {1200, 24000, 12 * 70, 12}) {
            p.push_back(parameter(at::ones({count})));
            list.push_back({"p" + std::to_string(p.size()), p.back()});
          }
          SyncOptions options{.grouping = "wfbp", .algorithm = algorithm};
          GradientSync sync(list, {}, world, options);
          one_step(sync, p);
          const auto log = call_log(world);
          world.barrier("counted from here");
          log->clear();
          const Bytes before = sync.group().counters().payload_bytes;
          one_step(sync, p);
          const Bytes sent = sync.group().counters().payload_bytes - before;
          const Plan& plan = sync.plan();
          EXPECT_EQ(log->total(), static_cast<std::int64_t>(plan.exchanges.size()));
          Bytes predicted = 0, predicted_all = 0;
          for (const Exchange& exchange : plan.exchanges) {
            Bytes counted = 0;
            for (const CallRecord& call : log->calls())
              if (call.id.exchange == exchange.id) counted += call.payload_bytes;
            EXPECT_EQ(counted, exchange.payload) << "exchange " << exchange.id;
            predicted += exchange.payload;
            predicted_all += sent_by_all(exchange, n, transport == "tcp");
          }
          EXPECT_EQ(predicted, 4 * (1200 + 24000 + 12 * 70 + 12) + 8 * 6);
          EXPECT_EQ(sync.last_step().payload_bytes, sent);
          const auto all = world.membership()->all_gather("bytes", std::to_string(sent));
          const Bytes sent_all = std::accumulate(
              all.begin(), all.end(), Bytes{0},
              [](Bytes sum, const std::string& one) { return sum + std::stoll(one); });
          EXPECT_EQ(sent_all, predicted_all) << n << " ranks, " << transport << ", " << algorithm;
        });
      }
}

TEST(Bytes, KF20_TheFormNoneSendsWhatThePlanSays) {
  const Watchdog watchdog;
  auto comms = make_local(2, 20, "tcp");
  ranks_as_threads(2, [&](Rank rank) {
    at::set_num_threads(1);
    Comm& world = *comms[static_cast<std::size_t>(rank)];
    std::vector<at::Tensor> p{parameter(at::ones({1000}))};
    GradientSync sync({{"w", p[0]}}, {}, world, {});
    const Bytes header = 8 * static_cast<Bytes>(step_header_words(1));
    for (int step = 0; step < 2; ++step) {
      one_step(sync, p);
      EXPECT_EQ(sync.last_step().payload_bytes, 4000 + header) << "4,000 bytes and the step header";
    }
    EXPECT_EQ(sync.plan().exchanges[0].payload, 4000);
    EXPECT_EQ(sync.plan().exchanges[1].payload, header);
  });
}

}  // namespace thinwire::test
