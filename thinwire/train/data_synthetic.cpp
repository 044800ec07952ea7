// SPDX-License-Identifier: Apache-2.0
// A generated set that can be learned: images are a smooth pattern of their class, shifted and
// noisy; text is drawn from a random table of which symbol follows which.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/core/text.h"
#include "thinwire/train/data.h"

namespace thinwire {
namespace {

constexpr std::int32_t kPatterns = 101, kImages = 102, kText = 103;  // streams of the generator

std::vector<std::int64_t> parse_shape(const std::string& text) {
  std::vector<std::int64_t> shape;
  for (const auto& part : split(text, 'x')) {
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), extent);
    if (error == std::errc() && end == part.data() + part.size() && extent >= 1 && extent <= 4096)
      shape.push_back(extent);
  }
  if (shape.size() != 3 || std::count(text.begin(), text.end(), 'x') != 2)
    throw ConfigError(fmt::format(
        "synthetic: shape must be CHANNELSxHEIGHTxWIDTH, each in [1, 4096], got '{}'", text));
  return shape;
}

/// A sum of a few waves a class and channel.
std::vector<float> pattern(const Dataset& data, std::uint64_t seed, std::int64_t label) {
  std::vector<float> out;
  Rng rng({.seed = seed, .exchange = kPatterns, .step = label});
  for (std::int64_t c = 0; c < data.channels; ++c) {
    double wave[4][3];
    for (auto& w : wave) {
      w[0] = rng.uniform() * 3;
      w[1] = rng.uniform() * 3;
      w[2] = rng.uniform() * 6.283;
    }
    for (std::int64_t y = 0; y < data.height; ++y)
      for (std::int64_t x = 0; x < data.width; ++x) {
        double sum = 0;
        for (const auto& w : wave)
          sum +=
              std::sin(6.283 * (w[0] * static_cast<double>(y) / static_cast<double>(data.height) +
                                w[1] * static_cast<double>(x) / static_cast<double>(data.width)) +
                       w[2]);
        out.push_back(static_cast<float>(128 + 30 * sum));
      }
  }
  return out;
}

void fill_images(const Dataset& data, SampleSet& set,
                 const std::vector<std::vector<float>>& patterns, const RngKey& key, double noise) {
  set.bytes.resize(static_cast<std::size_t>(set.count * data.sample_bytes()));
  set.labels.resize(static_cast<std::size_t>(set.count));
  for (std::int64_t i = 0; i < set.count; ++i) {
    RngKey own = key;
    own.step = i;
    Rng rng(own);
    const auto label = rng.below(static_cast<std::uint64_t>(data.classes));
    set.labels[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(label);
    auto* out = set.bytes.data() + i * data.sample_bytes();
    const auto& base = patterns[label];
    for (std::size_t p = 0; p < base.size(); ++p) {
      const std::uint32_t word = rng.next_u32();
      const double triangle = static_cast<double>(word & 0xffff) - static_cast<double>(word >> 16);
      const double value = base[p] + triangle / 65536 * noise * 255;
      out[p] = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
    }
  }
}

void fill_text(const Dataset& data, SampleSet& set, const RngKey& key) {
  set.bytes.resize(static_cast<std::size_t>(set.count * data.context + 1));
  Rng rng(key);
  std::uint64_t symbol = 0;
  for (auto& byte : set.bytes) {
    byte = static_cast<std::uint8_t>(symbol);
    // Three quarters of the time a fixed successor, so that there is something to learn.
    symbol = rng.below(4) != 0 ? (symbol * 7 + 3) % static_cast<std::uint64_t>(data.classes)
                               : rng.below(static_cast<std::uint64_t>(data.classes));
  }
}

}  // namespace

Dataset load_synthetic(const Spec& spec, std::vector<std::string>&) {
  SpecReader reader(spec);
  const bool text = reader.flag("text", false);
  const std::string shape_text = reader.text("shape", "1x28x28");
  const std::int64_t context = reader.integer("context", 128);
  const std::int64_t classes = reader.integer("classes", text ? 65 : 10);
  const std::int64_t train = reader.integer("train", 2048), test = reader.integer("test", 512);
  const double noise = reader.number("noise", 0.3);
  const auto seed = static_cast<std::uint64_t>(reader.integer("seed", 0));
  reader.finish();
  if (classes < 1 || classes > 256)
    throw ConfigError(fmt::format("synthetic: classes must be in [1, 256], got {}", classes));
  if (train < 1 || test < 0 || train > 10'000'000 || test > 10'000'000)
    throw ConfigError(fmt::format(
        "synthetic: train must be in [1, 1e7] and test in [0, 1e7], got {} and {}", train, test));
  if (context < 1 || context > 65536)
    throw ConfigError(fmt::format("synthetic: context must be in [1, 65536], got {}", context));
  Dataset data{.name = "synthetic", .source = "generated", .classes = classes};
  data.train.count = train;
  data.test.count = test;
  if (text) {
    data.kind = SampleKind::text;
    data.context = context;
    for (int i = 0; i < classes; ++i) data.alphabet.push_back(static_cast<char>((33 + i) & 0xff));
    fill_text(data, data.train, {.seed = seed, .exchange = kText, .step = 0});
    fill_text(data, data.test, {.seed = seed, .exchange = kText, .step = 1});
    return data;
  }
  const auto shape = parse_shape(shape_text);
  data.channels = shape[0];
  data.height = shape[1];
  data.width = shape[2];
  std::vector<std::vector<float>> patterns;
  for (std::int64_t label = 0; label < classes; ++label)
    patterns.push_back(pattern(data, seed, label));
  fill_images(data, data.train, patterns, {.seed = seed, .exchange = kImages, .rank = 0}, noise);
  fill_images(data, data.test, patterns, {.seed = seed, .exchange = kImages, .rank = 1}, noise);
  measure_pixels(data);
  return data;
}

}  // namespace thinwire
