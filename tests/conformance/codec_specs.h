// SPDX-License-Identifier: Apache-2.0
// The specs with which codecs are tested: every registered codec, with every value of each option.
#pragma once
#include <string>
#include <vector>

namespace thinwire {

std::vector<std::string> codec_specs();

}  // namespace thinwire
