// SPDX-License-Identifier: Apache-2.0
// The binding: classes and errors of the C++ library as Python sees them. No logic beyond turning
// Ctrl-C into an interrupt of a wait. The pleasant surface is python/thinwire/*.py.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <array>
#include <memory>
#include <optional>
#include <thread>

#include "thinwire/comm/c10d.h"
#include "thinwire/comm/comm.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/core/notice.h"
#include "thinwire/core/text.h"
#include "thinwire/core/version.h"
#include "thinwire/train/backward_error.h"
#include "thinwire/train/bucket_sync.h"
#include "thinwire/train/data_parallel.h"
#include "thinwire/train/live_plan.h"

namespace py = pybind11;

namespace thinwire {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

/// JoinOptions with the launcher that they come from.
struct PyJoin {
  JoinOptions join;
  std::string source = "arguments";
};

PyJoin join_from_environment(Seconds timeout_s, const std::string& interface,
                             const std::string& run_id) {
  PyJoin out;
  if (const auto launch = launch_environment()) {
    out.join = launch->join;
    out.source = launch->source;
  } else {
    out.source = "alone";
  }
  if (timeout_s > 0) out.join.timeout_s = timeout_s;
  if (!interface.empty()) out.join.interface = interface;
  if (!run_id.empty()) out.join.run_id = run_id;
  return out;
}

Buffer flat(const at::Tensor& tensor, const char* what) {
  if (!tensor.device().is_cpu())
    throw UnsupportedError(std::string(what) + ": takes CPU tensors only");
  if (!tensor.is_contiguous())
    throw ConfigError(std::string(what) + ": the tensor must be contiguous");
  return {tensor.data_ptr(), tensor.numel() * static_cast<std::int64_t>(tensor.element_size()),
          DType::u8};
}

/// Ends what may wait for threads that need the interpreter: Gloo's hold tensors of Python's.
template <class T>
void drop(std::unique_ptr<T>& owned) {
  std::optional<py::gil_scoped_release> released;
  if (PyGILState_Check()) released.emplace();
  owned.reset();
}

/// A group as Python holds it. Counts of samples stated by `batches` apply to all models on it.
class PyContext {
 public:
  PyContext(const std::string& transport, const PyJoin& options)
      : comm_(make_comm(transport, options.join)) {}
  PyContext(const PyJoin& options, const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
            const c10::intrusive_ptr<c10d::Store>& store)
      : comm_(wrap_process_group(process_group, join_group(options.join), store)) {}

  ~PyContext() { drop(comm_); }

  Comm& comm() {
    if (!comm_) throw CommError("this group has been shut down");
    return *comm_;
  }
  int rank() { return comm().rank(); }
  int ranks() { return comm().size(); }
  std::string describe() { return comm().membership()->describe(); }
  void average(const at::Tensor& tensor) { thinwire::average(tensor, comm()); }
  void broadcast(const at::Tensor& tensor, Rank root) {
    comm().broadcast({-1, calls_++}, flat(tensor, "broadcast"), root).wait();
  }
  void barrier(const std::string& name) { comm().barrier(name); }
  std::vector<std::int64_t> gather_counts(std::int64_t own) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(ranks()));
    comm()
        .all_gather({-1, calls_++}, {all.data(), ranks(), DType::i64}, {&own, 1, DType::i64})
        .wait();
    return all;
  }
  void state_counts(const std::vector<std::int64_t>& counts) {
    stated_ = counts.empty() ? -1 : counts[static_cast<std::size_t>(rank())];
  }
  std::int64_t stated() const { return stated_; }
  /// Models on the group hold communicators of their own, so the order of ending does not matter.
  void shutdown() {
    if (!comm_) return;
    const auto membership = comm_->membership();
    comm_.reset();
    membership->leave();
  }

 private:
  std::unique_ptr<Comm> comm_;
  std::int64_t calls_ = 0;
  std::int64_t stated_ = -1;
};

/// What a person should know, to Python's logger "thinwire", which shows it unless told otherwise.
/// From the thread of the call that it is about.
void log_in_python(const std::string& text) {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  py::module_::import("logging").attr("getLogger")("thinwire").attr("warning")("%s", text);
}

struct PyOptions {
  std::string form, grouping, algorithm, plan_path;
  std::optional<std::vector<std::string>> forms;  ///< plan="auto": those to be considered
  bool replan = true;
  std::string order;
  std::vector<std::string> exclude;
  bool broadcast_buffers = true;
  std::uint64_t seed = 0;
};

class PyDataParallel {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  PyDataParallel(std::shared_ptr<PyContext> context, const PyOptions& options,
                 const Named& parameters, const Named& buffers)
      : context_(std::move(context)),
        sync_(std::make_unique<GradientSync>(named(parameters), named(buffers), context_->comm(),
                                             sync_options(options))) {
    if (options.forms)
      live_ = std::make_unique<LivePlan>(
          *sync_, context_->comm(),
          LivePlanOptions{.forms = *options.forms, .replan = options.replan, .say = log_in_python});
  }
  ~PyDataParallel() {
    drop(live_);
    drop(sync_);
  }

