// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/python_model.h"

#include <filesystem>
#include <utility>

#include "thinwire/core/error.h"
#include "thinwire/core/spec.h"

namespace thinwire {
namespace {

PythonModelFn& installed() {
  static PythonModelFn make;
  return make;
}

}  // namespace

std::string model_spec(std::string_view text) {
  const auto colon = text.find(".py:");
  if (colon == std::string_view::npos || text.find('{') < colon) return std::string(text);
  Spec spec = parse_spec(text.substr(colon + 4));
  spec.params["class"] = std::exchange(spec.name, "python");
  const std::string file(text.substr(0, colon + 3));
  spec.params["file"] = std::filesystem::absolute(file).string();
  std::string made = to_string(spec);
  parse_spec(made);  // a path may hold what a spec cannot
  return made;
}

PythonModelFn on_python_model(PythonModelFn make) {
  return std::exchange(installed(), std::move(make));
}
const PythonModelFn& python_model() { return installed(); }

}  // namespace thinwire
