// SPDX-License-Identifier: Apache-2.0
// Models that are classes of a Python file, "python{file=net.py,class=Net,...}": the Python front
// makes them; a program without it can name but not build them. No torch in this header.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace thinwire {

class Network;
struct InputForm;

/// "net.py:Net{width=32}" as a spec of this kind, with the file's whole path; other text unchanged.
std::string model_spec(std::string_view text);

/// Builds the model that file=, class= and further arguments name; with parameters drawn from
/// torch's default generator. ConfigError.
using PythonModelFn = std::function<std::shared_ptr<Network>(
    const std::map<std::string, std::string>& arguments, const InputForm& form)>;
/// Installs it (process-wide) and returns the one before.
PythonModelFn on_python_model(PythonModelFn make);
const PythonModelFn& python_model();

}  // namespace thinwire
