// SPDX-License-Identifier: Apache-2.0
// The autograd side of data parallelism: who is told when a gradient has arrived and when a
// backward ends.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace thinwire {

/// Is told what happens in a backward. Calls come from the thread that runs the backward and may
/// throw; what they throw comes out of backward().
class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  /// A contribution to parameter `index` has been added to its .grad, after the user's own hooks.
  /// `added` is what was added, undefined for a visit without a gradient (recomputed segments cause
  /// them); where it was the first, .grad may share its memory.
  virtual void contribution(int index, const at::Tensor& added) = 0;
  /// A marked output has received its gradient: a backward through the module is running.
  virtual void reached() = 0;
  /// The end of a backward that call_at_end() was called in; `nested`: it ran inside another one.
  virtual void ended(bool nested) = 0;
};

/// One hook a parameter, on its gradient accumulator, where it lives beside hooks of the user's. A
/// parameter that is frozen at the time gets none. Removed by the destructor.
class ParameterHooks {
 public:
  ParameterHooks(std::span<const at::Tensor> parameters,
                 const std::weak_ptr<BackwardListener>& listener);
  ~ParameterHooks();
  ParameterHooks(const ParameterHooks&) = delete;
  ParameterHooks& operator=(const ParameterHooks&) = delete;
  /// Whether `parameter` still has the accumulator of then (a change of dtype, or freezing, makes
  /// another).
  bool current(int index, const at::Tensor& parameter) const;

 private:
  struct Installed;
  std::vector<Installed> installed_;
};

/// Whether nothing else refers to the memory of `grad`, a parameter's .grad, in a call of
/// contribution() with `added`. Two gradients may share memory, as views of one result do.
bool owns_its_memory(const at::Tensor& grad, const at::Tensor& added);

/// Inside a backward: its number, unique in the process. Outside: -1.
int backward_id();
/// Inside a backward: `listener.ended` is called when it ends. The listener outlives the backward.
void call_at_end(BackwardListener& listener);

/// The number of a listener in mark(), once for its life.
std::int64_t number_of(const std::weak_ptr<BackwardListener>& listener);

/// Makes the backward through any of `outputs` known to the listener even where it reaches no
/// parameter. Outputs are marked in place; only where none of them needs a gradient, the first that
/// can is replaced by an alias that does.
void mark(std::span<at::Tensor* const> outputs, std::int64_t listener);

}  // namespace thinwire
