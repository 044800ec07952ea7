// SPDX-License-Identifier: Apache-2.0
// What a training strategy keeps and sends, to the byte: the table of costs of Ovi, "Performance
// Characterization of Distributed Deep Learning Strategies", 2025 (arXiv 2505.12832), for Adam with
// half-precision weights and gradients: 2 + 2 + 12 bytes a parameter.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/core/types.h"

namespace thinwire {

/// Bytes a parameter: of weights, of gradients, and of what the optimizer keeps (its own full
/// precision weights among it).
struct StateBytes {
  Bytes weight = 2, gradient = 2, optimizer = 12;
};
struct StrategyCost {
  Bytes worker_state = 0;  ///< of weights, gradients and optimizer; of the rank that holds most
  Bytes worker_sent = 0;   ///< in a step; of the rank that sends most. Pulls from a server count
                           ///< where they arrive, so that 2 P is push and pull
  Bytes server_state = 0;  ///< of each server; 0: there is none
  Bytes server_sent = 0;   ///< received and sent by each server in a step
};
/// "ddp", "zero1", "zero2", "zero3", "ps_sync", "ps_async"; `largest_unit`: parameters of the
/// largest layer that zero3 gathers; `servers`: of ps. Shards are of equal elements, the last
/// padded. ConfigError for other names, and numbers out of range.
StrategyCost strategy_cost(std::string_view strategy, std::int64_t parameters, std::int64_t ranks,
                           std::int64_t servers = 1, std::int64_t largest_unit = 0,
                           const StateBytes& bytes = {});
const std::vector<std::string>& costed_strategies();

/// The least speed-up of a step that splitting a model over `devices` devices must give, so that n
/// such workers reach the accuracy sooner than devices x n workers of one device do (Pal and
/// others, 2019, arXiv 1907.13257): efficiency of n and of devices x n workers, and the epochs that
/// their global batches need. ConfigError for numbers that are not above 0.
double least_model_speedup(double devices, double efficiency, double efficiency_of_all,
                           double epochs, double epochs_of_all);

}  // namespace thinwire
