// SPDX-License-Identifier: Apache-2.0
// The built-in networks. Parameters have the names that a plain PyTorch module of the same layout
// has, so a checkpoint loads there.
#pragma once
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

#include "thinwire/core/registry.h"
#include "thinwire/core/spec.h"

namespace thinwire {

/// A module with one input and one output: logits, one row a sample (or a symbol) and a column a
/// class.
class Network : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;
};

/// What the data looks like to a model.
struct InputForm {
  bool text = false;
  std::int64_t channels = 1, height = 28, width = 28;  ///< of images
  std::int64_t context = 128;                          ///< of text
  std::int64_t classes = 10;                           ///< labels or symbols
};

using ModelFactory = std::function<std::shared_ptr<Network>(SpecReader&, const InputForm&)>;
const Registry<ModelFactory>& models();

/// Builds the network that `spec` names with parameters drawn from `seed`; the same on every rank.
/// ConfigError for a spec that does not fit the data.
std::shared_ptr<Network> make_model(const Spec& spec, const InputForm& form, std::uint64_t seed);
std::int64_t parameter_count(const torch::nn::Module& module);

// One function a family; registered in models.cpp.
std::shared_ptr<Network> make_resnet(SpecReader& reader, const InputForm& form);
std::shared_ptr<Network> make_vgg(SpecReader& reader, const InputForm& form);
std::shared_ptr<Network> make_char_transformer(SpecReader& reader, const InputForm& form);

}  // namespace thinwire
