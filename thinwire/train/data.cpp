// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/data.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace thinwire {

std::int64_t Dataset::sample_bytes() const {
  return kind == SampleKind::text ? context : channels * height * width;
}

const Registry<DatasetFactory>& datasets() {
  static const Registry<DatasetFactory> registry = [] {
    Registry<DatasetFactory> r("data set");
    r.add("fashion_mnist", load_fashion_mnist,
          "clothes, 28x28 grey, 10 classes; folder= (default: Debian's dataset-fashion-mnist)");
    r.add("idx", load_idx, "any set in IDX files: images=, labels=, test_images=, test_labels=");
    r.add("cifar10", load_cifar10,
          "colour images 32x32, 10 classes: binary batches or PNG sheets in folder=");
    r.add("text", load_text,
          "characters of a text file: path=, context=128; 90 % train, 10 % test");
    r.add("synthetic", load_synthetic,
          "generated: shape=1x28x28, classes=10, train=2048, test=512, noise=0.3, seed=0, or "
          "text=true, classes=65, context=128");
    return r;
  }();
  return registry;
}

Dataset load_dataset(const Spec& spec, std::vector<std::string>& notices) {
  return datasets().find(spec.name).make(spec, notices);
}

void shorten(Dataset& data, std::int64_t train, std::int64_t test) {
  const auto cut = [&](SampleSet& set, std::int64_t count) {
    if (count == 0 || count >= set.count) return;
    const bool text = data.kind == SampleKind::text;
    set.bytes.resize(static_cast<std::size_t>(count * data.sample_bytes() + (text ? 1 : 0)));
    if (!text) set.labels.resize(static_cast<std::size_t>(count));
    set.count = count;
  };
  cut(data.train, train);
  cut(data.test, test);
}

void measure_pixels(Dataset& data) {
  const std::int64_t plane = data.height * data.width;
  data.mean.clear();
  data.deviation.clear();
  for (std::int64_t channel = 0; channel < data.channels; ++channel) {
    // Whole-number counts: exact, so every rank and machine gets the same two floats.
    std::array<std::int64_t, 256> seen{};
    for (std::int64_t i = 0; i < data.train.count; ++i) {
      const auto* at = data.train.bytes.data() + (i * data.channels + channel) * plane;
      for (std::int64_t p = 0; p < plane; ++p) ++seen[at[p]];
    }
    double sum = 0, squares = 0;
    for (int value = 0; value < 256; ++value) {
      sum += static_cast<double>(seen[value]) * value;
      squares += static_cast<double>(seen[value]) * value * value;
    }
    const double n = std::max<double>(1, static_cast<double>(data.train.count * plane));
    const double mean = sum / n;
    const double variance = std::max(0.0, squares / n - mean * mean);
    data.mean.push_back(static_cast<float>(mean / 255));
    data.deviation.push_back(variance > 0 ? static_cast<float>(std::sqrt(variance) / 255) : 1.0f);
  }
}

}  // namespace thinwire
