// SPDX-License-Identifier: Apache-2.0
// A post hook on AccumulateGrad is called after the accumulation and after the parameter's own
// post-accumulate hook, which is a single slot (torch::autograd::impl::set_post_acc_grad_hooks)
// that we leave to the user.
#include "thinwire/train/hooks.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace thinwire {
namespace ag = torch::autograd;
namespace {

/// std::shared_ptr<Node> up to torch 2.12, an intrusive pointer since.
using NodePtr = decltype(ag::impl::grad_accumulator(std::declval<const at::Tensor&>()));

class AccumulatedHook : public ag::FunctionPostHook {
 public:
  AccumulatedHook(int index, std::weak_ptr<BackwardListener> listener)
      : index_(index), listener_(std::move(listener)) {}
  ag::variable_list operator()(const ag::variable_list& outputs,
                               const ag::variable_list& inputs) override {
    if (const auto listener = listener_.lock())
      listener->contribution(index_, !inputs.empty() && inputs[0].defined());
    return outputs;
  }

 private:
  int index_;
  std::weak_ptr<BackwardListener> listener_;
};

struct Held : torch::CustomClassHolder {
  explicit Held(std::weak_ptr<BackwardListener> l) : listener(std::move(l)) {}
  std::weak_ptr<BackwardListener> listener;
};

/// Not for autograd::grad, which adds to no .grad: it names the inputs it wants, so its list of
/// nodes is not empty.
void tell(const std::weak_ptr<BackwardListener>& weak) {
  const auto* chosen = ag::get_current_graph_task_exec_info();
  if (!chosen || !chosen->empty()) return;
  if (const auto listener = weak.lock()) listener->reached();
}

/// Stands behind an output that has no history of its own, so that a backward through it is seen. A
/// copy, not a view: a view made here could not be changed in place by the user.
struct Marker : ag::Function<Marker> {
  static at::Tensor forward(ag::AutogradContext* context, const at::Tensor& output,
                            const at::Tensor&, const c10::IValue& held) {
    context->saved_data["held"] = held;
    return output.clone();
  }
  static ag::variable_list backward(ag::AutogradContext* context, const ag::variable_list& grads) {
    const auto held = context->saved_data["held"].toCapsule();
    tell(static_cast<Held*>(held.get())->listener);
    return {grads[0], at::Tensor(), at::Tensor()};
  }
};

void replace_by_marker(at::Tensor& output, const std::weak_ptr<BackwardListener>& listener) {
  const at::Tensor needs_grad = at::empty({0}).requires_grad_();
  output = Marker::apply(output, needs_grad,
                         c10::IValue::make_capsule(c10::make_intrusive<Held>(listener)));
}

}  // namespace

struct ParameterHooks::Installed {
  NodePtr node;
  std::uintptr_t key = 0;
};

ParameterHooks::ParameterHooks(std::span<const at::Tensor> parameters,
                               const std::weak_ptr<BackwardListener>& listener) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Installed one;
    if (parameters[i].requires_grad()) {
      one.node = ag::impl::grad_accumulator(parameters[i]);
      one.key =
          one.node->add_post_hook(std::make_unique<AccumulatedHook>(static_cast<int>(i), listener));
    }
    installed_.push_back(std::move(one));
  }
}

ParameterHooks::~ParameterHooks() {
  for (auto& one : installed_)
    if (one.node) one.node->del_post_hook(one.key);
}

bool ParameterHooks::current(int index, const at::Tensor& parameter) const {
  const NodePtr& node = installed_[static_cast<std::size_t>(index)].node;
  if (!parameter.requires_grad()) return !node;
  return node && ag::impl::try_get_grad_accumulator(parameter) == node;
}

int backward_id() { return ag::get_current_graph_task_id(); }

void call_at_end(BackwardListener& listener) {
  ag::Engine::get_default_engine().queue_callback(
      [&listener] { listener.ended(static_cast<bool>(ag::get_current_node())); });
}

void mark(std::span<at::Tensor* const> outputs, const std::weak_ptr<BackwardListener>& listener) {
  at::Tensor* without_history = nullptr;
  bool marked = false;
  for (at::Tensor* output : outputs) {
    if (!output->defined()) continue;
    if (output->grad_fn()) {
      output->register_hook([listener](const at::Tensor&) { tell(listener); });
      marked = true;
    } else if (!without_history && (output->is_floating_point() || output->is_complex())) {
      without_history = output;
    }
  }
  if (!marked && without_history) replace_by_marker(*without_history, listener);
}

}  // namespace thinwire