  void begin(bool exchange) {
    if (exchange && live_) live_->between_steps();
    sync_->set_sync(exchange);
    if (exchange && context_->stated() >= 0) sync_->set_samples(context_->stated());
    sync_->begin();
  }
  std::vector<at::Tensor> mark(std::vector<at::Tensor> outputs) {
    std::vector<at::Tensor*> places;
    for (at::Tensor& output : outputs) places.push_back(&output);
    sync_->mark(places);
    return outputs;
  }
  void set_buffers(const Named& buffers) { sync_->set_buffers(named(buffers)); }
  Named form_state() {
    Named out;
    for (auto& one : sync_->form_state()) out.emplace_back(one.name, one.tensor);
    return out;
  }
  void load_form_state(const Named& state) { sync_->load_form_state(named(state)); }
  GradientSync& sync() { return *sync_; }
  /// As JSON; empty: nothing is chosen, or not yet. Complete on rank 0.
  std::string choice() const {
    return live_ && live_->planned() ? to_json(live_->planned()->choice).dump() : "";
  }

 private:
  static std::vector<NamedTensor> named(const Named& tensors) {
    std::vector<NamedTensor> out;
    for (const auto& [name, tensor] : tensors) out.push_back({name, tensor});
    return out;
  }
  static SyncOptions sync_options(const PyOptions& options) {
    SyncOptions out;
    out.grouping = options.forms ? LivePlan::kFirstGrouping : options.grouping;
    out.algorithm = options.algorithm;
    out.order = options.order;
    out.notice = log_in_python;
    out.form = options.form;
    if (!options.plan_path.empty()) out.plan = read_text(options.plan_path);
    out.broadcast_buffers = options.broadcast_buffers;
    out.excluded = options.exclude;
    out.seed = options.seed;
    return out;
  }

  std::shared_ptr<PyContext> context_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<LivePlan> live_;
};

/// Buckets of PyTorch's DDP.
class PyBuckets {
 public:
  PyBuckets(std::shared_ptr<PyContext> context, const std::string& form,
            const std::string& algorithm, std::uint64_t seed)
      : context_(std::move(context)),
        sync_(std::make_unique<BucketSync>(context_->comm(), form, algorithm, seed)) {}
  ~PyBuckets() { drop(sync_); }

  void start(int bucket, const PyDataParallel::Named& members, const at::Tensor& flat) {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : members) named.push_back({name, tensor});
    sync_->start(bucket, named, flat);
  }
  void finish() { sync_->finish(); }
  std::int64_t step() const { return sync_->step(); }
  FormState state() const { return sync_->state(); }
  void load(std::int64_t step, FormState state) {
    sync_->set_step(step);
    sync_->load_state(std::move(state));
  }

 private:
  std::shared_ptr<PyContext> context_;
  std::unique_ptr<BucketSync> sync_;
};

/// Python handles signals in its main thread only, between instructions; a wait of ours is none.
void check_signals(std::thread::id main_thread) {
  if (std::this_thread::get_id() != main_thread) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  python_error error;  // as autograd passes Python's errors through a backward
  error.persist();
  throw error;
}

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (python_error& python) {
    python.restore();
  }
}

/// Throws an error of ours as Python's: the class of a C++ error is lost in autograd, an error of
/// Python is passed through.
void into_backward(const std::exception_ptr& error) {
  static const std::array kinds{"ConfigError", "CommError", "DataError", "UnsupportedError"};
  std::size_t kind = 0;
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const ConfigError& e) {
    text = e.what();
  } catch (const CommError& e) {
    kind = 1, text = e.what();
  } catch (const DataError& e) {
    kind = 2, text = e.what();
  } catch (const UnsupportedError& e) {
    kind = 3, text = e.what();
  } catch (...) {
    return;  // as it is
  }
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  PyErr_SetString(py::module_::import("thinwire._thinwire").attr(kinds[kind]).ptr(), text.c_str());
  python_error raised;
  raised.persist();
  throw raised;
}

void bind_errors(py::module_& m) {
  py::register_exception_translator(translate);
  static const auto base = py::register_exception<Error>(m, "Error", PyExc_RuntimeError);
  py::register_exception<ConfigError>(m, "ConfigError", m.attr("Error"));
  py::register_exception<CommError>(m, "CommError", m.attr("Error"));
  py::register_exception<DataError>(m, "DataError", m.attr("Error"));
  py::register_exception<UnsupportedError>(m, "UnsupportedError", m.attr("Error"));
}

