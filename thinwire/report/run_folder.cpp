// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "thinwire/core/version.h"

#ifndef TW_BUILD_TYPE
#define TW_BUILD_TYPE ""
#endif
#ifndef TW_SANITIZE_TEXT
#define TW_SANITIZE_TEXT ""
#endif

namespace thinwire {
namespace fs = std::filesystem;
namespace {

// Every field once, for writing and reading.
template <class T, class Fn>
void each_field(T& x, Fn&& field)
  requires std::is_same_v<std::remove_const_t<T>, RunSetup>
{
  field("model", x.model);
  field("data", x.data);
  field("parameters", x.parameters);
  field("ranks", x.ranks);
  field("transport", x.transport);
  field("congestion_control", x.congestion_control);
  field("grouping", x.grouping);
  field("form", x.form);
  field("algorithm", x.algorithm);
  field("batch_size", x.batch_size);
  field("hosts", x.hosts);
}

template <class T, class Fn>
void each_field(T& x, Fn&& field)
  requires std::is_same_v<std::remove_const_t<T>, RunSummary>
{
  field("test_accuracy", x.test_accuracy);
  field("test_loss", x.test_loss);
  field("steps", x.steps);
  field("samples", x.samples);
  field("train_s", x.train_s);
  field("step_s", x.step_s);
  field("compute_s", x.compute_s);
  field("exposed_s", x.exposed_s);
  field("wire_bytes_per_step", x.wire_bytes_per_step);
  field("samples_per_s", x.samples_per_s);
  field("peak_memory_bytes", x.peak_memory_bytes);
  field("predicted_step_s", x.predicted_step_s);
  field("predicted_exposed_s", x.predicted_exposed_s);
  field("predicted_bytes_per_step", x.predicted_bytes_per_step);
}

bool said(const std::string& value) { return !value.empty(); }
bool said(std::int64_t value) { return value != 0; }
bool said(int value) { return value != 0; }
bool said(const std::vector<std::string>& value) { return !value.empty(); }

Json setup_json(const RunSetup& setup) {
  Json json = Json::object();
  each_field(setup, [&](const char* key, const auto& value) {
    if (said(value)) json[key] = value;
  });
  return json;
}

RunSetup setup_from(const Json& json, std::string_view source) {
  RunSetup setup;
  each_field(setup, [&]<class T>(const char* key, T& value) {
    if (json.contains(key)) value = get<T>(json, key, source);
  });
  return setup;
}

RunSummary summary_from(const Json& json, std::string_view source) {
  RunSummary summary;
  each_field(summary, [&]<class T>(const char* key, std::optional<T>& value) {
    if (json.contains(key) && !json.at(key).is_null()) value = get<T>(json, key, source);
  });
  return summary;
}

template <class T>
void read_if(const Json& json, const char* key, std::string_view source, T& out) {
  if (json.contains(key)) out = get<T>(json, key, source);
}

std::string now_utc() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace

Json to_json(const RunSummary& summary) {
  Json json = Json::object();
  each_field(summary, [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  });
  return json;
}

Json to_json(const RunInfo& info) {
  return {{"thinwire_run", 1},
          {"name", info.name},
          {"status", info.status},
          {"started_at", info.started_at},
          {"command", info.command},
          {"setup", setup_json(info.setup)},
          {"configuration", info.configuration},
          {"versions", info.versions},
          {"summary", to_json(info.summary)}};
}

RunInfo run_info_from_json(const Json& json, std::string_view source) {
  if (!json.is_object() || !json.contains("thinwire_run"))
    throw DataError(fmt::format("{}: no description of a run ('thinwire_run' is missing)", source));
  if (const int form = get<int>(json, "thinwire_run", source); form != 1)
    throw DataError(fmt::format("{}: 'thinwire_run' must be 1, got {}", source, form));
  RunInfo info;
  read_if(json, "name", source, info.name);
  read_if(json, "status", source, info.status);
  read_if(json, "started_at", source, info.started_at);
  read_if(json, "command", source, info.command);
  read_if(json, "configuration", source, info.configuration);
  read_if(json, "versions", source, info.versions);
  if (json.contains("setup")) info.setup = setup_from(json.at("setup"), source);
  if (json.contains("summary")) info.summary = summary_from(json.at("summary"), source);
  return info;
}

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {}

RunFolder RunFolder::create(const std::string& parent, const std::string& name) {
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) throw ConfigError(fmt::format("cannot make folder {}: {}", parent, error.message()));
  for (int number = 1;; ++number) {
    const fs::path path =
        fs::path(parent) / (number == 1 ? name : fmt::format("{}-{}", name, number));
    // create_directory says whether this call made it, so two runs that start at once cannot share
    // a folder.
    if (fs::create_directory(path, error)) {
      RunFolder folder(path.string());
      folder.write_info({});
      return folder;
    }
    if (error && !fs::exists(path))
      throw ConfigError(fmt::format("cannot make folder {}: {}", path.string(), error.message()));
  }
}

RunFolder RunFolder::open(const std::string& path) {
  if (!fs::is_directory(path)) throw ConfigError(fmt::format("{} is no folder", path));
  return RunFolder(path);
}

std::string RunFolder::name() const { return fs::path(path_).filename().string(); }
std::string RunFolder::file(std::string_view name) const {
  return (fs::path(path_) / name).string();
}
std::string RunFolder::log_path(Rank rank) const {
  return file(fmt::format("log.rank{}.txt", rank));
}
std::string RunFolder::trace_path(Rank rank) const {
  return file(rank == 0 ? std::string("trace.jsonl") : fmt::format("trace.rank{}.jsonl", rank));
}

std::string RunFolder::checkpoint_folder() const {
  const std::string path = file("checkpoints");
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw ConfigError(fmt::format("cannot make folder {}: {}", path, error.message()));
  return path;
}

void RunFolder::write_info(const RunInfo& info) {
  RunInfo whole = info;
  if (whole.name.empty()) whole.name = name();
  if (whole.started_at.empty()) {
    const bool again = fs::exists(file("run.json"));
    if (again) read_if(read_json(file("run.json")), "started_at", "run.json", whole.started_at);
    if (whole.started_at.empty()) whole.started_at = now_utc();
  }
  if (whole.versions.empty()) whole.versions = build_versions();
  write_text(file("run.json"),
             to_json(whole).dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
}

void RunFolder::append(const MetricsRow& row) {
  if (!metrics_) metrics_ = std::make_unique<JsonLinesWriter>(file("metrics.jsonl"));
  if (!tensorboard_) tensorboard_ = std::make_unique<TensorBoardWriter>(file("tensorboard"));
  metrics_->write(to_json(row));
  tensorboard_->write(row);
}

void RunFolder::append_trace(Rank rank, const Trace& events, TraceClock clock) {
  const std::string path = trace_path(rank);
  const bool fresh = !fs::exists(path) || fs::file_size(path) == 0;
  JsonLinesWriter writer(path);
  writer.write_lines((fresh ? trace_header_line(clock) : std::string()) + trace_lines(events));
}

RunData read_run(const std::string& path) {
  RunData run;
  run.path = path;
  const fs::path folder(path);
  if (!fs::is_directory(folder)) throw ConfigError(fmt::format("{} is no folder", path));
  if (!fs::exists(folder / "run.json"))
    throw ConfigError(fmt::format("{} is no run folder: run.json is missing", path));
  run.info =
      run_info_from_json(read_json((folder / "run.json").string()), (folder / "run.json").string());
  if (run.info.name.empty())
    run.info.name = fs::absolute(folder).lexically_normal().filename().string();
  const auto attempt = [&](const char* what, const auto& read) {
    try {
      read();
    } catch (const Error& error) {
      run.problems.push_back(fmt::format("{} left out: {}", what, error.what()));
    }
  };
  if (fs::exists(folder / "metrics.jsonl"))
    attempt("metrics", [&] { run.metrics = read_metrics((folder / "metrics.jsonl").string()); });
  if (fs::exists(folder / "choice.json"))
    attempt("the choice of the plan", [&] {
      const Json choice = read_json((folder / "choice.json").string());
      for (const char* key : {"chosen", "others", "verdict"}) get<Json>(choice, key, "choice.json");
      run.choice = choice;
    });
  std::vector<std::string> traces;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const std::string file = entry.path().filename().string();
        file.starts_with("trace.") && file.ends_with(".jsonl"))
      traces.push_back(entry.path().string());
  std::sort(traces.begin(), traces.end());
  for (const std::string& trace : traces)
    attempt("a trace", [&] {
      TraceFile one = read_trace(trace);
      run.trace.clock = one.clock;
      run.trace.events.insert(run.trace.events.end(), one.events.begin(), one.events.end());
    });
  return run;
}

Json build_versions() {
  Json versions = {{"thinwire", kVersion}};
#if defined(__clang__)
  versions["compiler"] =
      fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  versions["compiler"] = fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
  if (const std::string_view build = TW_BUILD_TYPE; !build.empty()) versions["build"] = build;
  if (const std::string_view sanitizers = TW_SANITIZE_TEXT; !sanitizers.empty())
    versions["sanitizers"] = sanitizers;
  return versions;
}

}  // namespace thinwire
