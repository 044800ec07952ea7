// SPDX-License-Identifier: Apache-2.0
// The rows of thinwire list that a build with torch adds: a registry on the torch side is one line
// here.
#include "thinwire/cli/verbs.h"
#include "thinwire/codec/codec.h"
#include "thinwire/codec/memory.h"
#include "thinwire/strategy/strategy.h"

namespace thinwire::cli {

void append_torch_rows(std::vector<ListRow>& rows) {
  append_rows(rows, "codec", codecs());
  append_rows(rows, "memory", memories());
  append_rows(rows, "strategy", strategies());
}

}  // namespace thinwire::cli
