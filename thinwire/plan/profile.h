// SPDX-License-Identifier: Apache-2.0
// Measured inputs of every plan: what a model's layers cost and how large they are. A JSON file a
// person can edit.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/core/types.h"

namespace thinwire {

struct TensorDesc {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  bool operator==(const TensorDesc&) const = default;
};
std::int64_t elements(
    const TensorDesc& tensor);  ///< product of the shape; 1 for a scalar, -1 if no tensor has it
Bytes dense_bytes(const TensorDesc& tensor);

struct CodecSpeed {
  double encode_bytes_per_s = 0, decode_bytes_per_s = 0;  ///< of dense input
};

/// Tensors stand in registration (input-side first) order; backward runs from the last to the
/// first.
struct Profile {
  std::vector<TensorDesc> params;
  std::vector<Seconds> forward_s, backward_s;  ///< one a tensor
  Seconds update_s = 0;                        ///< the optimizer, and what else ends a step
  std::map<std::string, CodecSpeed> codecs;    ///< by canonical spec
  bool operator==(const Profile&) const;
};
std::string to_json(const Profile& profile);
Profile profile_from_json(std::string_view text, std::string_view source = "profile");
void validate(const Profile& profile);  ///< ConfigError: no tensors, sizes that differ, negative or
                                        ///< non-finite times

/// When the gradient of each tensor is ready, seconds after the step began (forward, then backward
/// last to first).
std::vector<Seconds> ready_times(const Profile& profile);

}  // namespace thinwire
