// SPDX-License-Identifier: Apache-2.0
// What stays behind on a rank between two firings of an exchange (residuals, momentum, estimates).
#pragma once
#include "thinwire/codec/codec.h"

namespace thinwire {

constexpr Rank kCombined = -1;

class Memory {
 public:
  virtual ~Memory() = default;
  virtual void before(Tensor& x, const Slot& slot) = 0;  // x += residual, x -= estimate, ...
  virtual void sent(const Tensor& x, const Tensor& own,
                    const Slot& slot) = 0;  // own = decode(encode(x)); 0 if not sent
  virtual void received(Tensor& value, Rank from,
                        const Slot& slot);  // from kCombined: the reduced value
  virtual void visit_state(StateVisitor& visitor) = 0;
};
using MemoryFactory =
    std::function<std::unique_ptr<Memory>(const Spec&, std::span<const TensorDesc>)>;
using MemoryRegistry = Registry<MemoryFactory>;
const MemoryRegistry& memories();

}  // namespace thinwire
