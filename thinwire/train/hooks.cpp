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

#include <mutex>

#include "thinwire/train/backward_error.h"

namespace thinwire {
namespace ag = torch::autograd;
namespace {

std::mutex error_mutex;
BackwardErrorFn error_fn;

/// What autograd is to see of `call`'s errors.
template <class Call>
void inside_backward(Call call) {
  try {
    call();
  } catch (...) {
    BackwardErrorFn fn;
    {
      const std::lock_guard lock(error_mutex);
      fn = error_fn;
    }
    if (fn) fn(std::current_exception());
    throw;
  }
}

/// std::shared_ptr<Node> up to torch 2.12, an intrusive pointer since.
using NodePtr = decltype(ag::impl::grad_accumulator(std::declval<const at::Tensor&>()));

class AccumulatedHook : public ag::FunctionPostHook {
 public:
  AccumulatedHook(int index, std::weak_ptr<BackwardListener> listener)
      : index_(index), listener_(std::move(listener)) {}
  ag::variable_list operator()(const ag::variable_list& outputs,
                               const ag::variable_list& inputs) override {
    if (const auto listener = listener_.lock())
      inside_backward(
          [&] { listener->contribution(index_, inputs.empty() ? at::Tensor() : inputs[0]); });
    return outputs;
  }

 private:
  int index_;
  std::weak_ptr<BackwardListener> listener_;
};

/// Listeners by number. A hook that holds no more than a number lies inside its std::function, so
/// that marking an output allocates nothing of ours; a number is never given twice.
class Listeners {
 public:
  std::int64_t add(std::weak_ptr<BackwardListener> listener) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(listener));
    return static_cast<std::int64_t>(all_.size()) - 1;
  }
  std::shared_ptr<BackwardListener> find(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    return all_[static_cast<std::size_t>(number)].lock();
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<BackwardListener>> all_;
};

Listeners& listeners() {
  static auto* const all = new Listeners;  // outputs may outlive every other static
  return *all;
}

/// Not for autograd::grad, which adds to no .grad: it names the inputs it wants, so its list of
/// nodes is not empty.
void tell(std::int64_t number) {
  const auto* chosen = ag::get_current_graph_task_exec_info();
  if (!chosen || !chosen->empty()) return;
  if (const auto listener = listeners().find(number)) inside_backward([&] { listener->reached(); });
}

/// Stands behind an output that has no history of its own, so that a backward through it is seen. A
/// copy, not a view: a view made here could not be changed in place by the user.
struct Marker : ag::Function<Marker> {
  static at::Tensor forward(ag::AutogradContext* context, const at::Tensor& output,
                            const at::Tensor&, std::int64_t listener) {
    context->saved_data["listener"] = listener;
    return output.clone();
  }
  static ag::variable_list backward(ag::AutogradContext* context, const ag::variable_list& grads) {
    tell(context->saved_data["listener"].toInt());
    return {grads[0], at::Tensor(), at::Tensor()};
  }
};

/// What `tensor` is a view of; null where it is none.
const at::Tensor* base_of(const at::Tensor& tensor) {
  const auto* meta = ag::impl::get_view_autograd_meta(tensor);
  return meta && meta->has_bw_view() ? &meta->get_backward_view().base_ : nullptr;
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

// Autograd takes a first gradient over as a second tensor on the same memory. Where it is a view,
// as that of a transposed weight is, both remember the result they are views of: one more
// reference, as long as those two are all that hold it.
bool owns_its_memory(const at::Tensor& grad, const at::Tensor& added) {
  if (!grad.has_storage()) return false;
  std::size_t tensors = 1;
  const bool shared =
      added.has_storage() && !added.is_same(grad) && added.storage().is_alias_of(grad.storage());
  if (shared) ++tensors;
  const at::Tensor* base = base_of(grad);
  if (!base && shared) base = base_of(added);
  if (base && !base->is_same(grad) && !base->is_same(added)) {
    const auto is_base_of = [&](const at::Tensor& view) {
      const at::Tensor* other = base_of(view);
      return other && other->is_same(*base);
    };
    const std::size_t views = (is_base_of(grad) ? 1 : 0) + (shared && is_base_of(added) ? 1 : 0);
    if (base->use_count() != views) return false;
    ++tensors;
  }
  return grad.storage().use_count() == tensors;
}

BackwardErrorFn on_backward_error(BackwardErrorFn fn) {
  const std::lock_guard lock(error_mutex);
  std::swap(error_fn, fn);
  return fn;
}

int backward_id() { return ag::get_current_graph_task_id(); }

void call_at_end(BackwardListener& listener) {
  ag::Engine::get_default_engine().queue_callback([&listener] {
    inside_backward([&] { listener.ended(static_cast<bool>(ag::get_current_node())); });
  });
}

std::int64_t number_of(const std::weak_ptr<BackwardListener>& listener) {
  return listeners().add(listener);
}

void mark(std::span<at::Tensor* const> outputs, std::int64_t listener) {
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
  if (!marked && without_history)
    *without_history = Marker::apply(*without_history, at::empty({0}).requires_grad_(), listener);
}

}  // namespace thinwire
