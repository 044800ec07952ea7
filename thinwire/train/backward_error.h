// SPDX-License-Identifier: Apache-2.0
// How an error leaves a hook into autograd. No torch.
#pragma once
#include <exception>
#include <functional>

namespace thinwire {

/// Called with what a hook of ours throws inside a backward, before it enters autograd, which gives
/// Python the text of a C++ error but not its class: the Python front throws an error of its own
/// instead. Process-wide; returns the one before.
using BackwardErrorFn = std::function<void(const std::exception_ptr& error)>;
BackwardErrorFn on_backward_error(BackwardErrorFn fn);

}  // namespace thinwire
