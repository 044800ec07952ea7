// SPDX-License-Identifier: Apache-2.0
#include "thinwire/cli/tool.h"

int main(int argc, char** argv) { return thinwire::cli::run_tool({argv, argv + argc}); }
