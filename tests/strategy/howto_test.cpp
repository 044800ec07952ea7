// SPDX-License-Identifier: Apache-2.0
// The strategy of docs/howto/add-a-strategy.md, compiled and run: what the page shows stands
// between the two marks.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/strategy/problem.h"
// [page begins]
#include "thinwire/strategy/strategy.h"

namespace thinwire {
namespace {

class Periodic : public Strategy {
 public:
  explicit Periodic(int period) : period_(period) {}
  void declare(PlanBuilder& plan, const Profile&) override {
    average_ = plan.add(Role::parameter, Pattern::all_reduce, Combine::mean,
                        {.phase = Phase::update_end, .every = period_, .offset = 1 % period_},
                        {.phase = Phase::update_end, .every = period_, .offset = 1 % period_});
  }
  void on(Phase phase, Step& step) override {
    if (step.starts(average_, phase)) step.start(average_);
    if (step.needs(average_, phase)) step.wait(average_);
  }

 private:
  int period_;
  int average_ = 0;
};

}  // namespace

void register_periodic(StrategyRegistry& registry) {
  registry.add(
      "periodic",
      [](const Spec& spec) {
        SpecReader reader(spec);
        const auto period = reader.integer("period", 4);
        reader.finish();
        if (period < 1)
          throw ConfigError("periodic: period must be at least 1, got " + std::to_string(period));
        return std::make_unique<Periodic>(static_cast<int>(period));
      },
      "the mean of the parameters of all ranks after every so many local steps {period=4}");
}

}  // namespace thinwire
// [page ends]

namespace thinwire::test {
namespace {

std::string text_of_file(const std::string& path) {
  std::ifstream file(std::string(TW_SOURCE_DIR "/") + path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

const bool kAdded = [] {
  StrategyRegistry mine("strategy");
  register_periodic(mine);
  const auto& entry = mine.find("periodic");
  add_strategy("periodic", entry.make, entry.help);
  return true;
}();

}  // namespace

TEST(HowTo, ThePageShowsThisFile) {
  const std::string source = text_of_file("tests/strategy/howto_test.cpp");
  const std::string begins = "// [page begins]\n", ends = "// [page ends]\n";
  const auto from = source.find(begins) + begins.size();
  const std::string shown = source.substr(from, source.find(ends) - from);
  EXPECT_NE(text_of_file("docs/howto/add-a-strategy.md").find("```cpp\n" + shown + "```\n"),
            std::string::npos)
      << "docs/howto/add-a-strategy.md must show:\n"
      << shown;
}

// The trajectory of KF-30: parameters differ between averagings and are the mean after each.
TEST(HowTo, AveragesAfterEveryPeriod) {
  const Watchdog watchdog;
  ASSERT_TRUE(kAdded);
  sync_ranks(2, [](RankWorld& world) {
    auto options = world.options("wfbp");
    options.strategy = "periodic{period=3}";
    Problem problem(world, options);
    std::vector<std::vector<double>> w(2, {0, 0});
    for (int step = 0; step < 7; ++step) {
      for (std::size_t rank = 0; rank < 2; ++rank)
        for (std::size_t i = 0; i < 2; ++i)
          w[rank][i] -= 0.5 * (w[rank][i] - Problem::goal(static_cast<Rank>(rank))[i]);
      for (std::size_t i = 0; step % 3 == 2 && i < 2; ++i)
        w[0][i] = w[1][i] = (w[0][i] + w[1][i]) / 2;
      EXPECT_EQ(problem.step(), w[static_cast<std::size_t>(world.rank)]) << "step " << step;
    }
    const Trace trace = problem.sync().trace();
    EXPECT_EQ(std::count_if(trace.begin(), trace.end(),
                            [](const Event& e) { return e.kind == OpKind::exchange; }),
              2 * 2)
        << "two averagings of two buckets";
  });
}

}  // namespace thinwire::test
