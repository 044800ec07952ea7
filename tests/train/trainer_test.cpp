// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/trainer.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/report/scratch.h"
#include "tests/support/expect_throw.h"
#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/train/checkpoint.h"
#include "thinwire/train/job.h"
#include "thinwire/train/torch_build.h"

namespace thinwire {
namespace {

/// w * x, with a scalar w that starts at 0.
class Scalar : public Network {
 public:
  Scalar() { w_ = register_parameter("w", at::zeros({})); }
  at::Tensor forward(const at::Tensor& x) override { return w_ * x; }
  double w() const { return w_.item<double>(); }

 private:
  at::Tensor w_;
};

TEST(KnownFailures, KF11_UnevenNumbersOfBatchesInsideTrainer) {
  const test::Watchdog watchdog;
  auto comms = make_local(2, 20);
  std::vector<std::vector<double>> seen(2);
  test::ranks_as_threads(2, [&](Rank rank) {
    const auto model = std::make_shared<Scalar>();
    Trainer trainer(model, parse_spec("sgd{momentum=0}"),
                    [](const at::Tensor& output, const at::Tensor&) { return output.mean(); },
                    comms[static_cast<std::size_t>(rank)].get(), {.count_correct = false});
    int left = rank == 0 ? 5 : 3;
    const auto steps = trainer.run(
        [&]() -> std::optional<StepInput> {
          if (trainer.steps_done() > 0) seen[static_cast<std::size_t>(rank)].push_back(model->w());
          if (left-- <= 0) return {};
          const at::Tensor x = at::full({4}, rank == 0 ? 1.0f : 3.0f);
          return StepInput{.inputs = x, .targets = at::zeros({4}, at::kLong), .count = 4};
        },
        1.0);
    EXPECT_EQ(steps, 5);
  });
  const std::vector<double> wanted{-2, -4, -6, -7, -8};
  EXPECT_EQ(seen[0], wanted);
  EXPECT_EQ(seen[1], wanted);
}

TEST(KnownFailures, KF11_UnevenBatchesInsideTrainer) {
  const test::Watchdog watchdog;
  auto comms = make_local(2, 20);
  test::ranks_as_threads(2, [&](Rank rank) {
    const auto model = std::make_shared<Scalar>();
    Trainer trainer(model, parse_spec("sgd{momentum=0}"),
                    [](const at::Tensor& output, const at::Tensor&) { return output.mean(); },
                    comms[static_cast<std::size_t>(rank)].get(), {.count_correct = false});
    const at::Tensor x = rank == 0 ? at::tensor({4.0f, 6.0f}) : at::tensor({3.0f});
    trainer.step({.inputs = x,
                  .targets = at::zeros({x.numel()}, at::kLong),
                  .count = x.numel(),
                  .total = 3,
                  .equal_shares = false},
                 1.0);
    EXPECT_NEAR(model->w(), -13.0 / 3, 1e-6);
  });
}

TEST(Models, ParameterCountsAndNames) {
  const InputForm cifar{.channels = 3, .height = 32, .width = 32};
  const InputForm text{.text = true, .context = 128, .classes = 65};
  const auto count = [](const char* spec, const InputForm& form) {
    return parameter_count(*make_model(parse_spec(spec), form, 1));
  };
  EXPECT_EQ(count("resnet{depth=18}", cifar), 11173962);
  EXPECT_EQ(count("resnet{depth=20}", cifar), 269722);  // as the public CIFAR ResNet-20
  EXPECT_EQ(count("resnet{depth=56}", cifar), 853018);
  EXPECT_EQ(count("mlp{sizes=784-2048-2048-2048-10}", {}), 10020874);
  EXPECT_GT(count("char_transformer", text), 5'000'000);
  EXPECT_LT(count("char_transformer", text), 10'000'000);
  EXPECT_GT(count("vgg{depth=11}", {}), 9'000'000);
  const auto names = make_model(parse_spec("resnet{depth=18}"), cifar, 1)->named_parameters();
  for (const char* name :
       {"conv1.weight", "layer1.0.bn2.bias", "layer2.0.downsample.0.weight", "fc.bias"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Models, ForwardAndSeeds) {
  const InputForm small{.channels = 1, .height = 28, .width = 28};
  const at::Tensor x = at::randn({2, 1, 28, 28});
  for (const char* spec : {"mlp", "cnn", "resnet{depth=8}", "vgg{depth=11}"}) {
    const auto model = make_model(parse_spec(spec), small, 7),
               twin = make_model(parse_spec(spec), small, 7),
               other = make_model(parse_spec(spec), small, 8);
    EXPECT_EQ(model->forward(x).sizes(), (at::IntArrayRef{2, 10})) << spec;
    EXPECT_TRUE(model->parameters()[0].equal(twin->parameters()[0]));
    EXPECT_FALSE(model->parameters()[0].equal(other->parameters()[0]));
  }
  const auto text = make_model(parse_spec("char_transformer{layers=1,width=16,heads=2}"),
                               {.text = true, .context = 8, .classes = 5}, 1);
  EXPECT_EQ(text->forward(at::zeros({3, 8}, at::kLong)).sizes(), (at::IntArrayRef{3, 8, 5}));
  TW_EXPECT_THROW(make_model(parse_spec("resnet{depth=19}"), small, 1), ConfigError, "19");
  TW_EXPECT_THROW(make_model(parse_spec("cnm"), small, 1), ConfigError, "cnn");
  TW_EXPECT_THROW(make_model(parse_spec("mlp{sizes=10-10}"), small, 1), ConfigError, "784");
  TW_EXPECT_THROW(make_model(parse_spec("char_transformer"), small, 1), ConfigError, "text");
}

TEST(NamedOptimizer, SgdFacts) {
  at::Tensor w = at::ones({1}).requires_grad_();
  NamedOptimizer optimizer(parse_spec("sgd{momentum=0.5,weight_decay=0.1}"), {{"w", w}});
  optimizer.set_learning_rate(0.1);
  w.mutable_grad() = at::full({1}, 2.0);
  optimizer.step();  // v = 2 + 0.1 = 2.1
  EXPECT_NEAR(w.item<double>(), 1 - 0.21, 1e-6);
  const double before = w.item<double>();
  optimizer.step();  // v = 0.5 * 2.1 + 2 + 0.1 * w
  EXPECT_NEAR(w.item<double>(), before - 0.1 * (1.05 + 2 + 0.1 * before), 1e-6);
  TW_EXPECT_THROW(NamedOptimizer(parse_spec("sgd{momentum=2}"), {{"w", w}}), ConfigError,
                  "momentum");
  TW_EXPECT_THROW(NamedOptimizer(parse_spec("sdg"), {{"w", w}}), ConfigError, "sgd");
}

TEST(NamedOptimizer, StateGoesOutAndIn) {
  for (const char* spec : {"sgd{momentum=0.9,nesterov=true}", "adam", "adamw{weight_decay=0.1}"}) {
    at::Tensor a = at::ones({3}).requires_grad_(), b = at::ones({3}).requires_grad_();
    NamedOptimizer first(parse_spec(spec), {{"w", a}}), second(parse_spec(spec), {{"w", b}});
    first.set_learning_rate(0.1);
    second.set_learning_rate(0.1);
    const auto step = [](NamedOptimizer& optimizer, at::Tensor& w, double g) {
      w.mutable_grad() = at::full({3}, g);
      optimizer.step();
    };
    step(first, a, 1.5);
    step(first, a, -0.3);
    second.load_state(first.state());
    b.detach().copy_(a.detach());
    step(first, a, 0.7);
    step(second, b, 0.7);
    EXPECT_TRUE(a.equal(b)) << spec;
    NamedTensors wrong = first.state();
    wrong[0].second = at::ones({4});
    TW_EXPECT_THROW(second.load_state(wrong), DataError, "w/");
    wrong = {{"v/momentum", at::ones({3})}};
    TW_EXPECT_THROW(second.load_state(wrong), DataError, "1 tensors");
  }
}

TEST(ClipGradients, ScalesTheJointNorm) {
  at::Tensor a = at::zeros({1}).requires_grad_(), b = at::zeros({1}).requires_grad_();
  a.mutable_grad() = at::full({1}, 3.0);
  b.mutable_grad() = at::full({1}, 4.0);
  EXPECT_NEAR(clip_gradients({{"a", a}, {"b", b}}, 1), 5, 1e-6);
  EXPECT_NEAR(a.grad().item<double>(), 0.6, 1e-5);
  EXPECT_NEAR(clip_gradients({{"a", a}, {"b", b}}, 10), 1, 1e-5);
  EXPECT_NEAR(b.grad().item<double>(), 0.8, 1e-5);
}

TEST(Checkpoint, RoundTripKeepsAndLinks) {
  const test::Scratch scratch;
  const NamedTensors model{{"a.weight", at::randn({2, 3})}, {"n", at::full({}, 5, at::kLong)}};
  for (std::int64_t step : {1, 2, 3, 4})
    save_checkpoint(scratch.path(), {.step = step, .config = {{"model", "cnn"}}}, model, {}, {}, 2,
                    step == 1);
  namespace fs = std::filesystem;
  EXPECT_EQ(fs::read_symlink(scratch.file("last")), "step-00000004");
  EXPECT_EQ(fs::read_symlink(scratch.file("best")), "step-00000001");
  EXPECT_TRUE(fs::exists(scratch.file("step-00000001")));
  EXPECT_FALSE(fs::exists(scratch.file("step-00000002")));
  EXPECT_TRUE(fs::exists(scratch.file("step-00000003")));
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  const std::string last = find_checkpoint(scratch.path(), "last");
  EXPECT_EQ(read_checkpoint_state(last).step, 4);
  const NamedTensors into{{"a.weight", at::zeros({2, 3})}, {"n", at::full({}, 0, at::kLong)}};
  load_tensors(into, read_tensors(last + "/model.safetensors"), "file");
  EXPECT_TRUE(into[0].second.equal(model[0].second));
  EXPECT_EQ(into[1].second.item<std::int64_t>(), 5);
  const NamedTensors other{{"a.weight", at::zeros({3, 2})}, {"n", at::full({}, 0, at::kLong)}};
  TW_EXPECT_THROW(load_tensors(other, model, "file"), DataError, "2x3");
  const NamedTensors fewer{{"n", at::full({}, 0, at::kLong)}};
  TW_EXPECT_THROW(load_tensors(fewer, model, "file"), DataError, "'a.weight'");
  TW_EXPECT_THROW(find_checkpoint(scratch.file("none"), "best"), ConfigError, "none");
  write_text(last + "/state.json", "{\"thinwire_checkpoint\": 2}");
  TW_EXPECT_THROW(read_checkpoint_state(last), DataError, "state.json");
}

TrainConfig small_run(const std::string& runs) {
  TrainConfig config;
  for (const char* word :
       {"data=synthetic{shape=3x8x8,classes=5,train=70,test=33}", "model=resnet{depth=8}",
        "batch_size=16", "epochs=2", "eval_batch_size=10", "loader_threads=1", "augment=crop_flip",
        "optimizer=sgd{momentum=0.9,nesterov=true}", "report=false", "log_every=2"})
    set_option(config, word);
  config.runs = runs;
  return config;
}

NamedTensors final_model(const TrainOutcome& outcome) {
  return read_tensors(find_checkpoint(outcome.folder, "last") + "/model.safetensors");
}

void expect_equal(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  }
}

TEST(Resume, InterruptedRunEqualsTheWholeOneBitForBit) {
  const test::Watchdog watchdog("", 120);
  const test::Scratch scratch;
  for (const char* optimizer : {"sgd{momentum=0.9,nesterov=true}", "adamw"}) {
    TrainConfig config = small_run(scratch.path());
    config.optimizer = optimizer;
    const TrainOutcome whole = run_training({.config = config}, nullptr);
    for (const int stop_after : {3, 5, 7}) {  // inside, at the end of, and after the first epoch
      int asked = 0;
      const TrainOutcome cut = run_training(
          {.config = config, .stop_signal = [&] { return ++asked == stop_after ? 2 : 0; }},
          nullptr);
      EXPECT_EQ(cut.stop_signal, 2);
      EXPECT_EQ(read_checkpoint_state(cut.checkpoint).step, stop_after);
      const TrainOutcome rest = run_training({.config = config, .resume = cut.folder}, nullptr);
      EXPECT_NE(rest.folder, cut.folder);
      expect_equal(final_model(rest), final_model(whole));
      EXPECT_EQ(rest.summary.samples, whole.summary.samples);
      EXPECT_EQ(rest.summary.test_accuracy, whole.summary.test_accuracy);
      EXPECT_EQ(rest.summary.test_loss, whole.summary.test_loss);
    }
  }
}

TEST(Ranks, TwoRanksTrainLikeOneAndCountEveryTestSampleOnce) {
  const test::Watchdog watchdog("", 120);
  const test::Scratch scratch;
  TrainConfig config = small_run(scratch.path());
  config.model = "cnn{width=4,hidden=16}";  // without batch norm one rank is the exact reference
  config.learning_rate = 0.02;
  const TrainOutcome one = run_training({.config = config}, nullptr);
  for (const int ranks : {2, 3}) {
    auto comms = make_local(ranks, 20);
    std::vector<TrainOutcome> outcomes(static_cast<std::size_t>(ranks));
    test::ranks_as_threads(ranks, [&](Rank rank) {
      set_compute_threads(1);
      outcomes[static_cast<std::size_t>(rank)] =
          run_training({.config = config}, comms[static_cast<std::size_t>(rank)].get());
    });
    const NamedTensors a = final_model(one), b = final_model(outcomes[0]);
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(a[i].second.allclose(b[i].second, 1e-3, 1e-4)) << a[i].first << " on " << ranks;
    EXPECT_EQ(outcomes[0].summary.samples, 140);
    ASSERT_TRUE(outcomes[0].summary.test_accuracy.has_value());
    // 33 test samples, none twice: the accuracy is a multiple of 1/33.
    const double hits = *outcomes[0].summary.test_accuracy * 33;
    EXPECT_NEAR(hits, std::round(hits), 1e-9);
    EXPECT_EQ(outcomes[1].summary.test_accuracy, outcomes[0].summary.test_accuracy);
  }
}

TEST(Ranks, TheOrderOfMessagesChangesNoBit) {
  const test::Watchdog watchdog("", 120);
  const test::Scratch scratch;
  TrainConfig config = small_run(scratch.path());
  config.grouping = "wfbp";
  std::vector<NamedTensors> models;
  for (const char* order : {"plan", "agreed"}) {
    config.order = order;
    auto comms = make_local(2, 20);
    std::vector<TrainOutcome> outcomes(2);
    test::ranks_as_threads(2, [&](Rank rank) {
      set_compute_threads(1);
      outcomes[static_cast<std::size_t>(rank)] =
          run_training({.config = config}, comms[static_cast<std::size_t>(rank)].get());
    });
    models.push_back(final_model(outcomes[0]));
  }
  for (std::size_t i = 0; i < models[0].size(); ++i)
    EXPECT_TRUE(at::equal(models[0][i].second, models[1][i].second)) << models[0][i].first;
}

TEST(Job, KeepsItsFolderWhole) {
  const test::Scratch scratch;
  TrainConfig config = small_run(scratch.path());
  config.name = "here";
  config.report = true;
  const TrainOutcome first =
      run_training({.config = config, .command = {"thinwire", "train"}}, nullptr);
  const TrainOutcome second = run_training({.config = config}, nullptr);
  EXPECT_NE(first.folder, second.folder);
  for (const char* name :
       {"config.toml", "command.txt", "versions.json", "run.json", "metrics.jsonl", "log.rank0.txt",
        "report.html", "checkpoints/best/model.safetensors"})
    EXPECT_TRUE(std::filesystem::exists(first.folder + "/" + name)) << name;
  TrainConfig again;
  read_toml(again, first.folder + "/config.toml");
  EXPECT_EQ(again, config);
  EXPECT_EQ(config_of_checkpoint(first.folder), config);
  const RunData run = read_run(first.folder);
  EXPECT_EQ(run.info.status, "finished");
  EXPECT_EQ(run.info.versions.value("torch", "").substr(0, 2), "2.");
  EXPECT_EQ(run.metrics.back().step, 10);
  const EvalOutcome checked = run_evaluation(first.folder, config, nullptr);
  EXPECT_EQ(checked.samples, 33);
}

}  // namespace
}  // namespace thinwire
