// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/data_parallel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/copy.h>
#include <fmt/format.h>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/core/error.h"

namespace thinwire {

void average(const at::Tensor& tensor, Comm& comm) {
  const at::NoGradGuard no_grad;
  const auto dtype = dtype_of(tensor.scalar_type());
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided || !dtype)
    throw UnsupportedError(
        fmt::format("average: the tensor must be dense and on the host, got {} on {}",
                    c10::toString(tensor.scalar_type()), tensor.device().str()));
  const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  comm.all_reduce({}, {dense.data_ptr(), dense.numel(), *dtype, -1}, Combine::mean).wait();
  if (!dense.is_same(tensor)) tensor.copy_(dense);
}

namespace data_parallel_detail {

std::vector<NamedTensor> parameters_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> out;
  for (const auto& item : module.named_parameters()) out.push_back({item.key(), item.value()});
  return out;
}

std::vector<NamedTensor> buffers_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> out;
  for (const auto& item : module.named_buffers()) out.push_back({item.key(), item.value()});
  return out;
}

bool grad_enabled() { return at::GradMode::is_enabled(); }

}  // namespace data_parallel_detail

}  // namespace thinwire
