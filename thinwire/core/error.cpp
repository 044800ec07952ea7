// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/error.h"

namespace thinwire {

void assertion_failed(const char* expression, const std::string& values, const char* file,
                      int line) {
  throw std::logic_error(std::string("internal error: ") + expression + " does not hold for " +
                         values + " (" + file + ":" + std::to_string(line) + ")");
}

}  // namespace thinwire
