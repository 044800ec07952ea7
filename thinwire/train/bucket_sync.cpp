// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/bucket_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "thinwire/codec/torch_dtype.h"
#include "thinwire/core/error.h"
#include "thinwire/exchange/finite.h"
#include "thinwire/plan/plan_builder.h"

namespace thinwire {
namespace {

TensorDesc described(const NamedTensor& member) {
  const auto dtype = dtype_of(member.tensor.scalar_type());
  if (!dtype)
    throw UnsupportedError(fmt::format("'{}' is of type {}, which no message carries", member.name,
                                       c10::toString(member.tensor.scalar_type())));
  return {member.name, *dtype, member.tensor.sizes().vec()};
}

Plan plan_of(const std::vector<TensorDesc>& tensors, int ranks, const std::string& form,
             const std::string& algorithm) {
  Bucket all;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    all.slices.push_back({static_cast<int>(i), 0, elements(tensors[i])});
  PlanBuilder builder({.tensors = tensors,
                       .grouping = {all},
                       .ranks = ranks,
                       .form = parse_chain(form),
                       .algorithm = algorithm});
  declare_gradient_mean(builder);
  return builder.plan();
}

}  // namespace

/// A bucket is a plan of its own, for buckets are known one by one, as they arrive.
struct BucketSync::One {
  std::vector<TensorDesc> members;
  std::unique_ptr<Exchanger> exchanger;
  at::Tensor flat;  ///< under way
  bool finite = true;
};

BucketSync::BucketSync(Comm& world, std::string form, std::string algorithm, std::uint64_t seed)
    : world_(world),
      form_(std::move(form)),
      algorithm_(std::move(algorithm)),
      seed_(seed),
      recorder_(world.rank(), 1024) {
  // What is misspelt is refused here, and not inside a backward.
  check_form(form_);
}
BucketSync::~BucketSync() = default;

void BucketSync::set_up(One& one, const std::vector<NamedTensor>& members) {
  // The buckets are others than before: parameters may have moved between all of them.
  if (one.exchanger) {
    kept_ = state();
    for (auto& [index, other] : buckets_) other->exchanger.reset();
  }
  one.members.clear();
  for (const NamedTensor& member : members) one.members.push_back(described(member));
  one.exchanger = std::make_unique<Exchanger>(
      world_, plan_of(one.members, world_.size(), form_, algorithm_), recorder_);
  one.exchanger->load_state(kept_);
}

void BucketSync::start(int bucket, const std::vector<NamedTensor>& members,
                       const at::Tensor& flat) {
  if (!flat.device().is_cpu())
    throw UnsupportedError(
        fmt::format("bucket {}: gradients must be in host memory, these are on {}", bucket,
                    flat.device().str()));
  auto& place = buckets_[bucket];
  if (!place) place = std::make_unique<One>();
  One& one = *place;
  const auto same = [](const TensorDesc& before, const NamedTensor& now) {
    return before.name == now.name && before.shape == now.tensor.sizes();
  };
  if (!one.exchanger ||
      !std::equal(one.members.begin(), one.members.end(), members.begin(), members.end(), same))
    set_up(one, members);
  one.flat = flat;
  one.finite = one.exchanger->in_place(0) || count_not_finite(flat) == 0;
  one.exchanger->start(0, one.flat, {.step = step_, .seed = seed_, .counts = one.finite});
}

bool BucketSync::counts_everywhere() {
  One* first = nullptr;
  std::uint8_t finite = 1;
  for (auto& [index, one] : buckets_) {
    if (!one->flat.defined() || one->exchanger->in_place(0)) continue;
    first = first ? first : one.get();
    finite = finite != 0 && one->finite;
  }
  if (!first) return true;  // what travels as it is shows such values by itself
  std::vector<std::uint8_t> all(static_cast<std::size_t>(world_.size()));
  Exchanger& through = *first->exchanger;
  through.group(0)
      .all_gather({step_header(through.plan()), step_, 0},
                  {all.data(), world_.size(), DType::u8, -1}, {&finite, 1, DType::u8, -1})
      .wait();
  return std::find(all.begin(), all.end(), 0) == all.end();
}

void BucketSync::finish() {
  const bool counts = counts_everywhere();
  for (auto& [index, one] : buckets_) {
    if (!one->flat.defined()) continue;
    counts ? one->exchanger->wait(0) : one->exchanger->take_back(0);
    if (!counts) one->flat.fill_(std::numeric_limits<double>::quiet_NaN());
    one->flat.reset();
  }
  ++step_;
}

FormState BucketSync::state() const {
  FormState out = kept_;
  for (const auto& [index, one] : buckets_)
    if (one->exchanger)
      for (auto& [key, tensor] : one->exchanger->state()) out.insert_or_assign(key, tensor);
  return out;
}

void BucketSync::load_state(FormState state) { kept_ = std::move(state); }

}  // namespace thinwire
