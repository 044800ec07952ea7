// SPDX-License-Identifier: Apache-2.0
// Runs the built tool as a person would, and gives back what it said.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace thinwire::test {

struct Said {
  int code = 0;      ///< exit code; 128 + n after signal n
  std::string text;  ///< standard output, then standard error where `2>&1` asks for it
};

/// `thinwire ARGUMENTS`, through the shell, in the source folder.
inline Said tool(const std::string& arguments) {
  const std::string command = "cd '" TW_SOURCE_DIR "' && '" TW_TOOL "' " + arguments;
  Said out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) {
    ADD_FAILURE() << "cannot run " << command;
    return out;
  }
  std::array<char, 4096> block;
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), pipe))
    out.text.append(block.data(), n);
  const int status = ::pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

}  // namespace thinwire::test
