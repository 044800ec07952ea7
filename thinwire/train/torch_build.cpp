// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/torch_build.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <regex>

#include "thinwire/core/text.h"

namespace thinwire {

Json torch_versions() {
  Json versions = {{"torch", TORCH_VERSION}};
  std::smatch match;
  // Lines such as "  - Intel(R) MKL-DNN v3.7.1 (Git Hash ...)".
  for (const std::string& line : split(at::show_config(), '\n')) {
    if (std::regex_search(line, match, std::regex("Math Kernel Library Version (\\S+?)[ -]")))
      versions["blas"] = "MKL " + match[1].str();
    else if (!versions.contains("blas") &&
             std::regex_search(line, match, std::regex("BLAS_INFO=(\\w+)")))
      versions["blas"] = match[1].str();
    if (std::regex_search(line, match, std::regex("MKL-DNN v(\\S+)")))
      versions["mkldnn"] = match[1].str();
    if (std::regex_search(line, match, std::regex("OpenMP (\\S+)")))
      versions["openmp"] = match[1].str();
    if (std::regex_search(line, match, std::regex("CPU capability usage: (\\w+)")))
      versions["instructions"] = match[1].str();
  }
  return versions;
}

void set_compute_threads(std::int64_t threads) { at::set_num_threads(static_cast<int>(threads)); }
std::int64_t compute_threads() { return at::get_num_threads(); }

}  // namespace thinwire
