// SPDX-License-Identifier: Apache-2.0
// Values of public programs: each file says of which, and how. Read from ../shared/golden beside
// the project, or from THINWIRE_GOLDEN.
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tests/exchange/one_exchange.h"
#include "thinwire/core/json.h"

namespace thinwire::test {
namespace {

std::string golden(const std::string& name) {
  const char* folder = std::getenv("THINWIRE_GOLDEN");
  for (const std::string base :
       {folder ? folder : "../shared/golden", TW_SOURCE "/../shared/golden"})
    if (std::filesystem::exists(base + "/" + name)) return base + "/" + name;
  return {};
}

/// The formula of the files.
at::Tensor input(std::int64_t count, Rank rank, std::int64_t step) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<float>(
        std::sin(0.37 * static_cast<double>(i) + 1.3 * rank + 0.7 * static_cast<double>(step)) *
        (1 + 0.1 * static_cast<double>(i % 5))));
  return at::tensor(out);
}

at::Tensor floats(const Json& list) { return at::tensor(list.get<std::vector<float>>()); }

/// Rows of numbers; here columns stand one after the other.
at::Tensor columns(const Json& list) {
  std::vector<at::Tensor> out;
  for (const Json& row : list) out.push_back(floats(row));
  return at::stack(out).t().contiguous();
}

void powersgd_agrees(const std::string& name, int rounds) {
  const std::string path = golden(name);
  if (path.empty()) GTEST_SKIP() << name << " is not beside this checkout";
  const Json json = read_json(path);
  std::vector<TensorDesc> tensors;
  std::int64_t total = 0;
  for (const Json& shape : json.at("shapes")) {
    tensors.push_back(
        {"t" + std::to_string(tensors.size()), DType::f32, shape.get<std::vector<std::int64_t>>()});
    total += elements(tensors.back());
  }
  sync_ranks(2, [&](RankWorld& world) {
    OneExchange one(world.comm, tensors,
                    "ef|powersgd{rank=2,rounds=" + std::to_string(rounds) + "}");
    FormState start;  // tensors of the same shape stand together there, in the same order
    int next = 0;
    for (const Json& group : json.at("initial_factors").at("p"))
      for (const Json& factor : group)
        start["gradient/powersgd/p/t" + std::to_string(next++)] = columns(factor);
    one.exchanger().load_state(start);
    for (const Json& step : json.at("steps")) {
      std::vector<at::Tensor> parts;
      for (const TensorDesc& tensor : tensors)
        parts.push_back(input(elements(tensor), world.rank, step.at("step")));
      const at::Tensor out = one.step(at::cat(parts));
      std::int64_t begin = 0;
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        const std::int64_t count = elements(tensors[t]);
        const at::Tensor result = floats(step.at("result").at(t));
        const double scale = result.norm().item<double>();
        EXPECT_LT((out.narrow(0, begin, count) - result).norm().item<double>(), 1e-5 * scale)
            << tensors[t].name << ", step " << step.at("step");
        const at::Tensor left = floats(step.at("residual_per_rank").at(t).at(world.rank));
        EXPECT_LT((one.residual(tensors[t].name) - left).norm().item<double>(), 1e-5 * scale)
            << tensors[t].name << ", step " << step.at("step");
        begin += count;
      }
    }
  });
}

}  // namespace

TEST(Golden, TopKWithItsResidual) {
  const Watchdog watchdog;
  const std::string path = golden("topk_residual.json");
  if (path.empty()) GTEST_SKIP() << "topk_residual.json is not beside this checkout";
  const Json json = read_json(path);
  sync_ranks(2, [&](RankWorld& world) {
    OneExchange one(world.comm, {{"w", DType::f32, {4, 6}}}, "ef|topk{ratio=0.25}");
    for (const Json& step : json.at("steps")) {
      const at::Tensor out = one.step(input(24, world.rank, step.at("step")));
      EXPECT_TRUE(at::equal(out, floats(step.at("result")))) << "step " << step.at("step");
      EXPECT_TRUE(at::equal(one.residual("w"), floats(step.at("residual_per_rank").at(world.rank))))
          << "step " << step.at("step");
    }
  });
}

TEST(Golden, SignByMajority) {
  const Watchdog watchdog;
  const std::string path = golden("sign_majority.json");
  if (path.empty()) GTEST_SKIP() << "sign_majority.json is not beside this checkout";
  const Json json = read_json(path);
  for (const std::string algorithm : {"gather", "shard"})
    sync_ranks(2, [&](RankWorld& world) {
      OneExchange one(world.comm, {{"w", DType::f32, {4, 6}}}, "sign{scale=vote}", algorithm);
      for (const Json& step : json.at("steps"))
        EXPECT_TRUE(
            at::equal(one.step(input(24, world.rank, step.at("step"))), floats(step.at("result"))))
            << algorithm << ", step " << step.at("step");
    });
}

TEST(Golden, PowerSgdOneRoundAStep) {
  const Watchdog watchdog;
  powersgd_agrees("powersgd_rank2_iters1.json", 1);
}

TEST(Golden, PowerSgdTwoRoundsAStep) {
  const Watchdog watchdog;
  powersgd_agrees("powersgd_rank2_iters2.json", 2);
}

}  // namespace thinwire::test
