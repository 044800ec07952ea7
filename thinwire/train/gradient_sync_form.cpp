// SPDX-License-Identifier: Apache-2.0
// The forms of the data-parallel engine between steps: another form, and what memories and codecs
// keep, gathered for a checkpoint and taken up from one.
#include <ATen/ops/empty.h>
#include <ATen/ops/norm.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"
#include "thinwire/core/text.h"
#include "thinwire/train/agreement.h"
#include "thinwire/train/gradient_sync_impl.h"

namespace thinwire {
namespace {

/// "f32 1000 gradient/ef/residual/w[0:1000]", a line an entry.
std::string listed(const FormState& state) {
  std::string text;
  for (const auto& [key, tensor] : state)
    if (is_own(key))
      text += fmt::format("{} {} {}\n", to_string(*dtype_of(tensor.scalar_type())), tensor.numel(),
                          key);
  return text;
}

/// A tensor for what such a line announces.
NamedTensor announced(const std::string& line, int rank) {
  const auto first = line.find(' '), second = line.find(' ', first + 1);
  std::int64_t count = -1;
  const auto dtype = dtype_from(line.substr(0, first));
  if (second != std::string::npos)
    std::from_chars(line.data() + first + 1, line.data() + second, count);
  if (!dtype || count < 0)
    throw CommError(fmt::format("rank {} announces a state nobody understands: '{}'", rank, line));
  return {fmt::format("rank{}/{}", rank, line.substr(second + 1)),
          at::empty({count}, scalar_type_of(*dtype))};
}

Buffer flat_buffer(const at::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.numel(), *dtype_of(tensor.scalar_type()), -1};
}

}  // namespace

void GradientSync::Impl::set_form(const std::string& form) {
  if (!options.plan.empty())
    throw ConfigError("set_form: the plan that was given says what travels in which form");
  SyncOptions wanted = options;
  wanted.form = form;
  change_to(std::move(wanted), fmt::format("the form '{}'", form));
}

void GradientSync::Impl::set_plan(const std::string& plan) {
  SyncOptions wanted = options;
  wanted.plan = plan;
  change_to(std::move(wanted), "another plan");
  plan_was_set = true;
}

/// What is refused is refused on all ranks alike: the old form or plan goes on.
void GradientSync::Impl::change_to(SyncOptions wanted, const std::string& what) {
  if (!broken.empty()) throw CommError(broken);
  if (is_open) throw ConfigError(fmt::format("{}: a backward is under way", what));
  must_agree(*world.membership(), "the form", wanted.form);
  must_agree(*world.membership(), "the plan (its hash)",
             fmt::format("{:016x}", hash_bytes(wanted.plan.data(),
                                               static_cast<std::int64_t>(wanted.plan.size()))));
  if (!wanted.plan.empty()) plan_from_json(wanted.plan, "the plan given");  // DataError
  std::swap(options, wanted);
  try {
    set_up(fmt::format("at step {}, for {}", step, what));
  } catch (const ConfigError&) {
    std::swap(options, wanted);
    set_up(fmt::format("at step {}", step));
    throw;
  }
  counters_before = exchanger->group(0).counters();
  prepare_buffers();
}

namespace {

/// Whether what a step sends depends on its number: drawn by it, or sent in some steps only.
bool counts_steps(const Plan& plan) {
  return std::any_of(plan.exchanges.begin(), plan.exchanges.end(), [](const Exchange& one) {
    const bool plain =
        one.form.empty() || (one.form.size() == 1 && one.form[0] == Spec{.name = "none"});
    return one.start.every > 1 || !plain;
  });
}

}  // namespace

std::vector<NamedTensor> GradientSync::Impl::form_state() {
  const FormState mine = exchanger->state();
  const auto lists = world.membership()->all_gather("what memories keep", listed(mine));
  Comm& group = exchanger->group(0);
  std::vector<NamedTensor> out;
  if (group.rank() == 0 && counts_steps(exchanger->plan())) {
    // The position of what is drawn at random.
    out.push_back({"all/step", at::empty({1}, at::kLong)});
    *out.back().tensor.data_ptr<std::int64_t>() = step;
  }
  if (group.rank() == 0)
    for (const auto& [key, tensor] : mine)
      out.push_back({(is_own(key) ? "rank0/" : "all/") + key, tensor});
  for (int rank = 1; rank < group.size(); ++rank) {
    std::int32_t part = 0;
    if (group.rank() == rank) {
      for (const auto& [key, tensor] : mine)
        if (is_own(key)) group.send({-1, step, part++}, flat_buffer(tensor), 0).wait();
    } else if (group.rank() == 0) {
      for (const auto& line : split(lists[static_cast<std::size_t>(rank)], '\n')) {
        if (line.empty()) continue;
        out.push_back(announced(line, rank));
        group.recv({-1, step, part++}, flat_buffer(out.back().tensor), rank).wait();
      }
    }
  }
  return out;
}

/// After a change: memories and codecs of the same names go on with what there was before, value by
/// value of a parameter. What nobody takes up is lost, which a notice says.
void GradientSync::Impl::keep_form_state(const FormState& before) {
  if (before.empty()) return;
  exchanger->load_state(before);
  const FormState after = exchanger->state();
  std::map<std::string, double> dropped;  // squares, by memory
  for (const auto& [key, tensor] : before) {
    if (!is_own(key) || !tensor.is_floating_point() || tensor.numel() == 0) continue;
    const std::string stem = key.substr(0, key.rfind('[') + 1);
    const auto taken = after.lower_bound(stem);
    if (taken != after.end() && taken->first.starts_with(stem)) continue;
    const auto first = key.find('/') + 1;
    const double norm = tensor.norm().item<double>();
    if (norm != 0) dropped[key.substr(first, key.find('/', first) - first)] += norm * norm;
  }
  for (const auto& [memory, squares] : dropped)
    options.notice(fmt::format(
        "step {}: what the memory '{}' has kept on this rank (2-norm {:.3g}) is dropped: "
        "{} has no such memory for it",
        step, memory, std::sqrt(squares),
        options.plan.empty() ? fmt::format("the form '{}'", options.form) : "the plan"));
}

void GradientSync::Impl::load_form_state(const std::vector<NamedTensor>& state) {
  std::vector<FormState> earlier(1);
  for (const auto& [name, tensor] : state) {
    const auto slash = name.find('/');
    const std::string owner = name.substr(0, slash), key = name.substr(slash + 1);
    int rank = owner == "all" ? 0 : -1;
    if (owner.starts_with("rank"))
      std::from_chars(owner.data() + 4, owner.data() + owner.size(), rank);
    if (name == "all/step") {
      step = tensor.item<std::int64_t>();
      continue;
    }
    constexpr int kMost = 1 << 20;
    if (slash == std::string::npos || rank < 0 || rank > kMost)
      throw DataError(fmt::format("state of forms: '{}' names no rank", name));
    if (earlier.size() <= static_cast<std::size_t>(rank))
      earlier.resize(static_cast<std::size_t>(rank) + 1);
    earlier[static_cast<std::size_t>(rank)][key] = tensor;
  }
  exchanger->load_state(redistribute(earlier, world.rank(), world.size()));
}

}  // namespace thinwire
