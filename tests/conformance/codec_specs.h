// SPDX-License-Identifier: Apache-2.0
// The specs with which codecs are tested: every registered codec, with one or more values of its
// options.
#pragma once
#include <string>
#include <vector>

namespace thinwire {

std::vector<std::string> codec_specs();

}  // namespace thinwire
