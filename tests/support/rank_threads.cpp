// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "tests/support/ranks.h"
#include "thinwire/core/error.h"

namespace thinwire::test {

std::vector<std::exception_ptr> errors_of_ranks(int n, const std::function<void(Rank)>& fn) {
  std::vector<std::exception_ptr> errors(n);
  std::vector<std::thread> threads;
  for (Rank r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      try {
        fn(r);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

void ranks_as_threads(int n, const std::function<void(Rank)>& fn) {
  for (const auto& error : errors_of_ranks(n, fn))
    if (error) std::rethrow_exception(error);
}

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const ConfigError& e) {
    return std::string("ConfigError: ") + e.what();
  } catch (const CommError& e) {
    return std::string("CommError: ") + e.what();
  } catch (const DataError& e) {
    return std::string("DataError: ") + e.what();
  } catch (const UnsupportedError& e) {
    return std::string("UnsupportedError: ") + e.what();
  } catch (const std::exception& e) {
    return std::string("exception: ") + e.what();
  } catch (...) {
    return "unknown exception";
  }
}

}  // namespace thinwire::test
