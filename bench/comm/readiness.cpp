// SPDX-License-Identifier: Apache-2.0
// What it costs ranks to agree on what is ready: rank 0 as coordinator, bits, bits with groups.
// Each rank is a thread with sockets of its own. The tensors are those of ResNet-50, which become
// ready in backward order with a jitter of each rank's own; a cycle follows whenever so many more
// are.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <numeric>
#include <thread>

#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/comm/readiness.h"
#include "thinwire/core/json.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

struct Options {
  int ranks = 8, tensors = 160, steps = 50, cycle = 8;
  double jitter = 8;
  std::string transport = "tcp";
  bool json = false;
};

struct Arm {
  std::string name;
  ReadinessBy by = ReadinessBy::bit_vector;
  int groups = 0;  ///< 0: each tensor by itself
};

/// Bytes of the tensors in backward order; more than the 161 there are begin again.
std::vector<Bytes> resnet50(int tensors) {
  std::vector<std::int64_t> out{64 * 3 * 49, 64, 64};
  std::int64_t in = 64;
  constexpr int kBlocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = 64 << stage;
    for (int block = 0; block < kBlocks[stage]; ++block) {
      out.insert(out.end(), {in * width, width, width});
      out.insert(out.end(), {9 * width * width, width, width});
      out.insert(out.end(), {4 * width * width, 4 * width, 4 * width});
      if (block == 0) out.insert(out.end(), {in * 4 * width, 4 * width, 4 * width});
      in = 4 * width;
    }
  }
  out.insert(out.end(), {2048 * 1000, 1000});
  std::reverse(out.begin(), out.end());
  std::vector<Bytes> bytes;
  for (int i = 0; i < tensors; ++i)
    bytes.push_back(4 * out[static_cast<std::size_t>(i) % out.size()]);
  return bytes;
}

/// Which group each tensor is in: runs of about equal bytes, in backward order.
std::vector<int> grouped(const std::vector<Bytes>& bytes, int groups) {
  const auto total = std::accumulate(bytes.begin(), bytes.end(), Bytes{0});
  std::vector<int> out;
  Bytes before = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    out.push_back(groups == 0
                      ? static_cast<int>(i)
                      : static_cast<int>(std::min<Bytes>(groups - 1, before * groups / total)));
    before += bytes[i];
  }
  return out;
}

struct Figures {
  std::vector<Seconds> cycle_s;  ///< by step: the step's time on rank 0 over its cycles
  std::int64_t cycles = 0;       ///< of all steps
  std::vector<Bytes> sent;       ///< control bytes by rank, of all steps, without headers
  std::vector<Bytes> messages;   ///< data messages of one step and their bytes
};

class Worker {
 public:
  Worker(Comm& comm, const Options& options, const Arm& arm)
      : comm_(comm),
        options_(options),
        fuses_(arm.groups == 0),
        bytes_(resnet50(options.tensors)),
        unit_(grouped(bytes_, arm.groups)),
        readiness_(comm, {.by = arm.by}) {}

  /// One step; returns its data messages.
  std::vector<Bytes> step(int step) {
    const auto ready_at = times(step);
    std::map<int, int> missing;
    for (const int unit : unit_) ++missing[unit];
    std::vector<bool> here(bytes_.size(), false);
    std::vector<Bytes> out;
    int left = static_cast<int>(missing.size());
    for (double now = options_.cycle; left > 0; now += options_.cycle) {
      for (std::size_t i = 0; i < bytes_.size(); ++i) {
        if (here[i] || ready_at[i] >= now) continue;
        here[i] = true;
        if (--missing[unit_[i]] == 0) readiness_.mark(name(unit_[i]), "f32");
      }
      const auto& list = readiness_.cycle(step);
      left -= static_cast<int>(list.size());
      for (std::size_t k = 0; k < list.size(); ++k) {
        if (k == 0 || !fuses_) out.push_back(0);  // what one cycle finds is one message, or a group
        out.back() += bytes_of(list[k]);
      }
    }
    return out;
  }
  std::int64_t cycles() const { return readiness_.counts().cycles; }

 private:
  std::vector<double> times(int step) const {
    Rng rng({.seed = 5, .step = step, .rank = comm_.rank()});
    std::vector<double> out;
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      out.push_back(static_cast<double>(i) + options_.jitter * rng.normal());
    return out;
  }
  /// As long as real ones: with its 8 bytes of kind and numbers about 60 bytes.
  static std::string name(int unit) {
    return fmt::format("gradient.layer.block.convolution.weight.{:05}", unit);
  }
  Bytes bytes_of(const std::string& name) const {
    const int unit = std::stoi(name.substr(name.size() - 5));
    Bytes out = 0;
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (unit_[i] == unit) out += bytes_[i];
    return out;
  }

