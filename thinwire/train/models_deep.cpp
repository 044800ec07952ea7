// SPDX-License-Identifier: Apache-2.0
// The deeper models.
// - resnet: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition" (2015), CIFAR form:
//   a 3x3 stem, no pooling at the start. Depths 6n+2 are the paper's own CIFAR networks (shortcuts
//   without weights); 18 and 34 have the ImageNet widths.
// - vgg: Simonyan, Zisserman, "Very Deep Convolutional Networks" (2014), with batch norm and one
//   linear layer.
// - char_transformer: a pre-norm decoder over characters with learned positions.
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>

#include <cmath>

#include "thinwire/core/error.h"
#include "thinwire/train/models.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
}

class BasicBlock : public Network {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride, bool weighted_shortcut)
      : stride_(stride), pad_((out - in) / 2) {
    conv1_ = register_module("conv1", conv3x3(in, out, stride));
    bn1_ = register_module("bn1", nn::BatchNorm2d(out));
    conv2_ = register_module("conv2", conv3x3(out, out, 1));
    bn2_ = register_module("bn2", nn::BatchNorm2d(out));
    if (weighted_shortcut && (stride != 1 || in != out))
      downsample_ = register_module(
          "downsample",
          nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)),
                         nn::BatchNorm2d(out)));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    torch::Tensor y = at::relu(bn1_->forward(conv1_->forward(x)));
    y = bn2_->forward(conv2_->forward(y));
    torch::Tensor shortcut = x;
    if (downsample_)
      shortcut = downsample_->forward(x);
    else if (stride_ != 1 || pad_ != 0)  // every second pixel, zero channels on both sides
      shortcut =
          at::constant_pad_nd(x.slice(2, 0, x.size(2), stride_).slice(3, 0, x.size(3), stride_),
                              {0, 0, 0, 0, pad_, pad_});
    return at::relu(y + shortcut);
  }

 private:
  std::int64_t stride_, pad_;
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
  nn::Sequential downsample_{nullptr};
};

class ResNet : public Network {
 public:
  ResNet(const InputForm& form, const std::vector<std::int64_t>& blocks, std::int64_t width,
         bool weighted_shortcut, const std::string& head) {
    conv1_ = register_module("conv1", conv3x3(form.channels, width, 1));
    bn1_ = register_module("bn1", nn::BatchNorm2d(width));
    std::int64_t in = width, out = width;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage, out *= 2) {
      nn::Sequential layer;
      for (std::int64_t block = 0; block < blocks[stage]; ++block) {
        layer->push_back(BasicBlock(in, out, stage > 0 && block == 0 ? 2 : 1, weighted_shortcut));
        in = out;
      }
      layers_.push_back(register_module(fmt::format("layer{}", stage + 1), layer));
    }
    head_ = register_module(head, nn::Linear(in, form.classes));
  }
  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = at::relu(bn1_->forward(conv1_->forward(input)));
    for (auto& layer : layers_) x = layer->forward(x);
    return head_->forward(x.mean({2, 3}));
  }

 private:
  nn::Conv2d conv1_{nullptr};
  nn::BatchNorm2d bn1_{nullptr};
  std::vector<nn::Sequential> layers_;
  nn::Linear head_{nullptr};
};

class Vgg : public Network {
 public:
  Vgg(const InputForm& form, const std::vector<std::int64_t>& widths) {
    std::int64_t in = form.channels, extent = std::min(form.height, form.width);
    for (const std::int64_t width : widths) {
      if (width != 0) {
        features_->push_back(nn::Conv2d(nn::Conv2dOptions(in, width, 3).padding(1)));
        features_->push_back(nn::BatchNorm2d(width));
        features_->push_back(nn::ReLU());
        in = width;
      } else if (extent > 1) {  // a small image is pooled less often
        features_->push_back(nn::MaxPool2d(2));
        extent /= 2;
      }
    }
    register_module("features", features_);
    classifier_ = register_module("classifier", nn::Linear(in, form.classes));
  }
  torch::Tensor forward(const torch::Tensor& input) override {
    return classifier_->forward(features_->forward(input).mean({2, 3}));
  }

 private:
  nn::Sequential features_;
  nn::Linear classifier_{nullptr};
};

