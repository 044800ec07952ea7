// SPDX-License-Identifier: Apache-2.0
// Part of the codec autoencoder: its convolutions, and their training without autograd. Plain loops
// of one order of sums on one thread, so that a step is one function of weights and data, and ranks
// with the same of both stay equal whatever their vector instructions and threads.
//   encoder: kernel 3, stride 2, w, 2w, 4w, w channels, then 1 x 1 to 4; leaky ReLU between
//   decoder: transposed, kernel 3, stride 2, w/2, w, 2w, w/2 channels; then, beside one channel of
//            innovations where there are any, 1 x 1 to one
// so 16 m values become a code of 4 m numbers.
#pragma once
#include <string>
#include <vector>

#include "thinwire/codec/codec.h"

namespace thinwire {

/// One convolution, and leaky ReLU after it unless it is linear.
struct ConvLayer {
  std::int64_t from = 0, to = 0, kernel = 3;  ///< kernel 1 has stride 1, else stride 2
  bool up = false;                            ///< transposed: twice as long
  bool linear = false;
  Tensor weight, bias;         ///< {kernel, from, to} and {to}
  Tensor first[2], second[2];  ///< Adam's moments of both
  std::vector<float> grad[2];  ///< of both, since the last step
};

/// Layers one after the other. A row is {length, channels}, channels side by side.
class ConvStack {
 public:
  using Row = std::vector<float>;
  /// What went into each layer, and what came out in the end.
  using Pass = std::vector<Row>;

  ConvStack() = default;
  /// The same weights for the same seed, on every rank.
  ConvStack(std::vector<ConvLayer> layers, std::uint64_t seed);
  Pass forward(Row row) const;
  /// The gradient of what went in, for that of what came out. Adds to the gradients of weights.
  Row backward(const Pass& pass, Row grad);
  /// A step of Adam with the gradients since the last one.
  void step(double rate);
  /// Tensors of another shape are left as they are.
  void visit_state(StateVisitor& visitor, const std::string& name);
  const std::vector<ConvLayer>& layers() const { return layers_; }

 private:
  std::vector<ConvLayer> layers_;
  std::int64_t steps_ = 0;
};

/// One encoder and one or more decoders of its code.
class AutoencoderNet {
 public:
  /// `innovates`: decoders read a row of innovations as well.
  AutoencoderNet(std::int64_t width, bool innovates, std::uint64_t seed);
  /// `count` decoders; new ones start as the first one did.
  void resize(std::int64_t count);
  std::int64_t decoders() const { return static_cast<std::int64_t>(decoders_.size()); }
  /// 16 m values to 4 m.
  Tensor encode(const Tensor& values) const;
  /// A code of 4 m numbers to 16 m values. `innovation`: as many, or undefined.
  Tensor decode(const Tensor& code, std::int64_t decoder, const Tensor& innovation) const;
  /// Before the step that train() takes, sums over rows.
  struct Loss {
    double error = 0;       ///< of what is decoded, as a share of the energy of values
    double similarity = 0;  ///< mean square distance of codes from the leader's
  };
  /// One step of Adam on half the mean square error of each row as its decoder makes it of the code
  /// of row `leader`, and half that of its code from the leader's. Rows {count, 16 m}: one a
  /// decoder. `innovations`: as many, or undefined.
  Loss train(const Tensor& values, const Tensor& innovations, std::int64_t leader, double rate);
  void visit_state(StateVisitor& visitor, const std::string& name);

 private:
  struct Decoder {
    ConvStack up, last;
  };
  Decoder fresh() const;
  /// What `up` has made, with a channel of innovations beside it.
  ConvStack::Row beside(const ConvStack::Row& made, const Tensor& innovation) const;
  /// One row of training: adds to gradients, and to that of the code. The square error.
  double learn(std::int64_t decoder, const Tensor& values, const Tensor& innovation,
               const ConvStack::Row& code, ConvStack::Row& to_code);
  std::int64_t width_;
  bool innovates_;
  std::uint64_t seed_;
  ConvStack encoder_;
  std::vector<Decoder> decoders_;
};

}  // namespace thinwire
