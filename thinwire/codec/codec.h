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
#include "thinwire/plan/payload.h"

namespace thinwire {

using at::Tensor;

/// Walks named state in and out of a checkpoint. Names are unique within one codec or memory. A
/// visitor that loads replaces values, or leaves what it knows nothing of as it is.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  /// The same on all ranks.
  virtual void tensor(const std::string& name, Tensor& value) = 0;
  virtual void integer(const std::string& name, std::int64_t& value) = 0;
  /// This rank's own: flat, one value an element of the bucket, in its order. Kept by parameter, so
  /// that it survives another grouping. Undefined: nothing yet.
  virtual void elements(const std::string& name, Tensor& value) = 0;
  /// As elements(), but the same on all ranks. Default: elements().
  virtual void shared_elements(const std::string& name, Tensor& value);
  /// This rank's own, of any size, kept by name. Default: tensor().
  virtual void own(const std::string& name, Tensor& value);
};

struct Payload {
  std::vector<Tensor> parts;
  Bytes bytes() const;
};
struct Proposal {
  Tensor value;
  Combine op = Combine::max;
};
/// One firing of one exchange. `fires`: sent in this step. The exchanger sets
/// exchange, rank, ranks and round.
struct Slot {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  std::int32_t exchange = 0;
  Rank rank = 0;
  int ranks = 1;       ///< of the exchange's group
  int round = 0;       ///< of a codec with several
  bool counts = true;  ///< false: values are not fit to be sent; zeros go in their place, and
                       ///< memories stay as they are
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
  /// Parts that are sent one after the other in each step: the next is encoded from what the one
  /// before has left, once that has been merged.
  int rounds = 1;
  /// Payloads are halves: sums of them lose bits, and may overflow, unless they are made in single
  /// precision.
  bool halves = false;
  /// reduce() loses nothing: its payload decodes to what conclude() makes of all.
  bool closed = false;
  /// Needs commit() with what all ranks have sent together, and so a sum in the transport.
  bool merges = false;
  /// encode_rest() of single precision passes memory less often than its three parts.
  bool joins = false;
  Bytes proposals = 0;  ///< of a step, in all; they come on top of the payload, in plans too
};

/// Values are flat, dense and real: of one bucket, f64 where the bucket has f64, else f32.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual CodecTraits traits() const = 0;
  virtual Bytes max_bytes() const = 0;
  /// What travels. Its parts may be memory of the codec that the next encode uses again.
  virtual Payload encode(const Tensor& x, const Slot& slot) = 0;
  /// For a memory that adds: sum += x (undefined: nothing is added), what encode() makes of that,
  /// and in `sum` what the payload leaves of it. One that proposes nothing may join the passes over
  /// memory that this takes. Default: one after the other.
  virtual Payload encode_rest(Tensor& sum, const Tensor& x, const Slot& slot);
  /// Payload bytes may come from anywhere: DataError for what encode does not make. `out`
  /// undefined: becomes a tensor of its own (with set). Otherwise of the type of encoded values.
  virtual void decode(const Payload& payload, Tensor& out, Write mode) const = 0;
  /// A small tensor that ranks agree on before they encode; again until it returns nothing.
  /// Default: nothing to agree on.
  virtual std::optional<Proposal> propose(const Tensor& x, const Slot& slot);
  /// One payload of what several add up to. Default: decode, sum, conclude, encode.
  virtual Payload reduce(std::span<const Payload> payloads, int divisor, const Slot& slot);
  /// What payloads of one step, of all ranks in their order, come to; where all ranks have them all
  /// (gather). Default: decode, sum, conclude.
  virtual void combine(std::span<const Payload> payloads, int divisor, Tensor& out);
  /// What the sum of decoded payloads means, in place. `divisor`: ranks where a mean is wanted,
  /// else 1. Default: divides.
  virtual void conclude(Tensor& sum, int divisor) const;
  /// The merged payload, the same bytes on every rank, before it is decoded. Default: nothing.
  virtual void commit(Payload& merged);
  /// What `sent` leaves of x. `out` may be x itself. Default: x - decode(sent).
  virtual void residual(const Tensor& x, const Payload& sent, Tensor& out) const;
  /// x = 0 where `sent` has a value. Default: where its decoded value is not zero.
  virtual void forget(const Payload& sent, Tensor& x) const;
  virtual void visit_state(StateVisitor& visitor);
};
using CodecFactory =
    std::function<std::unique_ptr<Codec>(const Spec&, std::span<const TensorDesc>)>;
using CodecRegistry = Registry<CodecFactory>;
/// The codecs of this build and those added by add_codec; payloads() has their help.
const CodecRegistry& codecs();
/// A codec of the program's own, for the whole process. Call it before any engine is built, on all
/// ranks. `payload`: bytes of a payload, for plans; empty: plans do not know them.
void add_codec(const std::string& name, CodecFactory make, std::string help,
               PayloadFn payload = {});

}  // namespace thinwire
