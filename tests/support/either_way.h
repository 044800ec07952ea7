// SPDX-License-Identifier: Apache-2.0
// One body for ranks as threads over `local` and ranks as processes over `tcp`: what a test asks of
// ranks does not depend on where they live.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"

namespace thinwire::test {

enum class RanksAre { threads, processes };

using RankBody = std::function<void(Comm& world)>;

/// Runs `body` on n ranks and returns the text of what each threw ("CommError: ...", empty for
/// nothing). `timeout_s` is the group's deadline T; a rank whose error comes later than T + 1 s
/// after its start fails the test. `decorators`: for example "throttle{rate=8mbit}|".
///
/// processes: n processes of this program run the current test again up to the same call, the k-th
/// of the test, where each runs `body` for its rank and ends; other calls return empty texts there
/// at once. So a body may capture what the test has made by itself, but what it writes stays in its
/// process, and before a call the test must not leave where such texts are wrong (EXPECT, not
/// ASSERT). A failed expectation of a rank process is a failure here, with its output.
std::vector<std::string> run_ranks(RanksAre how, int n, const RankBody& body, double timeout_s = 2,
                                   const std::string& decorators = "");

}  // namespace thinwire::test
