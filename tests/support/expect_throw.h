// SPDX-License-Identifier: Apache-2.0
// An exception is checked with its words: a test that only sees a type does not see a wrong
// sentence.
#pragma once
#include <gtest/gtest.h>

#include <string>

/// `statement` throws exactly a `type` whose text contains `words`.
#define TW_EXPECT_THROW(statement, type, words)                                  \
  do {                                                                           \
    try {                                                                        \
      statement;                                                                 \
      ADD_FAILURE() << "no exception; expected " #type " with: " << (words);     \
    } catch (const type& error) {                                                \
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos)        \
          << "the text is: " << error.what() << "\nexpected in it: " << (words); \
    } catch (const std::exception& error) {                                      \
      ADD_FAILURE() << "another exception than " #type ": " << error.what();     \
    }                                                                            \
  } while (false)
