// SPDX-License-Identifier: Apache-2.0
// The tensors of networks that papers measure with, layer by layer as published, and what share of
// the computation each has: its multiplications for a sample. For plans of machines that are not
// at hand.
#pragma once
#include <string_view>
#include <vector>

#include "thinwire/plan/profile.h"

namespace thinwire {

struct KnownModel {
  std::vector<TensorDesc> params;       ///< in registration order, f32
  std::vector<double> multiplications;  ///< of a sample's forward pass, one a tensor
};
/// "googlenet" (as Caffe has it: 64 layers with their biases, both side classifiers, inputs of
/// 224 x 224), "resnet50" and "vgg19" (as torchvision has them). ConfigError otherwise.
KnownModel known_model(std::string_view name);

/// A profile of it: the times of forward and backward shared out by multiplications. Not measured:
/// real layers differ in how quickly they multiply.
Profile shared_out(const KnownModel& model, Seconds forward_s, Seconds backward_s);

}  // namespace thinwire
