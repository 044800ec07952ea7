// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/checkpoint.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/core/error.h"
#include "thinwire/core/text.h"
#include "thinwire/train/safetensors.h"

namespace thinwire {
namespace fs = std::filesystem;
namespace {

/// "64x3x3x3"; "scalar" for no dimension.
std::string extents(const at::Tensor& tensor) {
  std::vector<std::string> parts;
  for (const auto extent : tensor.sizes()) parts.push_back(std::to_string(extent));
  return parts.empty() ? "scalar" : join(parts, "x");
}

void sync_folder(const fs::path& folder) {
  if (const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

/// A relative link, replaced in one step.
void point(const fs::path& link, const std::string& target) {
  fs::path fresh = link;
  fresh += fmt::format(".{}.tmp", ::getpid());
  std::error_code error;
  fs::remove(fresh, error);
  fs::create_symlink(target, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error)
    throw ConfigError(fmt::format("cannot make the link {}: {}", link.string(), error.message()));
}

std::string step_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

void drop_old(const fs::path& folder, std::int64_t keep) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const auto name = entry.path().filename().string(); name.starts_with("step-"))
      names.push_back(name);
  std::sort(names.begin(), names.end(), std::greater<>());
  std::error_code error;
  const std::string best = fs::read_symlink(folder / "best", error).string();
  for (std::size_t i = static_cast<std::size_t>(keep); i < names.size(); ++i)
    if (names[i] != best) fs::remove_all(folder / names[i], error);
}

}  // namespace

Json to_json(const CheckpointState& state) {
  return {{"thinwire_checkpoint", 1},     {"step", state.step},
          {"samples", state.samples},     {"ranks", state.ranks},
          {"train_s", state.train_s},     {"best_accuracy", state.best_accuracy},
          {"best_step", state.best_step}, {"config", state.config}};
}

CheckpointState checkpoint_state_from_json(const Json& json, std::string_view source) {
  if (const int form = get<int>(json, "thinwire_checkpoint", source); form != 1)
    throw DataError(fmt::format("{}: 'thinwire_checkpoint' must be 1, got {}", source, form));
  CheckpointState state;
  state.step = get<std::int64_t>(json, "step", source);
  state.samples = get<std::int64_t>(json, "samples", source);
  state.ranks = get<int>(json, "ranks", source);
  state.train_s = get<double>(json, "train_s", source);
  state.best_accuracy = get<double>(json, "best_accuracy", source);
  state.best_step = get<std::int64_t>(json, "best_step", source);
  state.config = get<Json>(json, "config", source);
  if (state.step < 0 || state.samples < 0 || state.ranks < 1 || !state.config.is_object())
    throw DataError(fmt::format("{}: step, samples, ranks or config is out of range", source));
  return state;
}

void write_tensors(const std::string& path, const NamedTensors& tensors,
                   const std::map<std::string, std::string>& metadata) {
  std::vector<at::Tensor> dense;  // keeps the memory that the spans borrow
  std::vector<TensorSpan> spans;
  for (const auto& [name, tensor] : tensors) {
    dense.push_back(tensor.detach().cpu().contiguous());
    const auto dtype = dtype_of(tensor.scalar_type());
    if (!dtype)
      throw UnsupportedError(fmt::format("checkpoint: '{}': no tensors of type {}", name,
                                         at::toString(tensor.scalar_type())));
    spans.push_back({name, *dtype, tensor.sizes().vec(), dense.back().data_ptr()});
  }
  write_safetensors(path, spans, metadata);
}

NamedTensors read_tensors(const std::string& path) {
  const SafetensorsFile file = read_safetensors(path);
  NamedTensors out;
  for (const auto& [name, entry] : file.tensors) {
    const at::Tensor tensor = at::empty(entry.shape, scalar_type_of(entry.dtype));
    if (entry.bytes > 0)
      std::memcpy(tensor.data_ptr(), file.data.data() + entry.begin,
                  static_cast<std::size_t>(entry.bytes));
    out.emplace_back(name, tensor);
  }
  return out;
}

void load_tensors(const NamedTensors& into, const NamedTensors& from, const std::string& source) {
  std::map<std::string, at::Tensor> given(from.begin(), from.end());
  for (const auto& [name, tensor] : into) {
    const auto found = given.find(name);
    if (found == given.end())
      throw DataError(fmt::format("{}: tensor '{}' is missing", source, name));
    if (found->second.sizes() != tensor.sizes() ||
        found->second.scalar_type() != tensor.scalar_type())
      throw DataError(fmt::format("{}: tensor '{}' is {} {}, the model has {} {}", source, name,
                                  at::toString(found->second.scalar_type()), extents(found->second),
                                  at::toString(tensor.scalar_type()), extents(tensor)));
  }
  for (const auto& [name, tensor] : from)
    if (std::none_of(into.begin(), into.end(), [&](const auto& one) { return one.first == name; }))
      throw DataError(fmt::format("{}: the model has no tensor '{}'", source, name));
  for (const auto& [name, tensor] : into) tensor.detach().copy_(given.at(name));
}

std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            const NamedTensors& model, const NamedTensors& optimizer,
                            const NamedTensors& form, std::int64_t keep, bool best) {
  const fs::path root(folder), target = root / step_name(state.step);
  const fs::path part = root / fmt::format(".{}.{}.tmp", step_name(state.step), ::getpid());
  std::error_code error;
  fs::remove_all(part, error);
  fs::create_directories(part, error);
  if (error)
    throw ConfigError(fmt::format("cannot make folder {}: {}", part.string(), error.message()));
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  for (const char* key : {"model", "data"})
    if (state.config.contains(key)) metadata[key] = state.config.at(key).get<std::string>();
  write_tensors((part / "model.safetensors").string(), model, metadata);
  write_tensors((part / "optimizer.safetensors").string(), optimizer, {});
  if (!form.empty()) write_tensors((part / "form.safetensors").string(), form, {});
  write_text((part / "state.json").string(), to_json(state).dump(2) + '\n');
  sync_folder(part);
  fs::remove_all(target, error);
  fs::rename(part, target);
  sync_folder(root);
  point(root / "last", step_name(state.step));
  if (best) point(root / "best", step_name(state.step));
  drop_old(root, keep);
  return target.string();
}

void mark_best(const std::string& folder, std::int64_t step) {
  point(fs::path(folder) / "best", step_name(step));
}

std::string find_checkpoint(const std::string& path, const std::string& prefer) {
  const fs::path given(path);
  if (fs::exists(given / "state.json")) return fs::canonical(given).string();
  const std::string other = prefer == "best" ? "last" : "best";
  for (const auto& parent : {given / "checkpoints", given})
    for (const auto& name : {prefer, other})
      if (fs::exists(parent / name / "state.json")) return fs::canonical(parent / name).string();
  throw ConfigError(
      fmt::format("{}: neither a checkpoint (state.json) nor a run with checkpoints", path));
}

NamedTensors read_form_state(const std::string& checkpoint) {
  const fs::path path = fs::path(checkpoint) / "form.safetensors";
  return fs::exists(path) ? read_tensors(path.string()) : NamedTensors();
}

CheckpointState read_checkpoint_state(const std::string& checkpoint) {
  const std::string path = (fs::path(checkpoint) / "state.json").string();
  return checkpoint_state_from_json(read_json(path), path);
}

}  // namespace thinwire
