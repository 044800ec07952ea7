// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "thinwire/core/error.h"
#include "thinwire/core/rng.h"

namespace thinwire {
namespace {

constexpr std::int32_t kOrder = 111, kAugment = 112;  // streams of the generator
constexpr std::int64_t kLargestShift = 4;

/// One image through the table of normalised values; moved by (dy, dx) with black behind, mirrored.
void copy_image(const Dataset& data, const std::uint8_t* in, const std::vector<float>& table,
                std::int64_t dy, std::int64_t dx, bool mirror, float* out) {
  for (std::int64_t c = 0; c < data.channels; ++c) {
    const float* value = table.data() + c * 256;
    const std::uint8_t* plane = in + c * data.height * data.width;
    for (std::int64_t y = 0; y < data.height; ++y)
      for (std::int64_t x = 0; x < data.width; ++x) {
        const std::int64_t from_y = y + dy, from_x = (mirror ? data.width - 1 - x : x) + dx;
        const bool inside =
            from_y >= 0 && from_y < data.height && from_x >= 0 && from_x < data.width;
        *out++ = value[inside ? plane[from_y * data.width + from_x] : 0];
      }
  }
}

}  // namespace

Share share_of(std::int64_t total, Rank rank, int ranks) {
  const std::int64_t base = total / ranks, extra = total % ranks;
  return {rank * base + std::min<std::int64_t>(rank, extra), base + (rank < extra ? 1 : 0)};
}

Loader::Loader(const Dataset& data, const SampleSet& set, const LoaderOptions& options)
    : data_(data), set_(set), options_(options) {
  if (set.count == 0) throw ConfigError(fmt::format("{}: there are no samples", data.name));
  if (options.batch_size < 1)
    throw ConfigError(fmt::format("batch_size: must be at least 1, got {}", options.batch_size));
  batches_ = (set.count + options.batch_size - 1) / options.batch_size;
  for (std::int64_t c = 0; c < data.channels; ++c)
    for (int value = 0; value < 256; ++value)
      table_.push_back((static_cast<float>(value) / 255 - data.mean[static_cast<std::size_t>(c)]) /
                       data.deviation[static_cast<std::size_t>(c)]);
  slots_.resize(static_cast<std::size_t>(std::max(1, 2 * options.threads)));
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

std::shared_ptr<const std::vector<std::int32_t>> Loader::order_of(std::int64_t epoch) {
  // Two epochs are kept: at their border both are in use.
  const std::lock_guard lock(order_mutex_);
  const auto at = static_cast<std::size_t>(epoch % 2);
  if (order_epoch_[at] != epoch) {
    auto order = std::make_shared<std::vector<std::int32_t>>(static_cast<std::size_t>(set_.count));
    std::iota(order->begin(), order->end(), 0);
    if (options_.shuffle) {
      Rng rng({.seed = options_.seed, .exchange = kOrder, .step = epoch, .rank = -1});
      for (std::size_t i = order->size(); i > 1; --i)
        std::swap((*order)[i - 1], (*order)[rng.below(i)]);
    }
    order_[at] = std::move(order);
    order_epoch_[at] = epoch;
  }
  return order_[at];
}

void Loader::prepare(std::int64_t step, Batch& out) {
  out.epoch = step / batches_;
  out.index = step % batches_;
  const std::int64_t begin = out.index * options_.batch_size;
  out.total = std::min(options_.batch_size, set_.count - begin);
  const Share share = share_of(out.total, options_.rank, options_.ranks);
  out.count = share.count;
  const auto order = order_of(out.epoch);
  const auto first = order->begin() + begin + share.begin;
  out.samples.assign(first, first + share.count);
  if (data_.kind == SampleKind::text) {
    out.symbols.resize(static_cast<std::size_t>(share.count * data_.context));
    out.targets.resize(out.symbols.size());
    for (std::int64_t i = 0; i < share.count; ++i) {
      const auto* in = set_.bytes.data() + out.samples[static_cast<std::size_t>(i)] * data_.context;
      std::copy(in, in + data_.context, out.symbols.begin() + i * data_.context);
      std::copy(in + 1, in + 1 + data_.context, out.targets.begin() + i * data_.context);
    }
    return;
  }
  const std::int64_t size = data_.sample_bytes();
  out.images.resize(static_cast<std::size_t>(share.count * size));
  out.targets.resize(static_cast<std::size_t>(share.count));
  for (std::int64_t i = 0; i < share.count; ++i) {
    const std::int64_t sample = out.samples[static_cast<std::size_t>(i)];
    std::int64_t dy = 0, dx = 0;
    bool mirror = false;
    if (options_.crop_flip) {
      // By sample and epoch, so that it does not matter which rank or thread draws it.
      const auto words =
          Rng({.seed = options_.seed, .exchange = kAugment, .step = out.epoch, .rank = -1})
              .block(static_cast<std::uint64_t>(sample));
      dy = words[0] % (2 * kLargestShift + 1) - kLargestShift;
      dx = words[1] % (2 * kLargestShift + 1) - kLargestShift;
      mirror = (words[2] & 1) != 0;
    }
    copy_image(data_, set_.bytes.data() + sample * size, table_, dy, dx, mirror,
               out.images.data() + i * size);
    out.targets[static_cast<std::size_t>(i)] = set_.labels[static_cast<std::size_t>(sample)];
  }
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  const auto depth = static_cast<std::int64_t>(slots_.size());
  for (;;) {
    // The slot of step next_ - 1 is in the caller's hands, so at most depth - 1 lie ahead of it.
    changed_.wait(lock, [&] { return end_ || claimed_ < next_ + depth - 1; });
    if (end_) return;
    const std::int64_t step = claimed_++;
    Slot& slot = slots_[static_cast<std::size_t>(step % depth)];
    slot.step = step;
    slot.ready = false;
    slot.error = nullptr;
    lock.unlock();
    std::exception_ptr error;
    try {
      prepare(step, slot.batch);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    slot.error = error;
    slot.ready = true;
    changed_.notify_all();
  }
}

const Batch& Loader::at(std::int64_t step) {
  if (threads_.empty()) {
    prepare(step, slots_[0].batch);
    return slots_[0].batch;
  }
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[static_cast<std::size_t>(step % static_cast<std::int64_t>(slots_.size()))];
  if (step != next_) {
    // Wait for batches in the making, then begin anew at `step`.
    end_ = true;
    lock.unlock();
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
    lock.lock();
    end_ = false;
    next_ = claimed_ = step;
    for (auto& other : slots_) other = Slot{};
    for (auto& thread : threads_) thread = std::thread([this] { work(); });
  }
  changed_.wait(lock, [&] { return slot.step == step && slot.ready; });
  next_ = step + 1;
  if (slot.error) std::rethrow_exception(slot.error);
  changed_.notify_all();
  return slot.batch;
}

}  // namespace thinwire
