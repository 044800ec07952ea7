// SPDX-License-Identifier: Apache-2.0
#include "thinwire/comm/timing.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "thinwire/comm/comm.h"
#include "thinwire/core/error.h"
#include "thinwire/core/median.h"

namespace thinwire {
namespace {

constexpr Seconds kBlock = 2e-3;  // short calls are timed in blocks of about this length

Seconds cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

/// Over all ranks; ranks that are threads of one process share its clock.
Seconds cpu_of_all(Comm& comm, MessageId id, Seconds own) {
  const auto n = static_cast<std::size_t>(comm.size());
  std::vector<double> all(2 * n);
  double mine[2] = {static_cast<double>(getpid()), own};
  comm.all_gather(id, {all.data(), static_cast<std::int64_t>(2 * n), DType::f64},
                  {mine, 2, DType::f64})
      .wait();
  std::set<double> seen;
  Seconds sum = 0;
  for (std::size_t r = 0; r < n; ++r)
    if (seen.insert(all[2 * r]).second) sum += all[2 * r + 1];
  return sum;
}

/// Small whole numbers, so that every order of summation gives the same bits.
float contribution(Rank rank, std::int64_t i) { return static_cast<float>((i * 7 + rank) % 64); }

}  // namespace

void CommTiming::check(std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    data_[static_cast<std::size_t>(i)] = contribution(comm_.rank(), i);
  comm_.all_reduce({-1, step_++}, {data_.data(), count, DType::f32}, Combine::sum).wait();
  for (std::int64_t i = 0; i < count; ++i) {
    float expected = 0;
    for (Rank r = 0; r < comm_.size(); ++r) expected += contribution(r, i);
    if (const float got = data_[static_cast<std::size_t>(i)]; got != expected)
      throw Error(
          fmt::format("all_reduce of {} elements is wrong: element {} is {}, "
                      "not {}",
                      count, i, got, expected));
  }
  std::fill(data_.begin(), data_.end(), 0.0F);  // sums of it stay what they are
}

void CommTiming::call() {
  const MessageId id{-1, step_++};
  if (kind_ == TimedCall::all_reduce) {
    comm_.all_reduce(id, {data_.data(), count_, DType::f32}, Combine::sum).wait();
    return;
  }
  comm_
      .all_gather(id, {gathered_.data(), count_ * comm_.size(), DType::f32},
                  {data_.data(), count_, DType::f32})
      .wait();
}

Seconds CommTiming::block(int calls) {
  comm_.barrier("timing");
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(Clock::now() - begin).count() / calls;
}

Seconds CommFigures::median() const { return thinwire::median(time); }

CommFigures CommTiming::measure(Bytes bytes, Seconds seconds, TimedCall kind) {
  kind_ = kind;
  count_ = std::max<std::int64_t>(1, bytes / dtype_bytes(DType::f32));
  if (static_cast<std::int64_t>(data_.size()) < count_)
    data_.assign(static_cast<std::size_t>(count_), 0.0F);
  if (kind == TimedCall::all_gather)
    gathered_.resize(std::max(gathered_.size(), static_cast<std::size_t>(count_) *
                                                    static_cast<std::size_t>(comm_.size())));
  const bool known = std::find(checked_.begin(), checked_.end(), bytes) != checked_.end();
  if (!known) {
    check(count_);
    checked_.push_back(bytes);
  }
  // All ranks go on with the pace of the slowest, so that they make the same number of calls.
  std::array<double, 1> pace{block(1)};
  pace[0] = std::min(pace[0], block(2));
  comm_.all_reduce({-1, step_++}, {pace.data(), 1, DType::f64}, Combine::max).wait();
  CommFigures figures{.bytes = bytes};
  figures.calls = std::clamp(static_cast<int>(kBlock / pace[0]), 1, 1000);
  const double blocks = seconds / (figures.calls * pace[0]);
  figures.time.resize(static_cast<std::size_t>(std::clamp(blocks, 1.0, 1000.0)));
  const Seconds before = cpu_seconds();
  for (Seconds& time : figures.time) time = block(figures.calls);
  const Seconds used = cpu_seconds() - before;
  comm_
      .all_reduce({-1, step_++},
                  {figures.time.data(), static_cast<std::int64_t>(figures.time.size()), DType::f64},
                  Combine::max)
      .wait();
  figures.cpu_s = cpu_of_all(comm_, {-1, step_++}, used);
  return figures;
}

}  // namespace thinwire
