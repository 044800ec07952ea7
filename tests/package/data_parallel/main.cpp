// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include "thinwire/train/data_parallel.h"

int main() {
  auto context = thinwire::init();
  torch::manual_seed(0);
  thinwire::DataParallel model(torch::nn::Linear(4, 2), context.comm());
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  const auto x = torch::randn({3, 8, 4}), y = torch::randn({3, 8, 2});
  const auto share = 8 / context.size(), begin = context.rank() * share;
  for (int step = 0; step < 3; ++step) {
    const auto mine = [&](const auto& all) { return all[step].slice(0, begin, begin + share); };
    optimizer.zero_grad();
    torch::mse_loss(model(mine(x)), mine(y)).backward();
    optimizer.step();
  }
  const auto all = torch::cat({model.parameters()[0].flatten(), model.parameters()[1]});
  for (int i = 0; i < all.numel(); ++i) std::printf("%a ", all[i].item<float>());
}
