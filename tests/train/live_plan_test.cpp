// SPDX-License-Identifier: Apache-2.0
// plan=auto in the middle of a training: chosen from its own steps, and again when they change.
#include "thinwire/train/live_plan.h"

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/train/sync_ranks.h"
#include "thinwire/plan/plan_builder.h"
#include "thinwire/train/profiler.h"

namespace thinwire::test {
namespace {

constexpr std::int64_t kSide = 100;  // 40 kB a tensor: 8 ms at 40 Mbit/s
const char* const kSlow = "throttle{rate=40mbit}|";

/// Two matrices, a LivePlan, and what it says.
struct Live {
  std::vector<std::string> said;
  at::Tensor a = parameter(at::ones({kSide, kSide}) * 0.01),
             b = parameter(at::ones({kSide, kSide}) * 0.01);
  GradientSync sync;
  std::unique_ptr<LivePlan> plan;
  std::chrono::milliseconds sleep{0};

  Live(RankWorld& world, std::vector<std::string> forms, std::optional<AutoPlan> planned = {})
      : sync({{"a", a}, {"b", b}}, {}, world.comm, options(world, planned)) {
    LivePlanOptions live{.forms = std::move(forms),
                         .say = [this](const std::string& text) { said.push_back(text); }};
    if (planned)
      plan = std::make_unique<LivePlan>(sync, world.comm, std::move(live), *planned);
    else
      plan = std::make_unique<LivePlan>(sync, world.comm, std::move(live));
  }
  static SyncOptions options(RankWorld& world, const std::optional<AutoPlan>& planned) {
    SyncOptions out = world.options(LivePlan::kFirstGrouping);
    if (planned) out.plan = to_json(planned->choice.plan);
    return out;
  }
  bool step() {
    const bool changed = plan->between_steps();
    backward(sync, [&] {
      std::this_thread::sleep_for(sleep);
      return at::mm(a, b).sum();
    });
    sgd({a, b}, 1e-4);
    return changed;
  }
  /// Steps until the plan changes; -1: it has not, in as many.
  int steps_to_change(int most) {
    for (int i = 0; i < most; ++i)
      if (step()) return i;
    return -1;
  }
  std::string form() const {
    const auto& exchanges = sync.plan().exchanges;
    const auto gradient = std::find_if(exchanges.begin(), exchanges.end(), [](const Exchange& one) {
      return one.what == Role::gradient;
    });
    return to_string(std::span<const Spec>(gradient->form));
  }
  std::string all_said() const {
    std::string out;
    for (const auto& text : said) out += text + "\n";
    return out;
  }
};

/// What somebody has measured, on links of that rate.
AutoPlan measured_at(double bytes_per_s, const std::vector<std::string>& forms,
                     Seconds forward_s = 2e-4) {
  AutoPlan out;
  const std::vector<std::int64_t> shape{kSide, kSide};
  out.measured.profile = {.params = {{"a", DType::f32, shape}, {"b", DType::f32, shape}},
                          .forward_s = {forward_s / 2, forward_s / 2},
                          .backward_s = {1e-4, 1e-4},
                          .update_s = 1e-4,
                          .codecs = {{"ef|topk{ratio=0.01}", {1e9, 1e9}}}};
  const Link link{.latency_s = 1e-5, .bytes_per_s = bytes_per_s};
  out.measured.cluster = {.ranks_per_level = {2},
                          .links = {{"all_reduce", {link}}, {"gather", {link}}},
                          .speed = {1, 1}};
  out.choice = search(out.measured.profile, out.measured.cluster, {.forms = forms});
  return out;
}

TEST(LivePlan, ChoosesFromTheFirstStepsOfTheTrainingItself) {
  const Watchdog watchdog;
  sync_ranks(
      2,
      [](RankWorld& world) {
        Live live(world, {"none", "ef|topk{ratio=0.01}"});
        EXPECT_EQ(live.steps_to_change(20), 8) << live.all_said();
        EXPECT_EQ(live.form(), "ef|topk{ratio=0.01}");
        ASSERT_TRUE(live.plan->planned());
        const AutoPlan& planned = *live.plan->planned();
        EXPECT_NEAR(planned.measured.cluster.links.at("all_reduce")[0].bytes_per_s / 5e6, 1, 0.2);
        EXPECT_EQ(planned.measured.profile.params[1].name, "b");
        EXPECT_GT(planned.choice.chosen.step_s, 0) << "on every rank";
        EXPECT_EQ(live.said.empty(), world.rank != 0);
      },
      20, kSlow);
}

TEST(LivePlan, ASlowerLinkBringsAnotherPlan) {
  const Watchdog watchdog;
  sync_ranks(
      2,
      [](RankWorld& world) {
        const std::vector<std::string> forms{"none", "ef|topk{ratio=0.01}"};
        Live live(world, forms, measured_at(1e10, forms));
        EXPECT_EQ(live.form(), "none");
        EXPECT_GT(live.steps_to_change(300), 0) << live.all_said();
        EXPECT_EQ(live.form(), "ef|topk{ratio=0.01}");
        if (world.rank != 0) return;
        for (const char* words : {"was expected", "an all_reduce takes", "before", "plan=auto:"})
          EXPECT_NE(live.all_said().find(words), std::string::npos) << live.all_said();
      },
      20, kSlow);
}

TEST(LivePlan, ARankThatBecomesSlowIsNamedAndThePlanStays) {
  const Watchdog watchdog;
  sync_ranks(
      2,
      [](RankWorld& world) {
        const std::vector<std::string> forms{"none"};
        Live live(world, forms, measured_at(5e6, forms, 5e-3));
        live.sleep = std::chrono::milliseconds(5);
        EXPECT_EQ(live.steps_to_change(110), -1) << live.all_said();  // two windows as predicted
        if (world.rank == 1) live.sleep = std::chrono::milliseconds(20);
        EXPECT_EQ(live.steps_to_change(150), -1) << live.all_said();
        if (world.rank != 0) return;
        const std::string said = live.all_said();
        EXPECT_NE(said.find("rank 1 computes"), std::string::npos) << said;
        EXPECT_EQ(said.find("rank 0 computes"), std::string::npos) << said;
        EXPECT_NE(said.find("the plan stays"), std::string::npos) << said;
      },
      20, kSlow);
}

TEST(LivePlan, AModelThatChangesIsMeasuredAnew) {
  const Watchdog watchdog;
  sync_ranks(
      2,
      [](RankWorld& world) {
        Live live(world, {"none", "ef|topk{ratio=0.01}"});
        EXPECT_EQ(live.steps_to_change(20), 8);
        live.a.requires_grad_(false);
        live.step();
        EXPECT_EQ(live.sync.plan().tensors.size(), 1u);
        EXPECT_EQ(live.form(), "none") << "until there is a choice";
        EXPECT_EQ(live.steps_to_change(20), 7) << "and the step before";
        EXPECT_EQ(live.form(), "ef|topk{ratio=0.01}");
      },
      20, kSlow);
}

TEST(LivePlan, RefusesFormsThatAreNoneOrDiffer) {
  const Watchdog watchdog;
  for (const auto& text : sync_errors(2, [](RankWorld& world) { Live(world, {"none", "topq"}); }))
    EXPECT_NE(text.find("ConfigError"), std::string::npos) << text;
  for (const auto& text : sync_errors(2, [](RankWorld& world) {
         Live(world, world.rank == 0 ? std::vector<std::string>{"none"}
                                     : std::vector<std::string>{"none", "sign"});
       }))
    EXPECT_NE(text.find("forms to choose from differs"), std::string::npos) << text;
}

TEST(SetPlan, KeepsWhatMemoriesHoldAndRefusesWhatDoesNotFit) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    at::Tensor w = parameter(at::zeros({4}));
    auto options = world.options();
    options.form = "ef|topk{count=1}";
    GradientSync sync({{"w", w}}, {}, world.comm, options);
    const auto step = [&] {
      backward(sync, [&] { return (w * at::tensor({4.0F, 3.0F, 2.0F, 1.0F})).sum(); });
      sgd({w}, 1);
    };
    const auto plan_of = [](const std::string& name, const std::string& form) {
      PlanBuilder builder({.tensors = {{name, DType::f32, {4}}},
                           .grouping = {{{{0, 0, 4}}}},
                           .ranks = 2,
                           .form = parse_chain(form)});
      declare_gradient_mean(builder);
      return to_json(builder.plan());
    };
    step();
    // 3, 2, 1 have stayed behind.
    TW_EXPECT_THROW(sync.set_plan(plan_of("v", "none")), ConfigError, "tensor 0 is 'v'");
    TW_EXPECT_THROW(sync.set_plan("{"), DataError, "not valid JSON");
    TW_EXPECT_THROW(sync.set_plan(plan_of("w", world.rank == 0 ? "none" : "ef|none")), ConfigError,
                    "differs between ranks");
    sync.set_plan(plan_of("w", "ef|none"));
    TW_EXPECT_THROW(sync.set_form("none"), ConfigError, "the plan that was given");
    step();
    EXPECT_TRUE(at::equal(w, at::tensor({-8.0F, -6.0F, -4.0F, -2.0F}))) << w;
    EXPECT_TRUE(world.notices.empty()) << world.notices[0];
  });
}

}  // namespace
}  // namespace thinwire::test
