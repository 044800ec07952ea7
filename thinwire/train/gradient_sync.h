// SPDX-License-Identifier: Apache-2.0
// The data-parallel engine: gradients leave from autograd hooks in the buckets of a plan while the
// backward still runs, are averaged, and stand in .grad when backward() returns. DataParallel (C++,
// Python) is a thin front of it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "thinwire/comm/comm.h"
#include "thinwire/core/notice.h"
#include "thinwire/plan/plan.h"
#include "thinwire/plan/trace.h"

namespace thinwire {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Which gradients are searched for values that are not finite. The step header tells all ranks;
/// one notice on each names ranks, parameters, step and counts. A step of a form
/// with memories does not count then: gradients are left undefined, and memories as they were.
enum class FiniteCheck : std::uint8_t {
  none,
  copied,  ///< those copied into their bucket, on the way, and small ones that are kept there: free
  all      ///< every gradient; kept ones (not set to none, or accumulated) cost a pass of reading
};

struct SyncOptions {
  std::string strategy = "sync_sgd";  ///< spec of a strategy
  std::string grouping = "size_cap";  ///< spec of a grouping
  std::string form = "none";          ///< chain of memories and a codec
  std::string algorithm;              ///< direct, gather, shard, tree, hierarchical; empty: chosen
  std::string plan;                   ///< JSON text of a plan; empty: made from grouping and form
  std::string order = "plan";         ///< in which buckets start; "agreed": as they become ready
  std::uint64_t seed = 0;             ///< of codecs that draw numbers
  bool broadcast_buffers = true;      ///< rank 0's buffers before each training forward
  std::vector<std::string> excluded;  ///< names of parameters and buffers that stay local
  FiniteCheck finite = FiniteCheck::copied;
  NoticeFn notice;  ///< empty: thinwire::notice
  std::function<void()>
      after_first_sync;  ///< called between the first synchronisation and its check (fault tests)
};

struct StepStats {
  std::int64_t step = -1;
  Seconds compute_s = 0;    ///< from begin() to the end of the local backward
  Seconds exposed_s = 0;    ///< blocked at the end of the backward
  Bytes wire_bytes = 0;     ///< sent by this rank since the step before, headers included
  Bytes payload_bytes = 0;  ///< of these, payload
};

/// One model on one rank. Everything marked collective is called by all ranks, in the same order.
///
/// A step: begin(), forward, mark() of the outputs, backward. The end of the outermost backward
/// exchanges what is left and waits; its errors come out of backward(). Gradients are of the shape
/// (*), dtype and strides of the parameters and live in buckets: .grad of one step is overwritten
/// by the next.
class GradientSync {
 public:
  /// Collective. Compares names, shapes, dtypes and order on all ranks (ConfigError, before any
  /// data message), agrees on the plan, gives every rank the values of rank 0 and checks that they
  /// arrived. Parameters are listed once even if they are shared; `world` outlives the engine.
  GradientSync(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers, Comm& world,
               SyncOptions options = {});
  ~GradientSync();
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  /// Before a forward that a backward will follow. Collective: sends buffers, and agrees anew where
  /// parameters have changed their dtype or have been frozen or unfrozen. Inside a backward
  /// (recomputed segments) it does nothing.
  void begin();
  /// The module's outputs, so that a backward through them is seen even if it reaches no parameter.
  void mark(std::span<at::Tensor* const> outputs);
  /// After the optimizer: the strategy's exchanges of that phase. Collective where it has any
  /// (sync_sgd has none).
  void end_update();
  /// Ends a step whose backward no output or parameter has shown (see docs/footguns.md). Otherwise
  /// it does nothing.
  void finish();

  /// Off: backwards only add up (in .grad). The next backward with it on exchanges the whole sum.
  /// Returns the former.
  bool set_sync(bool on);
  bool sync() const;

  /// States this rank's samples of the coming step; gradients are of the mean over them.
  /// Collective: where counts differ, ranks weigh by them. Counts for one exchange.
  void set_samples(std::int64_t samples);
  /// Samples of all ranks as stated last; waits for their counts. -1: none stated.
  std::int64_t total_samples();
  /// A step of a rank that has no batch left: takes part with weight 0 after set_samples(0).
  void join_without_batch();

  /// Replaces the buffers (by tensors of the same shapes and dtypes), where the module has made new
  /// ones.
  void set_buffers(std::vector<NamedTensor> buffers);

  /// What travels from the coming step on. Collective, between steps. What memories hold back is
  /// kept, value by value of each parameter, for memories of the same name, whatever their options,
  /// the codec behind them and the grouping; what a form has no memory for is dropped, and a notice
  /// on each rank says how much.
  void set_form(const std::string& form);
  /// Another plan (as JSON text) from the coming step on, in place of grouping and form, with
  /// memories as in set_form. It holds until the model changes: what it trains, its shapes, its
  /// dtypes. Then grouping and form count again. Collective, between steps. ConfigError on all
  /// ranks where it does not fit the model or differs between ranks, DataError where it is no plan;
  /// the old plan goes on.
  void set_plan(const std::string& plan);
  /// Agrees anew where the model has changed, as the coming begin() would, and leaves nothing of
  /// that to it. Collective, between steps. False where it is not between steps, for a backward
  /// has ended with an error: begin() says more.
  bool follow_change();
  /// What memories and codecs keep, of all ranks: "rank0/..." of each of them and "all/..." of all
  /// together, on rank 0 (empty on the others). Collective, between steps.
  std::vector<NamedTensor> form_state();
  /// Takes it up again, on any number of ranks: where there are others than then, the sum over
  /// ranks is kept. The same list on all ranks. Collective, before the first step or between two.
  void load_form_state(const std::vector<NamedTensor>& state);

  const StepStats& last_step() const;
  std::int64_t step() const;  ///< exchanges so far: the number of the coming step
  const Plan& plan() const;
  std::uint64_t plan_digest() const;
  Trace trace() const;
  Comm& group();  ///< this engine's own communicator

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// While it lives, backwards only add up.
class NoSync {
 public:
  explicit NoSync(GradientSync& sync) : sync_(sync), before_(sync.set_sync(false)) {}
  ~NoSync() { sync_.set_sync(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  GradientSync& sync_;
  bool before_;
};

}  // namespace thinwire
