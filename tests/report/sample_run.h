// SPDX-License-Identifier: Apache-2.0
// A run folder as the trainer leaves it, with made-up numbers: the same at every call.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>

#include "thinwire/report/run_folder.h"

namespace thinwire::test {

struct SampleRun {
  std::string name = "cnn-fashion";
  int ranks = 2, steps = 938;
  double compute_s = 0.104, exposed_s = 0.014, bytes_per_step = 1.69e6, final_accuracy = 0.912;
  std::string form = "none", status = "finished";
};

inline Trace sample_step(const SampleRun& sample, Rank rank, std::int64_t step) {
  constexpr int kTensors = 8, kBuckets = 4;
  const double begin_s =
      static_cast<double>(step) * (sample.compute_s + sample.exposed_s) + 0.001 * rank;
  const double each_s = sample.compute_s / (3 * kTensors + 1);
  Trace trace;
  double now_s = begin_s;
  const auto add = [&](OpKind kind, int index, double seconds) {
    trace.push_back({rank, step, kind, index, now_s, now_s + seconds, 0});
    now_s += seconds;
  };
  for (int t = 0; t < kTensors; ++t) add(OpKind::forward, t, each_s);
  double wire_s = 0;
  // So long that the last exchange ends exposed_s after backward.
  const double gap_s = 4 * each_s;
  const double exchange_s =
      sample.exposed_s < gap_s ? sample.exposed_s : (sample.exposed_s + 3 * gap_s) / kBuckets;
  for (int t = kTensors - 1; t >= 0; --t) {
    add(OpKind::backward, t, 2 * each_s);
    if (t % 2 != 0) continue;
    const double from_s = std::max(wire_s, now_s);
    const double to_s = from_s + exchange_s;
    trace.push_back({rank, step, OpKind::exchange, (kTensors - 2 - t) / 2, from_s, to_s,
                     static_cast<Bytes>(sample.bytes_per_step / kBuckets)});
    wire_s = to_s;
  }
  now_s = std::max(now_s, wire_s);
  add(OpKind::update, 0, each_s);
  return trace;
}

/// Writes it under `parent` and returns its path.
inline std::string write_sample_run(const std::string& parent, const SampleRun& sample = {}) {
  RunFolder folder = RunFolder::create(parent, sample.name);
  const double step_s = sample.compute_s + sample.exposed_s;
  const auto wave = [](int step) {
    return std::sin(step * 12.9898) * 0.5 + std::sin(step * 3.7) * 0.5;
  };
  for (int step = 1; step <= sample.steps; ++step) {
    const double done = static_cast<double>(step) / sample.steps;
    const double accuracy = sample.final_accuracy + 0.008 - 0.6 * std::exp(-9 * done);
    MetricsRow row{.step = step, .epoch = 2 * done, .time_s = step * step_s};
    row.loss = 0.22 + 2.0 * std::exp(-11 * done) + 0.05 * wave(step);
    row.accuracy = std::min(1.0, accuracy + 0.02 * wave(step + 5));
    row.learning_rate = 0.05 * (1 - done);
    row.compute_s = sample.compute_s * (1 + 0.03 * wave(step + 9));
    row.exposed_s = sample.exposed_s * (1 + 0.3 * wave(step + 2));
    row.step_s = *row.compute_s + *row.exposed_s + 0.0008;
    row.samples_per_s = 128 / *row.step_s;
    row.wire_bytes = static_cast<Bytes>(step * sample.bytes_per_step);
    folder.append(row);
    if (step % std::max(1, sample.steps / 8) == 0 || step == sample.steps)
      folder.append({.step = step,
                     .time_s = step * step_s,
                     .test_loss = *row.loss + 0.03,
                     .test_accuracy = accuracy - 0.008,
                     .wire_bytes = *row.wire_bytes});
  }
  for (Rank rank = 0; rank < sample.ranks; ++rank)
    for (int step = 0; step < sample.steps; step += std::max(1, sample.steps / 5))
      folder.append_trace(rank, sample_step(sample, rank, step));
  RunInfo info;
  info.status = sample.status;
  info.command = {"thinwire",         "train",   "demo.toml", "model.name=cnn",
                  "note=it's a test", "--ranks", "2"};
  info.setup = {.model = "cnn",
                .data = "fashion-mnist",
                .transport = "tcp",
                .congestion_control = "cubic",
                .grouping = "exact",
                .form = sample.form,
                .algorithm = "shard",
                .parameters = 421642,
                .batch_size = 128,
                .ranks = sample.ranks,
                .hosts = {"node-a", "node-b"}};
  info.configuration = {
      {"model", {{"name", "cnn"}, {"width", 32}}},
      {"data", {{"name", "fashion-mnist"}, {"seed", 0}}},
      {"optimizer", {{"name", "sgd"}, {"learning_rate", 0.05}, {"momentum", 0.9}}},
      {"exchange", {{"form", sample.form}, {"grouping", "exact"}}}};
  info.versions = build_versions();
  info.versions["torch"] = "2.13.0";
  info.summary = {.test_accuracy = sample.final_accuracy,
                  .test_loss = 0.254,
                  .samples_per_s = 128 / step_s,
                  .steps = sample.steps,
                  .samples = 128 * sample.steps,
                  .train_s = sample.steps * step_s,
                  .step_s = step_s + 0.0008,
                  .compute_s = sample.compute_s,
                  .exposed_s = sample.exposed_s,
                  .wire_bytes_per_step = sample.bytes_per_step,
                  .peak_memory_bytes = 412'000'000};
  folder.write_info(info);
  return folder.path();
}

}  // namespace thinwire::test