void bind_group(py::module_& m) {
  py::class_<PyJoin>(m, "JoinOptions")
      .def(py::init([](const std::string& address, int rank, int ranks, double timeout_s,
                       const std::string& interface, const std::string& run_id) {
        PyJoin out;
        out.join.address = address;
        out.join.rank = rank;
        out.join.size = ranks;
        out.join.timeout_s = timeout_s;
        out.join.interface = interface;
        out.join.run_id = run_id;
        return out;
      }))
      .def_static("from_environment", join_from_environment)
      .def_readonly("source", &PyJoin::source)
      .def_property_readonly("rank", [](const PyJoin& self) { return self.join.rank; })
      .def_property_readonly("ranks", [](const PyJoin& self) { return self.join.size; })
      .def_property_readonly("address", [](const PyJoin& self) { return self.join.address; })
      .def_property_readonly(
          "has_publish", [](const PyJoin& self) { return static_cast<bool>(self.join.publish); })
      .def("set_publish", [](PyJoin& self, py::function publish) {
        self.join.publish =
            [publish = std::make_shared<py::function>(std::move(publish))](const std::string& own) {
              const py::gil_scoped_acquire gil;
              return (*publish)(own).cast<std::string>();
            };
      });
  py::class_<PyContext, std::shared_ptr<PyContext>>(m, "Context")
      .def(py::init<const std::string&, const PyJoin&>(), Released())
      .def(py::init<const PyJoin&, const c10::intrusive_ptr<c10d::ProcessGroup>&,
                    const c10::intrusive_ptr<c10d::Store>&>(),
           Released())
      .def_property_readonly("rank", &PyContext::rank)
      .def_property_readonly("ranks", &PyContext::ranks)
      .def("describe", &PyContext::describe)
      .def("average", &PyContext::average, Released())
      .def("broadcast", &PyContext::broadcast, Released())
      .def("barrier", &PyContext::barrier, Released())
      .def("gather_counts", &PyContext::gather_counts, Released())
      .def("state_counts", &PyContext::state_counts)
      .def("shutdown", &PyContext::shutdown, Released());
}

void bind_data_parallel(py::module_& m) {
  py::class_<PyOptions>(m, "DataParallelOptions")
      .def(py::init([](std::string form, std::string grouping, std::string algorithm,
                       std::string plan_path, std::optional<std::vector<std::string>> forms,
                       bool replan, std::string order, std::vector<std::string> exclude,
                       bool broadcast_buffers, std::uint64_t seed) {
        return PyOptions{std::move(form),      std::move(grouping),
                         std::move(algorithm), std::move(plan_path),
                         std::move(forms),     replan,
                         std::move(order),     std::move(exclude),
                         broadcast_buffers,    seed};
      }));
  py::class_<PyDataParallel>(m, "DataParallel")
      .def(py::init<std::shared_ptr<PyContext>, const PyOptions&, const PyDataParallel::Named&,
                    const PyDataParallel::Named&>(),
           Released())
      .def("begin", &PyDataParallel::begin, Released())
      .def("mark", &PyDataParallel::mark, Released())
      .def("set_buffers", &PyDataParallel::set_buffers)
      .def("form_state", &PyDataParallel::form_state, Released())
      .def("load_form_state", &PyDataParallel::load_form_state, Released())
      .def(
          "set_form",
          [](PyDataParallel& self, const std::string& form) { self.sync().set_form(form); },
          Released())
      .def(
          "finish", [](PyDataParallel& self) { self.sync().finish(); }, Released())
      .def("plan", [](PyDataParallel& self) { return to_json(self.sync().plan()); })
      .def("choice", &PyDataParallel::choice)
      .def(
          "set_plan",
          [](PyDataParallel& self, const std::string& path) {
            self.sync().set_plan(read_text(path));
          },
          Released())
      .def("last_step", [](PyDataParallel& self) {
        const StepStats& stats = self.sync().last_step();
        return py::dict(py::arg("step") = stats.step, py::arg("compute_s") = stats.compute_s,
                        py::arg("exposed_s") = stats.exposed_s,
                        py::arg("wire_bytes") = stats.wire_bytes,
                        py::arg("payload_bytes") = stats.payload_bytes);
      });
}

void bind_buckets(py::module_& m) {
  py::class_<PyBuckets>(m, "Buckets")
      .def(py::init<std::shared_ptr<PyContext>, const std::string&, const std::string&,
                    std::uint64_t>(),
           Released())
      .def("start", &PyBuckets::start, Released())
      .def("finish", &PyBuckets::finish, Released())
      .def("step", &PyBuckets::step)
      .def("state", &PyBuckets::state, Released())
      .def("load", &PyBuckets::load, Released());
}

}  // namespace

void bind_tool(py::module_& m);  // binding_tool.cpp

PYBIND11_MODULE(_thinwire, m) {
  m.attr("version") = std::string(kVersion);
  bind_errors(m);
  bind_group(m);
  bind_data_parallel(m);
  bind_buckets(m);
  bind_tool(m);
  m.def("forms_of", [](const std::string& quality) {
    return forms_of(parse_quality(quality), true);  // the optimizer is the caller's
  });
  m.def("unknown_name",
        [](const std::string& what, const std::string& wrong,
           const std::vector<std::string>& names) { return unknown_name(what, wrong, names); });
  m.def("on_notice", [](py::function fn) {
    // Kept for good: a notice may come from any thread until the process ends.
    auto* kept = new py::function(std::move(fn));
    on_notice([kept](const std::string& text) {
      if (!Py_IsInitialized()) return;
      const py::gil_scoped_acquire gil;
      (*kept)(text);
    });
  });
  on_backward_error(into_backward);
  on_interrupt_check([main_thread = std::this_thread::get_id()] { check_signals(main_thread); });
  register_c10d();
}

}  // namespace thinwire