class Attention : public Network {
 public:
  Attention(std::int64_t width, std::int64_t heads) : heads_(heads) {
    qkv_ = register_module("qkv", nn::Linear(width, 3 * width));
    out_ = register_module("out", nn::Linear(width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    const std::int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
    const auto parts =
        qkv_->forward(x).view({batch, time, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
    const auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    return out_->forward(y.transpose(1, 2).reshape({batch, time, width}));
  }

 private:
  std::int64_t heads_;
  nn::Linear qkv_{nullptr}, out_{nullptr};
};

class Decoder : public Network {
 public:
  Decoder(std::int64_t width, std::int64_t heads)
      : norm1_(nn::LayerNormOptions({width})), norm2_(nn::LayerNormOptions({width})) {
    register_module("norm1", norm1_);
    register_module("norm2", norm2_);
    attention_ = register_module("attention", std::make_shared<Attention>(width, heads));
    mlp_ = register_module("mlp", nn::Sequential(nn::Linear(width, 4 * width), nn::GELU(),
                                                 nn::Linear(4 * width, width)));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor y = x + attention_->forward(norm1_->forward(x));
    return y + mlp_->forward(norm2_->forward(y));
  }

 private:
  nn::LayerNorm norm1_, norm2_;
  std::shared_ptr<Attention> attention_;
  nn::Sequential mlp_{nullptr};
};

class CharTransformer : public Network {
 public:
  CharTransformer(const InputForm& form, std::int64_t layers, std::int64_t width,
                  std::int64_t heads)
      : norm_(nn::LayerNormOptions({width})) {
    token_ = register_module("token", nn::Embedding(form.classes, width));
    position_ = register_parameter(
        "position", torch::randn({form.context, width}) / std::sqrt(static_cast<double>(width)));
    for (std::int64_t i = 0; i < layers; ++i) blocks_->push_back(Decoder(width, heads));
    register_module("blocks", blocks_);
    register_module("norm", norm_);
    head_ = register_module("head", nn::Linear(width, form.classes));
  }
  torch::Tensor forward(const torch::Tensor& symbols) override {
    const torch::Tensor x = token_->forward(symbols) + position_.slice(0, 0, symbols.size(1));
    return head_->forward(norm_->forward(blocks_->forward(x)));
  }

 private:
  nn::Embedding token_{nullptr};
  torch::Tensor position_;
  nn::Sequential blocks_;
  nn::LayerNorm norm_;
  nn::Linear head_{nullptr};
};

}  // namespace

std::shared_ptr<Network> make_resnet(SpecReader& reader, const InputForm& form) {
  if (form.text) throw ConfigError("resnet: takes images, the data is text");
  const std::int64_t depth = reader.integer("depth", 18);
  if (depth == 18)
    return std::make_shared<ResNet>(form, std::vector<std::int64_t>{2, 2, 2, 2}, 64, true, "fc");
  if (depth == 34)
    return std::make_shared<ResNet>(form, std::vector<std::int64_t>{3, 4, 6, 3}, 64, true, "fc");
  const std::int64_t n = (depth - 2) / 6;
  if (depth < 8 || depth > 1202 || 6 * n + 2 != depth)
    throw ConfigError(
        fmt::format("resnet: depth must be 18, 34 or 6n+2 (20, 32, 44, 56, 110), got {}", depth));
  return std::make_shared<ResNet>(form, std::vector<std::int64_t>{n, n, n}, 16, false, "linear");
}

std::shared_ptr<Network> make_vgg(SpecReader& reader, const InputForm& form) {
  if (form.text) throw ConfigError("vgg: takes images, the data is text");
  const std::int64_t depth = reader.integer("depth", 11);
  std::vector<std::int64_t> repeats;  // convolutions before each pooling
  if (depth == 11) repeats = {1, 1, 2, 2, 2};
  if (depth == 13) repeats = {2, 2, 2, 2, 2};
  if (depth == 16) repeats = {2, 2, 3, 3, 3};
  if (depth == 19) repeats = {2, 2, 4, 4, 4};
  if (repeats.empty())
    throw ConfigError(fmt::format("vgg: depth must be 11, 13, 16 or 19, got {}", depth));
  std::vector<std::int64_t> widths;  // 0 is a pooling
  for (std::size_t stage = 0; stage < repeats.size(); ++stage) {
    widths.insert(widths.end(), static_cast<std::size_t>(repeats[stage]),
                  std::min<std::int64_t>(512, 64 << stage));
    widths.push_back(0);
  }
  return std::make_shared<Vgg>(form, widths);
}

std::shared_ptr<Network> make_char_transformer(SpecReader& reader, const InputForm& form) {
  if (!form.text) throw ConfigError("char_transformer: takes text, the data is images");
  const std::int64_t layers = reader.integer("layers", 6), width = reader.integer("width", 320),
                     heads = reader.integer("heads", 8);
  if (layers < 1 || layers > 1000 || width < 1 || width > 65536 || heads < 1 || width % heads != 0)
    throw ConfigError(fmt::format(
        "char_transformer: layers must be in [1, 1000] and width a multiple of heads, got layers "
        "{}, width {}, heads {}",
        layers, width, heads));
  return std::make_shared<CharTransformer>(form, layers, width, heads);
}

}  // namespace thinwire
