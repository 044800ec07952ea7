// SPDX-License-Identifier: Apache-2.0
// Data parallelism for any torch::nn::Module:
//
//   thinwire::Context context = thinwire::init();               // who and where this rank is, from
//   its environment thinwire::DataParallel model(torch::nn::Linear(4, 2), context.comm()); auto
//   loss = model(x).pow(2).mean(); loss.backward();                                            //
//   gradients are averaged when this returns optimizer.step();
#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/train/context.h"
#include "thinwire/train/gradient_sync.h"

namespace thinwire {

/// Collective, blocking, in place: the mean over ranks. `tensor` is dense and on the host.
void average(const at::Tensor& tensor, Comm& comm);

namespace data_parallel_detail {

std::vector<NamedTensor> parameters_of(const torch::nn::Module& module);
std::vector<NamedTensor> buffers_of(const torch::nn::Module& module);
bool grad_enabled();

inline void collect(at::Tensor& output, std::vector<at::Tensor*>& out) { out.push_back(&output); }
template <class T>
void collect(std::vector<T>& outputs, std::vector<at::Tensor*>& out) {
  for (auto& output : outputs) collect(output, out);
}
template <class... T>
void collect(std::tuple<T...>& outputs, std::vector<at::Tensor*>& out) {
  std::apply([&out](auto&... each) { (collect(each, out), ...); }, outputs);
}
template <class A, class B>
void collect(std::pair<A, B>& outputs, std::vector<at::Tensor*>& out) {
  collect(outputs.first, out);
  collect(outputs.second, out);
}
/// Other results (numbers, a user's own struct) carry no mark: end such a step with finish() if its
/// loss may reach no parameter.
template <class T>
void collect(T&, std::vector<at::Tensor*>&) {}

template <class M>
auto impl_of(const M& module) {
  if constexpr (requires { module.ptr(); })
    return module.ptr();
  else
    return module;
}

}  // namespace data_parallel_detail

/// M: a torch::nn module holder (torch::nn::Linear, a TORCH_MODULE) or a std::shared_ptr to a
/// module.
template <class M>
class DataParallel {
 public:
  /// Collective; see GradientSync. `world` outlives the wrapper.
  DataParallel(M module, Comm& world, SyncOptions options = {})
      : module_(std::move(module)),
        sync_(data_parallel_detail::parameters_of(*data_parallel_detail::impl_of(module_)),
              data_parallel_detail::buffers_of(*data_parallel_detail::impl_of(module_)), world,
              std::move(options)) {}

  /// The module's own forward, with any arguments and any result.
  template <class... Args>
  auto forward(Args&&... args) {
    const bool trains = module_->is_training() && data_parallel_detail::grad_enabled();
    if (trains) sync_.begin();
    auto output = module_->forward(std::forward<Args>(args)...);
    if (trains) {
      outputs_.clear();
      data_parallel_detail::collect(output, outputs_);
      sync_.mark(outputs_);
    }
    return output;
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  M& module() { return module_; }
  auto operator->() const { return data_parallel_detail::impl_of(module_); }
  std::vector<at::Tensor> parameters() const { return module_->parameters(); }
  GradientSync& sync() { return sync_; }
  /// While the guard lives, backwards only add up.
  NoSync no_sync() { return NoSync(sync_); }
  const StepStats& last_step() const { return sync_.last_step(); }

 private:
  M module_;
  GradientSync sync_;
  std::vector<at::Tensor*> outputs_;
};

}  // namespace thinwire
