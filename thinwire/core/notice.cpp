// SPDX-License-Identifier: Apache-2.0
#include "thinwire/core/notice.h"

#include <memory>
#include <mutex>
#include <utility>

namespace thinwire {
namespace {

// Constructed on first use and never destroyed: a thread may still speak while the program ends.
struct Sink {
  std::mutex mutex;
  std::shared_ptr<const NoticeFn> fn = std::make_shared<const NoticeFn>();
};
Sink& sink() {
  static Sink* const one = new Sink;
  return *one;
}

}  // namespace

NoticeFn on_notice(NoticeFn fn) {
  auto fresh = std::make_shared<const NoticeFn>(std::move(fn));
  const std::lock_guard lock(sink().mutex);
  std::swap(sink().fn, fresh);
  return *fresh;
}

void notice(const std::string& text) {
  std::shared_ptr<const NoticeFn> fn;
  {
    const std::lock_guard lock(sink().mutex);
    fn = sink().fn;
  }
  // Outside the lock, so that a callback may itself speak or replace the callback.
  if (*fn) (*fn)(text);
}

}  // namespace thinwire
