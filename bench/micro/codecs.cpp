// SPDX-License-Identifier: Apache-2.0
// The time of every codec's kernels, and of forms through the interfaces that exchanges use
// ("form ..."), as a multiple of memcpy's of the same tensor, on one core: each
// is timed in turn with a memcpy, and the medians of times and ratios are printed, with the passes
// over memory each needs. Results are compared with the plain loops' first, on a smaller tensor.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>

#include "bench/micro/codec_cases.h"
#include "thinwire/codec/kernels/simd.h"
#include "thinwire/core/error.h"
#include "thinwire/core/json.h"

namespace thinwire::bench {
namespace {

constexpr std::int64_t kChecked = 200'003;

struct Options {
  std::int64_t elements = 10'000'000;
  int rounds = 15;
  std::string only;
  bool json = false, check = false;
};

std::vector<Case> all_cases(std::int64_t elements) {
  auto cases = make_cases(elements);
#ifdef TW_HAS_TORCH
  for (Case& each : make_chain_cases(elements)) cases.push_back(std::move(each));
#endif
  return cases;
}

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Row {
  double time_s = 0, copy_s = 0, ratio = 0;
};

Row measure(const Case& each, const std::function<void()>& copy, int rounds) {
  std::vector<double> times, copies, ratios;
  for (int round = -2; round < rounds; ++round) {  // two to warm up
    const double before = seconds_of(copy);
    const double time = seconds_of(each.run);
    if (round < 0) continue;
    times.push_back(time);
    copies.push_back(before);
    ratios.push_back(time / before);
  }
  return {median(times), median(copies), median(ratios)};
}

void print(const Case& each, const Row& row, const Options& options) {
  const double bytes = 4.0 * static_cast<double>(options.elements);
  const double traffic = (each.reads + each.writes) / 2;  // in memcpys
  if (options.json) {
    Json out = {{"name", each.name},
                {"simd", kernels::to_string(kernels::simd())},
                {"elements", options.elements},
                {"time_s", row.time_s},
                {"memcpy_s", row.copy_s},
                {"memcpy_ratio", row.ratio},
                {"gradient_bytes_per_s", bytes / row.time_s},
                {"tensors_read", each.reads},
                {"tensors_written", each.writes}};
    if (each.target > 0) out["target_memcpy_ratio"] = each.target;
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print(
        "{:<42} {:7.2f} ms {:5.2f} x memcpy {} {:6.1f} GB/s  {:.2g} read, {:.2g} written "
        "= {:.2f} x memcpy{}{}\n",
        each.name, row.time_s * 1e3, row.ratio,
        each.target > 0 ? fmt::format("(<= {:.1f})", each.target) : "        ",
        bytes / row.time_s / 1e9, each.reads, each.writes, traffic, each.why.empty() ? "" : ": ",
        each.why);
  }
  std::fflush(stdout);
}

int run(const Options& options) {
  const auto chosen = [&](const Case& each) {
    return each.name.find(options.only) != std::string::npos;
  };
  for (const Case& each : all_cases(std::min(kChecked, options.elements)))
    if (chosen(each)) each.check();
  std::vector<char> from(static_cast<std::size_t>(4 * options.elements), 1), to(from.size());
  const auto copy = [&] {
    std::memcpy(to.data(), from.data(), from.size());
    asm volatile("" : : "r"(to.data()) : "memory");  // so that the copy is made
  };
  if (!options.json)
    fmt::print("{} elements, {}, one core, medians of {} rounds in turn with memcpy\n",
               options.elements, kernels::to_string(kernels::simd()), options.rounds);
  int missed = 0;
  for (const Case& each : all_cases(options.elements)) {
    if (!chosen(each)) continue;
    const Row row = measure(each, copy, options.rounds);
    print(each, row, options);
    if (options.check && each.target > 0 && row.ratio > each.target) {
      fmt::print(stderr, "missed: {} takes {:.2f} times memcpy, at most {:.1f} is wanted\n",
                 each.name, row.ratio, each.target);
      ++missed;
    }
  }
  return missed == 0 ? 0 : 3;
}

}  // namespace
}  // namespace thinwire::bench

int main(int argc, char** argv) {
  thinwire::bench::Options options;
  CLI::App app("Times of the codecs' kernels beside memcpy of the same tensor");
  app.add_option("--elements", options.elements, "of the tensor")->check(CLI::Range(8000, 1 << 30));
  app.add_option("--rounds", options.rounds, "timed, after two more")->check(CLI::Range(1, 1000));
  app.add_option("--only", options.only, "cases with this in their name");
  app.add_flag("--json", options.json, "one object a line");
  app.add_flag("--check", options.check, "exit code 3 where a target is missed");
  CLI11_PARSE(app, argc, argv);
  try {
    return thinwire::bench::run(options);
  } catch (const thinwire::Error& error) {
    fmt::print(stderr, "bench/micro/codecs: {}\n", error.what());
    return 1;
  }
}
