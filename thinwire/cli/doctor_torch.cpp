// SPDX-License-Identifier: Apache-2.0
// What `thinwire doctor` says about the torch in this build.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <regex>

#include "thinwire/cli/doctor.h"

namespace thinwire::cli {

Json torch_versions() {
  Json json = {{"torch", TORCH_VERSION}, {"threads", at::get_num_threads()}};
  const std::string config = at::show_config();
  std::smatch match;
  if (std::regex_search(config, match, std::regex("Math Kernel Library Version (\\S+?)[ -]")))
    json["blas"] = "MKL " + match[1].str();
  else if (std::regex_search(config, match, std::regex("BLAS_INFO=(\\w+)")))
    json["blas"] = match[1].str();
  if (std::regex_search(config, match, std::regex("CPU capability usage: (\\w+)")))
    json["instructions"] = match[1].str();
  return json;
}

}  // namespace thinwire::cli