  Comm& comm_;
  const Options& options_;
  const bool fuses_;
  const std::vector<Bytes> bytes_;
  const std::vector<int> unit_;
  Readiness readiness_;
};

Figures measure(const Options& options, const Arm& arm) {
  const auto comms = make_local(options.ranks, 60, options.transport);
  Figures out;
  out.sent.resize(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r)
    threads.emplace_back([&, r] {
      Comm& comm = *comms[r];
      Worker rank(comm, options, arm);
      for (int step = 0; step < 3; ++step) rank.step(step);  // names become known
      const std::int64_t known = rank.cycles();
      comm.membership()->all_gather("before", "");
      const Bytes before = comm.counters().payload_bytes;
      for (int step = 3; step < 3 + options.steps; ++step) {
        const auto begin = Clock::now();
        const std::int64_t cycles = rank.cycles();
        const auto messages = rank.step(step);
        if (r > 0) continue;
        out.cycle_s.push_back(std::chrono::duration<double>(Clock::now() - begin).count() /
                              static_cast<double>(rank.cycles() - cycles));
        out.messages = messages;
      }
      comm.membership()->all_gather("after", "");
      out.sent[r] = comm.counters().payload_bytes - before;
      if (r == 0) out.cycles = rank.cycles() - known;
    });
  for (auto& thread : threads) thread.join();
  return out;
}

template <class T>
T median(std::vector<T> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// All that others send goes to rank 0 where it coordinates; bits go as much in as out everywhere.
Bytes received_at_busiest(const Figures& figures, const Arm& arm) {
  if (arm.by == ReadinessBy::bit_vector)
    return *std::max_element(figures.sent.begin(), figures.sent.end());
  return std::accumulate(figures.sent.begin() + 1, figures.sent.end(), Bytes{0});
}

void print(const Options& options, const Arm& arm, const Figures& figures) {
  const auto per_step = [&](Bytes bytes) { return bytes / options.steps; };
  const Bytes sent = per_step(*std::max_element(figures.sent.begin(), figures.sent.end()));
  const Bytes received = per_step(received_at_busiest(figures, arm));
  const double cycles = static_cast<double>(figures.cycles) / options.steps;
  const Bytes least = *std::min_element(figures.messages.begin(), figures.messages.end());
  if (options.json) {
    const Json row{{"name", arm.name},
                   {"ranks", options.ranks},
                   {"tensors", options.tensors},
                   {"transport", options.transport},
                   {"cycles", cycles},
                   {"sent_bytes", sent},
                   {"received_bytes", received},
                   {"cycle_s", median(figures.cycle_s)},
                   {"messages", figures.messages.size()},
                   {"least_message_bytes", least},
                   {"median_message_bytes", median(figures.messages)}};
    fmt::print("{}\n", dump(row, "bench"));
  } else {
    fmt::print("{:<18} {:>7.1f} {:>10} {:>10} {:>10.3f} {:>9} {:>11} {:>11}\n", arm.name, cycles,
               sent, received, 1e3 * median(figures.cycle_s), figures.messages.size(), least,
               median(figures.messages));
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace thinwire

int main(int argc, char** argv) {
  using namespace thinwire;
  Options options;
  CLI::App app{
      "What it costs ranks to agree on what is ready, a step: control bytes, time, messages."};
  app.add_option("--ranks", options.ranks, "Threads with sockets of their own")
      ->check(CLI::Range(1, 64));
  app.add_option("--tensors", options.tensors, "Of ResNet-50, in backward order")
      ->check(CLI::Range(1, 10000));
  app.add_option("--steps", options.steps, "Measured, after three")->check(CLI::Range(1, 100000));
  app.add_option("--cycle", options.cycle, "Tensors that become ready from one cycle to the next")
      ->check(CLI::Range(1, 10000));
  app.add_option("--jitter", options.jitter, "Deviation of a tensor's place in the order")
      ->check(CLI::Range(0.0, 1e4));
  app.add_option("--transport", options.transport, "tcp, tcp{algorithm=shard}, local");
  app.add_flag("--json", options.json, "One JSON object a row");
  CLI11_PARSE(app, argc, argv);
  std::vector<Arm> arms{{"coordinator", ReadinessBy::coordinator}, {"bits"}};
  for (const int groups : {1, 4, 8, 16})
    arms.push_back({fmt::format("bits, {} group{}", groups, groups > 1 ? "s" : ""),
                    ReadinessBy::bit_vector, groups});
  if (!options.json)
    fmt::print(
        "{} ranks, {} tensors; a step, bytes at the busiest rank\n{:<18} {:>7} {:>10} {:>10} "
        "{:>10} {:>9} {:>11} {:>11}\n",
        options.ranks, options.tensors, "", "cycles", "sent", "received", "cycle, ms", "messages",
        "least bytes", "median");
  for (const Arm& arm : arms) print(options, arm, measure(options, arm));
  return 0;
}
