// SPDX-License-Identifier: Apache-2.0
// Trains a module of one's own on two ranks or more. Every rank runs this program;
// examples/README.md shows how.
#include <torch/torch.h>

#include <cstdio>

#include "thinwire/train/data_parallel.h"

// Any torch::nn::Module will do, and any arguments of its forward.
struct NetImpl : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(2, 32));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(32, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));

  torch::Tensor forward(const torch::Tensor& x) { return out(hidden(in(x).tanh()).tanh()); }
};
TORCH_MODULE(Net);

// `count` points on two spirals, and which of the two each lies on.
std::pair<torch::Tensor, torch::Tensor> spirals(int count) {
  const auto label = torch::arange(count) % 2;
  const auto angle = torch::rand(count) * 6 + 1;
  const auto phase = angle + label * 3.14159;
  return {torch::stack({angle * phase.cos(), angle * phase.sin()}, 1) / 7, label};
}

int main() {
  auto context = thinwire::init();  // finds rank and size in the environment of the launcher
  thinwire::DataParallel model(Net(), context.comm());
  torch::optim::Adam optimizer(model.parameters(), 0.01);

  torch::manual_seed(1 + context.rank());  // other points on every rank
  for (int step = 1; step <= 400; ++step) {
    const auto [x, y] = spirals(64);
    optimizer.zero_grad();
    const auto loss = torch::cross_entropy_loss(model(x), y);
    loss.backward();  // the gradients are averaged over all ranks when this returns
    optimizer.step();
    if (context.rank() == 0 && step % 100 == 0)
      std::printf("step %d, loss %.3f\n", step, loss.item<float>());
  }

  const auto [x, y] = spirals(1000);
  const auto right = (model(x).argmax(1) == y).to(torch::kFloat).mean().item<float>();
  std::printf("rank %d of %d: accuracy %.3f\n", context.rank(), context.size(), right);
}
