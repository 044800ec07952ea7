// SPDX-License-Identifier: Apache-2.0
// write_sample_run FOLDER: makes a sample run in it and its report, for tests in Python and for
// looking at the page.
#include <cstdio>

#include "tests/report/sample_run.h"
#include "thinwire/report/html.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_sample_run FOLDER\n", stderr);
    return 2;
  }
  const std::string path = thinwire::test::write_sample_run(argv[1]);
  thinwire::write_report(path);
  std::puts(path.c_str());
}
