// SPDX-License-Identifier: Apache-2.0
// The rows of thinwire list that a build with torch adds: a registry on the torch side is one line
// here.
#include "thinwire/cli/verbs.h"
#include "thinwire/codec/memory.h"
#include "thinwire/strategy/strategy.h"
#include "thinwire/train/data.h"
#include "thinwire/train/models.h"
#include "thinwire/train/optimizer.h"
#include "thinwire/train/schedule.h"

namespace thinwire::cli {

void append_torch_rows(std::vector<ListRow>& rows) {
  append_rows(rows, "memory", memories());
  append_rows(rows, "strategy", strategies());
  append_rows(rows, "model", models());
  append_rows(rows, "data", datasets());
  append_rows(rows, "optimizer", optimizers());
  append_rows(rows, "schedule", schedules());
}

}  // namespace thinwire::cli
