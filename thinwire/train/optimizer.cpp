// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/optimizer.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "thinwire/core/error.h"

namespace thinwire {
namespace {

namespace optim = torch::optim;
using Made = std::unique_ptr<optim::Optimizer>;

double in_range(const char* what, double value, double least, double most) {
  if (!(value >= least && value <= most))
    throw ConfigError(fmt::format("{} must be in [{}, {}], got {}", what, least, most, value));
  return value;
}

Made make_sgd(SpecReader& reader, std::vector<at::Tensor> parameters) {
  optim::SGDOptions options(0);
  options.momentum(in_range("sgd: momentum", reader.number("momentum", 0.9), 0, 1));
  options.nesterov(reader.flag("nesterov", false));
  options.weight_decay(in_range("sgd: weight_decay", reader.number("weight_decay", 0), 0, 1e3));
  if (options.nesterov() && options.momentum() == 0)
    throw ConfigError("sgd: nesterov needs a momentum above 0");
  return std::make_unique<optim::SGD>(std::move(parameters), options);
}

template <class Optimizer, class Options>
Made make_adam(SpecReader& reader, std::vector<at::Tensor> parameters, double decay) {
  Options options(0);
  options.betas({in_range("beta1", reader.number("beta1", 0.9), 0, 0.999999999),
                 in_range("beta2", reader.number("beta2", 0.999), 0, 0.999999999)});
  options.eps(in_range("eps", reader.number("eps", 1e-8), 1e-300, 1));
  options.weight_decay(in_range("weight_decay", reader.number("weight_decay", decay), 0, 1e3));
  return std::make_unique<Optimizer>(std::move(parameters), options);
}

/// One tensor of an optimizer's state, read and written through the same description.
struct StateField {
  const char* name;
  std::function<at::Tensor(optim::OptimizerParamState&)> get;
  std::function<void(optim::OptimizerParamState&, at::Tensor)> set;
};

template <class State>
std::vector<StateField> adam_fields() {
  return {{"exp_avg", [](auto& s) { return static_cast<State&>(s).exp_avg(); },
           [](auto& s, at::Tensor t) { static_cast<State&>(s).exp_avg(std::move(t)); }},
          {"exp_avg_sq", [](auto& s) { return static_cast<State&>(s).exp_avg_sq(); },
           [](auto& s, at::Tensor t) { static_cast<State&>(s).exp_avg_sq(std::move(t)); }},
          {"step", [](auto& s) { return at::full({1}, static_cast<State&>(s).step(), at::kLong); },
           [](auto& s, at::Tensor t) { static_cast<State&>(s).step(t.item<std::int64_t>()); }}};
}

std::vector<StateField> fields_of(const optim::Optimizer& optimizer) {
  if (dynamic_cast<const optim::SGD*>(&optimizer))
    return {{"momentum",
             [](auto& s) { return static_cast<optim::SGDParamState&>(s).momentum_buffer(); },
             [](auto& s, at::Tensor t) {
               static_cast<optim::SGDParamState&>(s).momentum_buffer(std::move(t));
             }}};
  if (dynamic_cast<const optim::AdamW*>(&optimizer)) return adam_fields<optim::AdamWParamState>();
  return adam_fields<optim::AdamParamState>();
}

std::unique_ptr<optim::OptimizerParamState> empty_state(const optim::Optimizer& optimizer) {
  if (dynamic_cast<const optim::SGD*>(&optimizer)) return std::make_unique<optim::SGDParamState>();
  if (dynamic_cast<const optim::AdamW*>(&optimizer))
    return std::make_unique<optim::AdamWParamState>();
  return std::make_unique<optim::AdamParamState>();
}

}  // namespace

const Registry<OptimizerFactory>& optimizers() {
  static const Registry<OptimizerFactory> registry = [] {
    Registry<OptimizerFactory> r("optimizer");
    r.add("sgd", make_sgd, "momentum=0.9, nesterov=false, weight_decay=0");
    r.add(
        "adam",
        [](SpecReader& reader, std::vector<at::Tensor> parameters) {
          return make_adam<optim::Adam, optim::AdamOptions>(reader, std::move(parameters), 0);
        },
        "beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0 (added to the gradient)");
    r.add(
        "adamw",
        [](SpecReader& reader, std::vector<at::Tensor> parameters) {
          return make_adam<optim::AdamW, optim::AdamWOptions>(reader, std::move(parameters), 0.01);
        },
        "beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01 (apart from the gradient)");
    return r;
  }();
  return registry;
}

NamedOptimizer::NamedOptimizer(const Spec& spec, NamedTensors parameters)
    : parameters_(std::move(parameters)) {
  const auto& entry = optimizers().find(spec.name);
  SpecReader reader(spec);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters_) tensors.push_back(tensor);
  optimizer_ = entry.make(reader, std::move(tensors));
  reader.finish();
}
NamedOptimizer::~NamedOptimizer() = default;

void NamedOptimizer::set_learning_rate(double rate) {
  for (auto& group : optimizer_->param_groups()) group.options().set_lr(rate);
}
void NamedOptimizer::step() { optimizer_->step(); }
void NamedOptimizer::zero_grad() { optimizer_->zero_grad(); }

NamedTensors NamedOptimizer::state() const {
  NamedTensors out;
  const auto fields = fields_of(*optimizer_);
  for (const auto& [name, parameter] : parameters_) {
    const auto found = optimizer_->state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer_->state().end()) continue;
    for (const auto& field : fields)
      if (const auto tensor = field.get(*found->second); tensor.defined())
        out.emplace_back(name + "/" + field.name, tensor);
  }
  return out;
}

void NamedOptimizer::load_state(const NamedTensors& state) {
  const auto fields = fields_of(*optimizer_);
  std::size_t used = 0;
  optimizer_->state().clear();
  for (const auto& [name, parameter] : parameters_) {
    auto own = empty_state(*optimizer_);
    std::size_t found = 0;
    for (const auto& field : fields)
      for (const auto& [key, tensor] : state) {
        if (key != name + "/" + field.name) continue;
        const bool count = std::string_view(field.name) == "step";
        if (count ? tensor.numel() != 1 || tensor.scalar_type() != at::kLong
                  : tensor.sizes() != parameter.sizes() ||
                        tensor.scalar_type() != parameter.scalar_type())
          throw DataError(fmt::format("optimizer state '{}' does not fit its parameter", key));
        field.set(*own, tensor.clone());
        ++found;
      }
    if (found != 0 && found != fields.size())
      throw DataError(fmt::format("optimizer state of '{}' is not whole", name));
    if (found) optimizer_->state()[parameter.unsafeGetTensorImpl()] = std::move(own);
    used += found;
  }
  if (used != state.size())
    throw DataError(
        fmt::format("optimizer state has {} tensors, {} of them belong to this "
                    "optimizer and model",
                    state.size(), used));
}

double clip_gradients(const NamedTensors& parameters, double most) {
  double squares = 0;
  for (const auto& [name, parameter] : parameters)
    if (parameter.grad().defined()) {
      const double norm = parameter.grad().norm().item<double>();
      squares += norm * norm;
    }
  const double norm = std::sqrt(squares);
  // As torch's clip_grad_norm_: the same small term, so that a zero norm divides by something.
  const double scale = most / (norm + 1e-6);
  if (scale < 1)
    for (const auto& [name, parameter] : parameters)
      if (parameter.grad().defined()) parameter.grad().mul_(scale);
  return norm;
}

}  // namespace thinwire
