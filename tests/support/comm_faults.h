// SPDX-License-Identifier: Apache-2.0
// What tests of faults between ranks share.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/support/watchdog.h"
#include "thinwire/comm/comm.h"

namespace thinwire::test {

inline Seconds seconds_since(Deadline start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline void expect_names(const std::string& text, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    EXPECT_NE(text.find(name), std::string::npos) << "'" << name << "' is not in: " << text;
}

inline Handle all_reduce_of(Comm& comm, std::vector<float>& data, MessageId id,
                            Combine op = Combine::sum) {
  return comm.all_reduce(id, {data.data(), static_cast<std::int64_t>(data.size()), DType::f32}, op);
}

/// Runs fn on every rank and gives the texts of the errors; every rank must have one, at most
/// timeout_s + 1 s later.
inline std::vector<std::string> fault_texts(std::vector<std::unique_ptr<Comm>>& comms,
                                            Seconds timeout_s,
                                            const std::function<void(Comm&)>& fn) {
  const auto start = Clock::now();
  const auto errors = errors_of_ranks(static_cast<int>(comms.size()), [&](Rank rank) {
    fn(*comms[static_cast<std::size_t>(rank)]);
  });
  EXPECT_LT(seconds_since(start), timeout_s + 1 + late_s());
  std::vector<std::string> out;
  for (const auto& error : errors) {
    EXPECT_TRUE(error);
    out.push_back(text_of(error));
  }
  return out;
}

}  // namespace thinwire::test
