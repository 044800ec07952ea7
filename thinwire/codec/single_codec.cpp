// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec/single_codec.h"

#include "thinwire/codec/bytes.h"

namespace thinwire {

void SingleCodec::decode(const Payload& payload, Tensor& out, Write mode) const {
  decode_single(out, count(), mode, [&](Tensor& to, Write how) { add(payload, to, 1, how); });
}

void SingleCodec::residual(const Tensor& x, const Payload& sent, Tensor& out) const {
  if (x.scalar_type() != at::kFloat) return Codec::residual(x, sent, out);
  if (!out.is_same(x)) out.copy_(x);
  add(sent, out, -1, Write::add);
}

}  // namespace thinwire
