// SPDX-License-Identifier: Apache-2.0
// What every memory keeps: through a checkpoint, another grouping, another codec and another ratio,
// and when a step does not count.
#include "tests/exchange/one_exchange.h"

namespace thinwire::test {
namespace {

const std::vector<TensorDesc> kTwo{{"a", DType::f32, {8, 5}}, {"b", DType::f32, {9}}};

/// Memories, each with a codec that it is made for.
const std::vector<std::string> kForms{"ef|topk{ratio=0.1}",
                                      "ef{schedule=ramp}|sign",
                                      "momentum|topk{ratio=0.1}",
                                      "momentum{nesterov=yes}|ef|topk{ratio=0.1}",
                                      "dgc_momentum|topk{ratio=0.1}",
                                      "dgc_momentum{clip=1,nesterov=yes}|topk{ratio=0.1}",
                                      "global_momentum|sign",
                                      "global_momentum|topk{ratio=0.1}",
                                      "difference|topk{ratio=0.1}",
                                      "difference{eta=0.1}|sign",
                                      "demo|topk{ratio=0.1}",
                                      "momentum|ef|powersgd{rank=1}",
                                      "momentum|powersgd{rank=1}",
                                      "difference|none",
                                      "dgc_momentum|none",
                                      "difference|powersgd{rank=1}"};

at::Tensor produced(Rank rank, int step) {
  return at::sin(at::arange(49, at::kFloat) * (0.7 + rank) + 2 * step) + 0.1 * rank;
}

/// One rank's end of an exchange a tensor, or of one of both.
class Exchanges {
 public:
  Exchanges(Comm& comm, const std::string& form, bool apart)
      : recorder_(comm.rank()), exchanger_(comm, plan(comm.size(), form, apart), recorder_) {}
  at::Tensor step(Rank rank, int step) {
    at::Tensor out = produced(rank, step);
    const auto buckets = static_cast<int>(exchanger_.plan().grouping.size());
    std::vector<at::Tensor> parts{out};
    if (buckets == 2) parts = {out.narrow(0, 0, 40), out.narrow(0, 40, 9)};
    for (int i = 0; i < buckets; ++i)
      exchanger_.start(i, parts[static_cast<std::size_t>(i)], {.step = step, .seed = 5});
    for (int i = 0; i < buckets; ++i) exchanger_.wait(i);
    return out;
  }
  Exchanger& operator*() { return exchanger_; }

