// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/watchdog.h"
#include "thinwire/train/schedule.h"

namespace thinwire {
namespace {

Dataset small_set(std::int64_t train = 53) {
  std::vector<std::string> notices;
  return load_synthetic(
      parse_spec("synthetic{shape=2x6x5,classes=4,train=" + std::to_string(train) + ",test=7}"),
      notices);
}

TEST(Loader, SameBatchesForAnyNumberOfThreads) {
  const test::Watchdog watchdog;
  const Dataset data = small_set();
  const LoaderOptions base{.batch_size = 8, .seed = 3, .crop_flip = true, .threads = 0};
  Loader reference(data, data.train, base);
  for (const int threads : {1, 2, 3, 7}) {
    LoaderOptions options = base;
    options.threads = threads;
    Loader loader(data, data.train, options);
    for (std::int64_t step = 0; step < 30; ++step) {
      const Batch &a = reference.at(step), &b = loader.at(step);
      ASSERT_EQ(a.samples, b.samples) << threads << " threads, step " << step;
      ASSERT_EQ(a.images, b.images);
      ASSERT_EQ(a.targets, b.targets);
    }
  }
}

TEST(Loader, JoinedBatchIsTheSameForAnyNumberOfRanks) {
  const Dataset data = small_set();
  Loader whole(data, data.train, {.batch_size = 10, .seed = 1, .crop_flip = true, .threads = 0});
  for (const int ranks : {2, 3, 4, 11}) {
    std::vector<std::unique_ptr<Loader>> parts;
    for (Rank rank = 0; rank < ranks; ++rank)
      parts.push_back(std::make_unique<Loader>(data, data.train,
                                               LoaderOptions{.batch_size = 10,
                                                             .rank = rank,
                                                             .ranks = ranks,
                                                             .seed = 1,
                                                             .crop_flip = true,
                                                             .threads = 0}));
    for (std::int64_t step = 0; step < 12; ++step) {
      const Batch& all = whole.at(step);
      std::vector<float> images;
      std::vector<std::int64_t> samples;
      for (auto& part : parts) {
        const Batch& batch = part->at(step);
        EXPECT_EQ(batch.total, all.total);
        images.insert(images.end(), batch.images.begin(), batch.images.end());
        samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
      }
      ASSERT_EQ(samples, all.samples);
      ASSERT_EQ(images, all.images);
    }
  }
}

TEST(Loader, EverySampleOnceAnEpochAndAnotherOrderEachTime) {
  const Dataset data = small_set();
  Loader loader(data, data.train, {.batch_size = 8, .seed = 1, .threads = 1});
  EXPECT_EQ(loader.batches_per_epoch(), 7);
  std::vector<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < 7; ++i) {
      const Batch& batch = loader.at(7 * epoch + i);
      EXPECT_EQ(batch.count, i == 6 ? 5 : 8);  // the last one is kept
      order.insert(order.end(), batch.samples.begin(), batch.samples.end());
    }
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < 53; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(Loader, StartsAnywhere) {
  const test::Watchdog watchdog;
  const Dataset data = small_set();
  Loader steady(data, data.train, {.batch_size = 8, .threads = 0});
  Loader jumping(data, data.train, {.batch_size = 8, .threads = 2});
  for (const std::int64_t step : {20, 21, 3, 3, 4, 100, 0})
    ASSERT_EQ(steady.at(step).images, jumping.at(step).images) << step;
}

TEST(Loader, NormalisesAndKeepsPixels) {
  const Dataset data = small_set();
  Loader loader(data, data.train, {.batch_size = 53, .shuffle = false, .threads = 0});
  const Batch& batch = loader.at(0);
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < batch.images.size(); ++i) {
    if (i / 30 % 2 != 1) continue;  // channel 1
    sum += batch.images[i];
    squares += double{batch.images[i]} * batch.images[i];
    ++count;
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0, 1e-4);
  EXPECT_NEAR(squares / static_cast<double>(count), 1, 1e-3);
  EXPECT_EQ(batch.targets[5], data.train.labels[5]);
}

TEST(Loader, TextTargetsAreOneFurther) {
  std::vector<std::string> notices;
  const Dataset data =
      load_synthetic(parse_spec("synthetic{text=true,context=4,train=6,test=1}"), notices);
  Loader loader(data, data.train, {.batch_size = 2, .threads = 0});
  const Batch& batch = loader.at(1);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t t = 0; t < 4; ++t) {
      const auto at = static_cast<std::size_t>(batch.samples[i]) * 4 + t;
      EXPECT_EQ(batch.symbols[4 * i + t], data.train.bytes[at]);
      EXPECT_EQ(batch.targets[4 * i + t], data.train.bytes[at + 1]);
    }
}

TEST(Shares, CoverWithoutOverlap) {
  for (const std::int64_t total : {0, 1, 5, 64, 101})
    for (const int ranks : {1, 2, 3, 7}) {
      std::int64_t at = 0;
      for (Rank rank = 0; rank < ranks; ++rank) {
        const Share share = share_of(total, rank, ranks);
        EXPECT_EQ(share.begin, at);
        at += share.count;
      }
      EXPECT_EQ(at, total);
    }
}

TEST(RateSchedule, Facts) {
  const ScheduleInput input{.steps = 100, .steps_per_epoch = 10};
  const auto constant = make_schedule(parse_spec("constant{warmup=0.5}"), input);
  EXPECT_DOUBLE_EQ(constant(0), 0.2);
  EXPECT_DOUBLE_EQ(constant(4), 1);
  EXPECT_DOUBLE_EQ(constant(99), 1);
  const auto cosine = make_schedule(parse_spec("cosine{floor=0.1}"), input);
  EXPECT_DOUBLE_EQ(cosine(0), 1);
  EXPECT_NEAR(cosine(50), 0.55, 1e-12);
  EXPECT_NEAR(cosine(100), 0.1, 1e-12);
  const auto step = make_schedule(parse_spec("step{every=3,factor=0.1}"), input);
  EXPECT_DOUBLE_EQ(step(29), 1);
  EXPECT_DOUBLE_EQ(step(30), 0.1);
  EXPECT_NEAR(step(60), 0.01, 1e-15);
  EXPECT_THROW(make_schedule(parse_spec("cosine{flor=0.1}"), input), ConfigError);
  EXPECT_THROW(make_schedule(parse_spec("step{factor=2}"), input), ConfigError);
  EXPECT_THROW(make_schedule(parse_spec("linear"), input), ConfigError);
}

}  // namespace
}  // namespace thinwire
