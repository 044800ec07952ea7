// SPDX-License-Identifier: Apache-2.0
// What travels. A codec turns a tensor into a payload and back; it never communicates. If ranks
// must agree on something first (a scale, a mask, a basis) it proposes a small tensor, which the
// exchanger reduces.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "thinwire/codec/write.h"
#include "thinwire/core/registry.h"
#include "thinwire/core/spec.h"
#include "thinwire/core/types.h"
#include "thinwire/plan/profile.h"

namespace thinwire {

using at::Tensor;

/// Walks named state in and out of a checkpoint. Names are unique within one codec or memory.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void tensor(const std::string& name, Tensor& value) = 0;
  virtual void integer(const std::string& name, std::int64_t& value) = 0;
};

struct Payload {
  std::vector<Tensor> parts;
  Bytes bytes() const;
};
struct Proposal {
  Tensor value;
  Combine op = Combine::max;
};
/// One firing of one exchange. `fires`: sent in this step.
struct Slot {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  std::vector<Tensor> agreed;
  bool fires = true;
  const Tensor* row_keys = nullptr;
};

struct CodecTraits {
  bool summable =
      false;  ///< decode of the sum of payloads is the sum of decodes: the transport may add them
  bool fixed_size = true;  ///< payload bytes depend on the shape alone
  bool unbiased = false;
  bool identity = false;  ///< the payload is the input itself: exchanged in place, without a copy
  double contraction =
      0;  ///< delta in ||x - decode(encode(x))||^2 <= (1 - delta) ||x||^2; 0: none declared
};

class Codec {
 public:
  virtual ~Codec() = default;
  virtual CodecTraits traits() const = 0;
  virtual Bytes max_bytes() const = 0;
  virtual Payload encode(const Tensor& x, const Slot& slot) = 0;
  virtual void decode(const Payload& payload, Tensor& out, Write mode) const = 0;
  virtual std::optional<Proposal> propose(const Tensor& x,
                                          const Slot& slot);  // default: nothing to agree on
  virtual Payload reduce(std::span<const Payload> payloads,
                         const Slot& slot);  // default: decode, sum, encode
  virtual void commit(Payload& merged);      // same bytes on every rank
  virtual void residual(const Tensor& x, const Payload& sent,
                        Tensor& out) const;  // default: x - decode(sent)
  virtual void visit_state(StateVisitor& visitor);
};
using CodecFactory =
    std::function<std::unique_ptr<Codec>(const Spec&, std::span<const TensorDesc>)>;
using CodecRegistry = Registry<CodecFactory>;
/// The codecs of this build and those added by add_codec.
const CodecRegistry& codecs();
/// A codec of the program's own, for the whole process. Call it before any engine is built, on all
/// ranks.
void add_codec(std::string name, CodecFactory make, std::string help);

}  // namespace thinwire
