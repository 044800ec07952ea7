// SPDX-License-Identifier: Apache-2.0
// A checkpoint is a folder: model.safetensors (parameters and buffers under the plain module's
// names, loadable anywhere), optimizer.safetensors, form.safetensors (what memories and codecs of
// all ranks keep, where they keep anything) and state.json. It appears whole or not at all: written
// under another name, synced, renamed. `last` and `best` beside it are links.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "thinwire/core/json.h"
#include "thinwire/core/types.h"
#include "thinwire/train/optimizer.h"

namespace thinwire {

struct CheckpointState {
  std::int64_t step = 0;     ///< steps done; with the seed this is the position of all randomness
  std::int64_t samples = 0;  ///< samples seen by all ranks
  int ranks = 1;
  Seconds train_s = 0;
  double best_accuracy = -1;
  std::int64_t best_step = -1;
  Json config = Json::object();  ///< effective configuration
};
Json to_json(const CheckpointState& state);
CheckpointState checkpoint_state_from_json(const Json& json, std::string_view source);

/// Writes `folder`/step-N and the link `last`, moves `best` there if `best`, and removes all but
/// the newest `keep` (what `best` points to stays). `model` holds parameters and buffers. Returns
/// the path. An existing step-N is replaced. ConfigError where the folder cannot be written.
std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            const NamedTensors& model, const NamedTensors& optimizer,
                            const NamedTensors& form, std::int64_t keep, bool best);
/// What a checkpoint has of forms; empty if it has nothing.
NamedTensors read_form_state(const std::string& checkpoint);
/// Points `best` at an existing checkpoint of this step.
void mark_best(const std::string& folder, std::int64_t step);

/// The checkpoint that `path` means: itself, or of a run folder or a folder of checkpoints the one
/// named `prefer` ("best" or "last"; the other where it is missing). ConfigError if there is none.
std::string find_checkpoint(const std::string& path, const std::string& prefer);
CheckpointState read_checkpoint_state(const std::string& checkpoint);
/// Tensors of a safetensors file; DataError where it is malformed.
NamedTensors read_tensors(const std::string& path);
void write_tensors(const std::string& path, const NamedTensors& tensors,
                   const std::map<std::string, std::string>& metadata);
/// Copies values into `into`, by name. DataError that names the first tensor that is missing, too
/// much or of another shape or dtype; nothing is changed then.
void load_tensors(const NamedTensors& into, const NamedTensors& from, const std::string& source);

}  // namespace thinwire
