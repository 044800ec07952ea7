// SPDX-License-Identifier: Apache-2.0
// What bench/micro/codecs times.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace thinwire::bench {

/// One thing timed. Buffers are its own and are kept, as a codec keeps them.
struct Case {
  std::string name;
  double target = 0;             ///< multiple of memcpy's time that it may take; 0: none is stated
  double reads = 0, writes = 0;  ///< tensors of f32 read from memory and written to it
  std::string why;               ///< why no fewer passes
  std::function<void()> run;
  std::function<void()> check;  ///< throws Error unless `run` gives what the plain loops do
};

/// All cases, for a tensor of `elements` elements.
std::vector<Case> make_cases(std::int64_t elements);
/// Of whole forms, through the interfaces that an exchange uses; in builds with torch.
std::vector<Case> make_chain_cases(std::int64_t elements);

}  // namespace thinwire::bench
