// SPDX-License-Identifier: Apache-2.0
// Part of codecs that work in single precision: what they decode to, and what they leave behind,
// is one loop that adds a multiple of what a payload says.
#pragma once
#include "thinwire/codec/codec.h"

namespace thinwire {

class SingleCodec : public Codec {
 public:
  void decode(const Payload& payload, Tensor& out, Write mode) const override;
  void residual(const Tensor& x, const Payload& sent, Tensor& out) const override;

 protected:
  virtual std::int64_t count() const = 0;  ///< values of the bucket
  /// out = (set) or out += (add) by * what the payload says. `out`: `count` floats.
  virtual void add(const Payload& payload, Tensor& out, float by, Write mode) const = 0;
};

}  // namespace thinwire
