// SPDX-License-Identifier: Apache-2.0
// Where data sets (no torch) and the trainer (torch) meet: what a set looks like to a model, a
// batch as tensors, an evaluation on the test set.
#pragma once
#include "thinwire/train/data.h"
#include "thinwire/train/loader.h"
#include "thinwire/train/trainer.h"

namespace thinwire {

InputForm form_of(const Dataset& data);
/// Tensors that share the batch's memory: they live as long as it does.
StepInput tensors_of(const Dataset& data, const Batch& batch, int ranks);
/// Collective: each rank takes its part of the test set, cut so that no sample is counted twice.
/// `batch_size` is that of one rank; it does not change the result.
Evaluation evaluate(Trainer& trainer, const Dataset& data, std::int64_t batch_size);

}  // namespace thinwire
