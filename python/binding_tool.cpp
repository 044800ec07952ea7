// SPDX-License-Identifier: Apache-2.0
// The command-line tool inside Python, and a Python module as a network that its trainer can train.
#include <torch/csrc/utils/pybind.h>

#include "thinwire/cli/tool.h"
#include "thinwire/comm/handle.h"
#include "thinwire/core/error.h"
#include "thinwire/train/backward_error.h"
#include "thinwire/train/models.h"
#include "thinwire/train/python_model.h"

namespace py = pybind11;

namespace thinwire {
namespace {

py::object from_user_model(const char* name) {
  return py::module_::import("thinwire.user_model").attr(name);
}

/// What went wrong in the user's code, in one sentence. The interpreter is held.
std::string sentence_of(const py::error_already_set& error) {
  return from_user_model("sentence_of")(error.value()).cast<std::string>();
}

/// Parameters, persistent buffers and names of a Python module, in a tree of the same shape.
void mirror(torch::nn::Module& into, const py::handle& module) {
  for (const auto& [name, value] : module.attr("_parameters").cast<py::dict>())
    if (!value.is_none()) {
      const auto parameter = value.cast<at::Tensor>();
      into.register_parameter(name.cast<std::string>(), parameter, parameter.requires_grad());
    }
  const auto passing = module.attr("_non_persistent_buffers_set");
  for (const auto& [name, value] : module.attr("_buffers").cast<py::dict>())
    if (!value.is_none() && !passing.contains(name))
      into.register_buffer(name.cast<std::string>(), value.cast<at::Tensor>());
  for (const auto& [name, value] : module.attr("_modules").cast<py::dict>())
    if (!value.is_none()) {
      auto child = std::make_shared<torch::nn::Module>();
      mirror(*child, value);
      into.register_module(name.cast<std::string>(), child);
    }
}

class PythonNetwork final : public Network {
 public:
  explicit PythonNetwork(py::object module) : module_(std::move(module)) {
    mirror(*this, module_);
    torch::nn::Module::train(module_.attr("training").cast<bool>());
  }
  ~PythonNetwork() override {
    const py::gil_scoped_acquire gil;
    module_ = py::object();
  }
  at::Tensor forward(const at::Tensor& input) override {
    const py::gil_scoped_acquire gil;
    return told([&] { return module_(input).cast<at::Tensor>(); });
  }
  void train(bool on) override {
    if (on == is_training()) return;
    torch::nn::Module::train(on);
    const py::gil_scoped_acquire gil;
    told([&] { module_.attr("train")(on); });
  }

 private:
  template <class Call>
  auto told(Call call) -> decltype(call()) {
    try {
      return call();
    } catch (const py::error_already_set& error) {
      throw Error("model: " + sentence_of(error));
    } catch (const py::cast_error&) {
      throw Error("model: forward must return one tensor of logits");
    }
  }
  py::object module_;
};

std::shared_ptr<Network> build(const std::map<std::string, std::string>& arguments,
                               const InputForm& form) {
  const py::gil_scoped_acquire gil;
  const py::dict shape =
      form.text ? py::dict(py::arg("context") = form.context, py::arg("classes") = form.classes)
                : py::dict(py::arg("channels") = form.channels, py::arg("height") = form.height,
                           py::arg("width") = form.width, py::arg("classes") = form.classes);
  try {
    return std::make_shared<PythonNetwork>(from_user_model("build")(arguments, shape));
  } catch (const py::error_already_set& error) {
    throw ConfigError("model: " + sentence_of(error));
  }
}

/// Inside the tool, errors and signals are the tool's own.
int run_tool(const cli::Words& words, const cli::Words& program) {
  const py::gil_scoped_release released;
  const BackwardErrorFn on_error = on_backward_error({});
  const InterruptFn on_interrupt = on_interrupt_check({});
  const int code = cli::run_tool(words, program);
  on_interrupt_check(on_interrupt);
  on_backward_error(on_error);
  return code;
}

}  // namespace

void bind_tool(py::module_& m) {
  on_python_model(build);
  m.def("run_tool", run_tool, py::arg("words"), py::arg("program"));
}

}  // namespace thinwire
