// SPDX-License-Identifier: Apache-2.0
// A plan as a tree of JSON values with every field written out: what files, digests and differences
// are made of.
#pragma once
#include "thinwire/core/json.h"
#include "thinwire/plan/plan.h"

namespace thinwire {
Json plan_tree(const Plan& plan);
}
