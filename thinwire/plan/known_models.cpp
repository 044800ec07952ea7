// SPDX-License-Identifier: Apache-2.0
#include "thinwire/plan/known_models.h"

#include <fmt/format.h>

#include <array>
#include <numeric>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"

namespace thinwire {
namespace {

class Writer {
 public:
  /// Filters of size x size, `side` x `side` results each.
  void conv(const std::string& name, std::int64_t size, std::int64_t in, std::int64_t out,
            std::int64_t side) {
    add(name + ".weight", {out, in, size, size},
        static_cast<double>(out * in * size * size) * static_cast<double>(side * side));
  }
  void norm(const std::string& name, std::int64_t channels, std::int64_t side) {
    // One multiplication a value each for scale and shift.
    const auto values = static_cast<double>(channels * side * side);
    add(name + ".weight", {channels}, values);
    add(name + ".bias", {channels}, values);
  }
  void linear(const std::string& name, std::int64_t in, std::int64_t out) {
    add(name + ".weight", {out, in}, static_cast<double>(in * out));
    bias(name, out);
  }
  void bias(const std::string& name, std::int64_t out) { add(name + ".bias", {out}, 0); }
  /// Weights and biases of a layer as one tensor, which is how MG-WFBP counts layers.
  void layer(const std::string& name, std::int64_t weights, std::int64_t biases,
             std::int64_t results) {
    add(name, {weights + biases}, static_cast<double>(weights) * static_cast<double>(results));
  }
  KnownModel done() { return std::move(model_); }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape, double multiplications) {
    model_.params.push_back({name, DType::f32, std::move(shape)});
    model_.multiplications.push_back(multiplications);
  }
  KnownModel model_;
};

/// One inception module: 1x1, 3x3 and 5x5 with their reductions, and the projection of the pool.
struct Inception {
  const char* name;
  std::int64_t in, one, reduce3, three, reduce5, five, pool, side;
};

void inception(Writer& to, const Inception& m) {
  const std::string name = m.name;
  const auto layer = [&](const char* part, std::int64_t size, std::int64_t in, std::int64_t out) {
    to.layer(name + part, size * size * in * out, out, m.side * m.side);
  };
  layer(".1x1", 1, m.in, m.one);
  layer(".3x3_reduce", 1, m.in, m.reduce3);
  layer(".3x3", 3, m.reduce3, m.three);
  layer(".5x5_reduce", 1, m.in, m.reduce5);
  layer(".5x5", 5, m.reduce5, m.five);
  layer(".pool_proj", 1, m.in, m.pool);
}

void side_classifier(Writer& to, const std::string& name, std::int64_t in) {
  constexpr std::int64_t kPixels = 16, kFilters = 128, kHidden = 1024, kClasses = 1000;
  to.layer(name + ".conv", in * kFilters, kFilters, kPixels);
  to.layer(name + ".fc", kFilters * kPixels * kHidden, kHidden, 1);
  to.layer(name + ".classifier", kHidden * kClasses, kClasses, 1);
}

KnownModel googlenet() {
  constexpr std::array<Inception, 9> kModules{{{"3a", 192, 64, 96, 128, 16, 32, 32, 28},
                                               {"3b", 256, 128, 128, 192, 32, 96, 64, 28},
                                               {"4a", 480, 192, 96, 208, 16, 48, 64, 14},
                                               {"4b", 512, 160, 112, 224, 24, 64, 64, 14},
                                               {"4c", 512, 128, 128, 256, 24, 64, 64, 14},
                                               {"4d", 512, 112, 144, 288, 32, 64, 64, 14},
                                               {"4e", 528, 256, 160, 320, 32, 128, 128, 14},
                                               {"5a", 832, 256, 160, 320, 32, 128, 128, 7},
                                               {"5b", 832, 384, 192, 384, 48, 128, 128, 7}}};
  Writer to;
  constexpr std::int64_t kLarge = 112, kSmall = 56, kFirst = 64, kSecond = 192;
  to.layer("conv1", kFirst * 7 * 7 * 3, kFirst, kLarge * kLarge);
  to.layer("conv2_reduce", kFirst * kFirst, kFirst, kSmall * kSmall);
  to.layer("conv2", kFirst * kSecond * 3 * 3, kSecond, kSmall * kSmall);
  for (const Inception& module : kModules) {
    inception(to, module);
    if (module.name == std::string_view("4a")) side_classifier(to, "loss1", 512);
    if (module.name == std::string_view("4d")) side_classifier(to, "loss2", 528);
  }
  to.layer("loss3.classifier", std::int64_t{1024} * 1000, 1000, 1);
  return to.done();
}

KnownModel resnet50() {
  constexpr std::array<std::int64_t, 4> kBlocks{3, 4, 6, 3};
  Writer to;
  to.conv("conv1", 7, 3, 64, 112);
  to.norm("bn1", 64, 112);
  std::int64_t in = 64;
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    const std::int64_t width = 64 << stage, out = 4 * width, side = 56 >> stage;
    for (std::int64_t block = 0; block < kBlocks[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      // The stride stands at the 3x3 filters: those before it see the larger image.
      const std::int64_t before = block == 0 && stage > 0 ? 2 * side : side;
      to.conv(name + ".conv1", 1, in, width, before);
      to.norm(name + ".bn1", width, before);
      to.conv(name + ".conv2", 3, width, width, side);
      to.norm(name + ".bn2", width, side);
      to.conv(name + ".conv3", 1, width, out, side);
      to.norm(name + ".bn3", out, side);
      if (block == 0) {
        to.conv(name + ".downsample.0", 1, in, out, side);
        to.norm(name + ".downsample.1", out, side);
      }
      in = out;
    }
  }
  to.linear("fc", 2048, 1000);
  return to.done();
}

KnownModel vgg19() {
  constexpr std::array<std::int64_t, 5> kConvs{2, 2, 4, 4, 4}, kWidths{64, 128, 256, 512, 512};
  Writer to;
  std::int64_t in = 3, number = 0;
  for (std::size_t stage = 0; stage < kConvs.size(); ++stage)
    for (std::int64_t i = 0; i < kConvs[stage]; ++i) {
      const std::string name = fmt::format("features.{}", number++);
      to.conv(name, 3, in, kWidths[stage], 224 >> stage);
      to.bias(name, kWidths[stage]);
      in = kWidths[stage];
    }
  to.linear("classifier.0", std::int64_t{512} * 7 * 7, 4096);
  to.linear("classifier.3", 4096, 4096);
  to.linear("classifier.6", 4096, 1000);
  return to.done();
}

}  // namespace

KnownModel known_model(std::string_view name) {
  if (name == "googlenet") return googlenet();
  if (name == "resnet50") return resnet50();
  if (name == "vgg19") return vgg19();
  const std::vector<std::string> names{"googlenet", "resnet50", "vgg19"};
  throw ConfigError(unknown_name("model", name, names));
}

Profile shared_out(const KnownModel& model, Seconds forward_s, Seconds backward_s) {
  const double all =
      std::accumulate(model.multiplications.begin(), model.multiplications.end(), 0.0);
  Profile out{.params = model.params};
  for (const double one : model.multiplications) {
    out.forward_s.push_back(forward_s * one / all);
    out.backward_s.push_back(backward_s * one / all);
  }
  validate(out);
  return out;
}

}  // namespace thinwire
