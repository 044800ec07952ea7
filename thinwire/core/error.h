// SPDX-License-Identifier: Apache-2.0
// Errors a caller can meet. docs/errors.md says which to expect where.
#pragma once
#include <stdexcept>
#include <string>

namespace thinwire {

/// Base of all errors of this library. The text says what was written, the rule and the value.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the user wrote is wrong: an option, a file, ranks that disagree. Thrown on all ranks before
/// the first message.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A peer or the transport failed. The group is dead afterwards and must be rebuilt.
class CommError : public Error {
 public:
  using Error::Error;
};

/// Bytes or a file are malformed.
class DataError : public Error {
 public:
  using Error::Error;
};

/// This transport, build or input kind cannot do what was asked.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void assertion_failed(const char* expression, const std::string& values,
                                   const char* file, int line);

}  // namespace thinwire

/// Marks our own bugs, never bad input; prints both sides. TW_ASSERT(a, ==, b)
#define TW_ASSERT(a, op, b)                                                                        \
  do {                                                                                             \
    if (!((a)op(b)))                                                                               \
      ::thinwire::assertion_failed(                                                                \
          #a " " #op " " #b, std::to_string(a) + " and " + std::to_string(b), __FILE__, __LINE__); \
  } while (false)