 private:
  static Plan plan(int ranks, const std::string& form, bool apart) {
    Grouping one{{{{0, 0, 40}, {1, 0, 9}}}}, two{{{{0, 0, 40}}}, {{{1, 0, 9}}}};
    PlanBuilder builder({.tensors = kTwo,
                         .grouping = apart ? two : one,
                         .ranks = ranks,
                         .form = parse_chain(form)});
    declare_gradient_mean(builder);
    return builder.plan();
  }
  Recorder recorder_;
  Exchanger exchanger_;
};

}  // namespace

TEST(Memories, GoOnAfterACheckpoint) {
  const Watchdog watchdog;
  for (const std::string& form : kForms)
    sync_ranks(2, [&](RankWorld& world) {
      Exchanges whole(world.comm, form, false), first(world.comm, form, false),
          second(world.comm, form, false);
      at::Tensor in_one_go, in_two;
      for (int t = 0; t < 12; ++t) in_one_go = whole.step(world.rank, t);
      for (int t = 0; t < 6; ++t) first.step(world.rank, t);
      (*second).load_state((*first).state());
      for (int t = 6; t < 12; ++t) in_two = second.step(world.rank, t);
      EXPECT_TRUE(at::equal(in_one_go, in_two)) << form;
      const FormState a = (*whole).state(), b = (*second).state();
      ASSERT_EQ(a.size(), b.size()) << form;
      for (const auto& [key, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(key))) << key;
    });
}

// With a codec that does not know buckets, another grouping changes nothing at all.
TEST(Memories, SurviveAnotherGrouping) {
  const Watchdog watchdog;
  for (const std::string memory :
       {"ef", "momentum", "dgc_momentum", "dgc_momentum{clip=1}", "global_momentum", "difference",
        "difference{eta=0.1}", "demo", "momentum|ef"})
    for (const bool apart : {false, true})
      sync_ranks(2, [&](RankWorld& world) {
        const std::string form = memory + "|sign";
        Exchanges whole(world.comm, form, apart), first(world.comm, form, apart),
            second(world.comm, form, !apart);
        at::Tensor in_one_go, in_two;
        for (int t = 0; t < 12; ++t) in_one_go = whole.step(world.rank, t);
        for (int t = 0; t < 6; ++t) first.step(world.rank, t);
        (*second).load_state((*first).state());
        for (int t = 6; t < 12; ++t) in_two = second.step(world.rank, t);
        EXPECT_TRUE(at::equal(in_one_go, in_two)) << form;
        for (const auto& [key, tensor] : (*whole).state())
          EXPECT_TRUE(at::equal(tensor, (*second).state().at(key))) << key;
      });
}

// A memory goes on with what it kept where the codec or its ratio changes: the sum of what is sent
// and kept stays that of what was produced.
TEST(Memories, KF18_SurviveAnotherCodecAndRatio) {
  const Watchdog watchdog;
  for (const std::string memory : {"ef", "global_momentum{beta=0}", "demo{decay=1,sign=no}",
                                   "dgc_momentum{beta=0}", "difference"})
    sync_ranks(2, [&](RankWorld& world) {
      const std::vector<std::string> codecs{"topk{ratio=0.1}", "topk{ratio=0.3}", "sign", "none"};
      std::unique_ptr<Exchanges> now;
      at::Tensor made = at::zeros({49}), got = at::zeros({49}), out;
      for (int t = 0; t < 8; ++t) {
        if (t % 2 == 0) {
          const FormState kept = now ? (**now).state() : FormState{};
          now = std::make_unique<Exchanges>(
              world.comm, memory + "|" + codecs[static_cast<std::size_t>(t / 2)], false);
          (**now).load_state(kept);
        }
        made += (produced(0, t) + produced(1, t)) / 2;
        out = now->step(world.rank, t);
        got += out;
      }
      if (memory == "difference") {  // an estimate, and in the end all of it
        EXPECT_LT((out - (produced(0, 7) + produced(1, 7)) / 2).abs().max().item<float>(), 1e-5);
      } else {
        EXPECT_LT((got - made).abs().max().item<float>(), 1e-5) << memory;
      }
    });
}

// The step after one that did not count is as if that had never been.
TEST(Memories, TakeAStepBack) {
  const Watchdog watchdog;
  for (const std::string& form : kForms)
    sync_ranks(2, [&](RankWorld& world) {
      const auto run = [&](int bad) {
        at::Tensor w = parameter(at::zeros({8, 5}));
        SyncOptions options = world.options();
        options.form = form;
        GradientSync sync({{"w", w}}, {}, world.comm, options);
        for (int t = 0; t < 6; ++t) {
          at::Tensor g = produced(world.rank, t).narrow(0, 0, 40).view({8, 5}).clone();
          if (t == bad) {
            // The other rank produces what it would, and takes it back.
            at::Tensor broken = g * 7;
            if (world.rank == 1) broken[2][2] = std::numeric_limits<float>::quiet_NaN();
            backward(sync, [&] { return (w * broken).sum(); });
            EXPECT_FALSE(w.grad().defined()) << form;
          }
          backward(sync, [&] { return (w * g).sum(); });
          sgd({w}, 0.1);
        }
        return w.detach().clone();
      };
      // Steps are counted on, which a schedule or random numbers would see.
      EXPECT_LT((run(3) - run(-1)).abs().max().item<float>(), 1e-4) << form;
    });
}

TEST(FormState, KeepsWhatAllRanksShareApart) {
  FormState state{{"g/m/w(0:2)", at::tensor({1.0f, 2.0f})}, {"g/t/w[]", at::ones({1})}};
  EXPECT_FALSE(is_own("g/m/w(0:2)"));
  EXPECT_TRUE(is_own("g/t/w[]"));
  EXPECT_TRUE(is_own("g/t/w[0:2]"));
  const std::vector<FormState> two{state, state};
  const FormState one = redistribute(two, 0, 1);
  EXPECT_TRUE(at::equal(one.at("g/m/w(0:2)"), at::tensor({1.0f, 2.0f}))) << "the same everywhere";
  EXPECT_TRUE(at::equal(one.at("g/t/w[]"), at::ones({1}))) << "not a sum";
}

}  // namespace thinwire::test
