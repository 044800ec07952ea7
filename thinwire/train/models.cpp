// SPDX-License-Identifier: Apache-2.0
// The table of models, and the two smallest: a perceptron and a small convolutional network.
#include "thinwire/train/models.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <mutex>

#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/train/python_model.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

class Mlp : public Network {
 public:
  explicit Mlp(const std::vector<std::int64_t>& sizes) {
    layers_ = register_module("layers", nn::ModuleList());
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
      layers_->push_back(nn::Linear(sizes[i], sizes[i + 1]));
  }
  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = input.flatten(1);
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      x = layers_[i]->as<nn::Linear>()->forward(x);
      if (i + 1 < layers_->size()) x = at::relu(x);
    }
    return x;
  }

 private:
  nn::ModuleList layers_{nullptr};
};

/// Two 3x3 convolutions with pooling, then two linear layers.
class Cnn : public Network {
 public:
  Cnn(const InputForm& form, std::int64_t width, std::int64_t hidden) {
    conv1_ =
        register_module("conv1", nn::Conv2d(nn::Conv2dOptions(form.channels, width, 3).padding(1)));
    conv2_ =
        register_module("conv2", nn::Conv2d(nn::Conv2dOptions(width, 2 * width, 3).padding(1)));
    const std::int64_t flat = 2 * width * (form.height / 4) * (form.width / 4);
    fc1_ = register_module("fc1", nn::Linear(flat, hidden));
    fc2_ = register_module("fc2", nn::Linear(hidden, form.classes));
  }
  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = at::max_pool2d(at::relu(conv1_->forward(input)), 2);
    x = at::max_pool2d(at::relu(conv2_->forward(x)), 2);
    x = at::relu(fc1_->forward(x.flatten(1)));
    return fc2_->forward(x);
  }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  nn::Linear fc1_{nullptr}, fc2_{nullptr};
};

void need_images(const char* name, const InputForm& form) {
  if (form.text) throw ConfigError(fmt::format("{}: takes images, the data is text", name));
}

std::shared_ptr<Network> make_mlp(SpecReader& reader, const InputForm& form) {
  need_images("mlp", form);
  const std::int64_t input = form.channels * form.height * form.width;
  const std::string text = reader.text("sizes", "");
  if (text.empty())
    return std::make_shared<Mlp>(std::vector<std::int64_t>{input, 256, 128, form.classes});
  std::vector<std::int64_t> sizes;
  for (const auto& part : split(text, '-')) {
    sizes.push_back(parse_bytes(part));
    if (sizes.back() < 1 || sizes.back() > 1'000'000)
      throw ConfigError(fmt::format("mlp: sizes must be in [1, 1000000], got {}", text));
  }
  if (sizes.size() < 2 || sizes.front() != input || sizes.back() != form.classes)
    throw ConfigError(fmt::format(
        "mlp: sizes must begin with {} (values of a sample) and end with {} (classes), got {}",
        input, form.classes, text));
  return std::make_shared<Mlp>(sizes);
}

std::shared_ptr<Network> make_cnn(SpecReader& reader, const InputForm& form) {
  need_images("cnn", form);
  const std::int64_t width = reader.integer("width", 16), hidden = reader.integer("hidden", 128);
  if (width < 1 || width > 4096 || hidden < 1 || hidden > 65536)
    throw ConfigError(fmt::format(
        "cnn: width must be in [1, 4096] and hidden in [1, 65536], got {} and {}", width, hidden));
  if (form.height < 4 || form.width < 4)
    throw ConfigError(
        fmt::format("cnn: images must be at least 4x4, these are {}x{}", form.height, form.width));
  return std::make_shared<Cnn>(form, width, hidden);
}

/// Its arguments are those of a class that only Python knows.
std::shared_ptr<Network> make_python(const Spec& spec, const InputForm& form) {
  if (!python_model())
    throw ConfigError(
        "python: a class of a Python file needs the Python front: python -m thinwire train");
  return python_model()(spec.params, form);
}

}  // namespace

const Registry<ModelFactory>& models() {
  static const Registry<ModelFactory> registry = [] {
    Registry<ModelFactory> r("model");
    r.add("mlp", make_mlp,
          "linear layers: sizes=784-256-128-10 (first and last as the data has it)");
    r.add("cnn", make_cnn, "two convolutions and two linear layers: width=16, hidden=128");
    r.add(
        "resnet", make_resnet,
        "depth=18 or 34 (widths 64 to 512), or 20, 32, 44, 56, 110 (widths 16 to 64); CIFAR form");
    r.add("vgg", make_vgg, "depth=11, 13, 16 or 19 with batch norm, CIFAR form");
    r.add("char_transformer", make_char_transformer,
          "decoder over characters: layers=6, width=320, heads=8");
    r.add("python", nullptr,  // see make_model
          "a class of a Python file, from the Python front: file=, class=, and its own arguments");
    return r;
  }();
  return registry;
}

std::shared_ptr<Network> make_model(const Spec& spec, const InputForm& form, std::uint64_t seed) {
  const auto& entry = models().find(spec.name);
  SpecReader reader(spec);
  // Modules draw from torch's global generator; ranks that are threads must not draw at once.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(seed);
  if (spec.name == "python") return make_python(spec, form);
  auto model = entry.make(reader, form);
  reader.finish();
  return model;
}

std::int64_t parameter_count(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace thinwire
