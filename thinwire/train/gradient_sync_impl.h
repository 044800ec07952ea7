// SPDX-License-Identifier: Apache-2.0
// The parts of GradientSync; included by its sources alone.
#pragma once
#include <map>
#include <optional>
#include <set>

#include "thinwire/comm/readiness.h"
#include "thinwire/exchange/buckets.h"
#include "thinwire/strategy/strategy.h"
#include "thinwire/train/gradient_sync.h"
#include "thinwire/train/hooks.h"

namespace thinwire {

/// Buffers of one dtype, which travel in one message.
struct BufferMessage {
  at::Tensor flat;
  std::vector<at::Tensor> slots;
  std::vector<int> members;  ///< indices into the buffers
};

/// A parameter that is trained and exchanged. Tensor i of the plan.
struct Trained {
  std::string name;
  at::Tensor tensor;
  at::Tensor
      kept;  ///< .grad of a parameter this backward has not touched, while its bucket travels
  at::Tensor late;              ///< contributions that came after its bucket had started
  int count = 0;                ///< contributions in this backward
  int expected = 0;             ///< contributions to wait for before its bucket may start
  int below = 0;                ///< backwards in a row with fewer than expected
  bool touched = false;         ///< has contributed since the last exchange
  bool gone = false;            ///< its bucket has started in this step
  bool owned = false;           ///< when it last contributed, .grad alone referred to its memory
  std::int64_t not_finite = 0;  ///< values of this rank's gradient, as far as searched
};

struct GradientSync::Impl : BackwardListener, std::enable_shared_from_this<Impl> {
  Impl(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers, Comm& world,
       SyncOptions options);

  // gradient_sync.cpp: what is set up once, and again after a change
  void set_up(const std::string& when);
  Plan make_plan();
  void check_plan_fits(const Plan& plan) const;
  void first_synchronisation();
  void broadcast_from_first(std::span<at::Tensor> tensors, std::int32_t part);
  void prepare_buffers();
  void send_buffers();
  std::string change() const;
  void meet_for_change(const std::string& what);
  bool is_excluded(const std::string& name) const;

  // gradient_sync_form.cpp: what memories and codecs keep
  void set_form(const std::string& form);
  void set_plan(const std::string& plan);
  void change_to(SyncOptions wanted, const std::string& what);
  std::vector<NamedTensor> form_state();
  void load_form_state(const std::vector<NamedTensor>& state);
  void keep_form_state(const FormState& before);

  // gradient_sync_step.cpp: one step
  void begin();
  void follow_change();
  void tell(Phase phase, std::int64_t at_step, int bucket = -1);
  void end_update();
  void contribution(int index, const at::Tensor& added) override;
  void reached() override;
  void ended(bool nested) override;
  void open();
  void refuse_kind(const at::Tensor& grad, const Trained& one) const;
  void put(int index, const at::Tensor& grad, bool owned);
  void search_kept(Trained& one, const at::Tensor& grad) const;
  void keep_late(Trained& one, at::Tensor& grad);
  void start_ready();
  void start_bucket(int bucket);
  bool finite_in(int bucket) const;
  void finish();
  void finish_alone();
  void exchange_rest();
  void add_late();
  void hand_out();
  bool was_sent(int index) const;
  void learn();
  void close();
  void remember_failure(const std::string& text);
  bool any_started() const { return next_bucket > 0 || agreeing; }

  // gradient_sync_order.cpp: the order of buckets, where ranks agree on it
  void set_up_order();
  int awaited(const Trained& one) const;
  void say_ready(bool all);
  void start_cycle();
  void start_agreed();
  void agree_on_ready();
  void agree_on_rest();

  // gradient_sync_header.cpp: what ranks tell each other beside gradients
  void send_header();
  void check_header() const;
  void report_not_finite();
  void report_unused();
  double weight();
  void state_samples(std::int64_t samples);
  std::int64_t total_samples();
  std::int64_t* header_of(int rank) {
    return headers.data() + static_cast<std::size_t>(rank) * header_words;
  }
  const std::int64_t* header_of(int rank) const {
    return headers.data() + static_cast<std::size_t>(rank) * header_words;
  }
  bool bit(int rank, std::size_t first_word, int index) const {
    return (static_cast<std::uint64_t>(
                header_of(rank)[first_word + static_cast<std::size_t>(index) / 64]) >>
            (index % 64)) &
           1;
  }
  bool used(int rank, int index) const { return bit(rank, kFixedWords, index); }
  bool any_not_finite() const {
    for (int rank = 0; rank < world.size(); ++rank)
      if (has_flag(rank, kNotFinite)) return true;
    return false;
  }
  bool came_late(int rank, int index) const { return bit(rank, kFixedWords + bit_words, index); }
  bool used_anywhere(int index) const;
  bool has_flag(int rank, std::int64_t flag) const { return (header_of(rank)[2] & flag) != 0; }

  /// step, sequence hash, flags, samples; then the bits (step_header_words)
  static constexpr std::size_t kFixedWords = 4;
  static constexpr std::int64_t kExcused = 1, kNotFinite = 2;  ///< flags

  Comm& world;
  SyncOptions options;
  std::vector<NamedTensor> all_parameters, buffers;
  Recorder recorder;

  std::vector<Trained> trained;
  std::vector<int> position;           ///< of each trained parameter in all_parameters
  std::vector<at::ScalarType> dtypes;  ///< of all parameters, at the last set-up
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<at::Tensor> tensors;  ///< of trained
  std::unique_ptr<Strategy> strategy;
  std::vector<Exchange> declarations;  ///< of the strategy
  std::unique_ptr<Exchanger> exchanger;
  std::unique_ptr<Buckets> buckets;
  std::unique_ptr<Step> now;  ///< what the strategy sees
  std::unique_ptr<ParameterHooks> hooks;
  std::vector<int>
      missing;  ///< per bucket: parameters whose expected contributions are not all there
  std::vector<int> exchange_of;  ///< of gradients, per bucket
  std::vector<BufferMessage> buffer_messages;

  bool alone = false;               ///< one rank, nothing to exchange
  bool exchanges_gradients = true;  ///< else no hooks and no buckets
  bool has_memories = false;        ///< gradients travel in a form with memories
  bool skips = false;               ///< the step does not count
  bool plan_was_set = false;        ///< by set_plan: holds until the model changes
  bool skipped_is_frozen = false;   ///< a parameter of which nothing is sent has no gradient then
  bool synchronising = true;
  bool learned = false;        ///< expected counts are known
  bool is_open = false;        ///< a backward is running
  bool begun = false;          ///< begin() was called since the last exchange
  bool nested_end = false;     ///< a nested backward has ended in this round
  bool excused = false;        ///< this rank takes part without a batch
  std::int64_t listener = -1;  ///< this engine's number for mark()
  int last_backward = -1;
  int next_bucket = 0;  ///< how many have started: with order = plan, the number of the next one
  std::unique_ptr<Readiness> readiness;   ///< only with order = agreed
  std::vector<std::string> bucket_names;  ///< as the readiness knows them
  std::map<std::string, int> bucket_named;
  std::vector<bool> said_ready;  ///< by bucket, in this step
  bool agreeing = false;         ///< a cycle has been started in this step
  std::string broken;            ///< why no further step is possible

  std::int64_t step = 0;
  std::uint64_t sequence = 0;
  int header_id = -1;  ///< the header's exchange
  std::size_t bit_words = 0, header_words = 0;
  std::vector<std::int64_t> headers;  ///< of all ranks
  Handle header_handle;
  std::set<std::uint64_t> reported;
  std::uint64_t not_finite_on = 0;  ///< the ranks of the last step that had such values, hashed

  std::vector<std::int64_t> counts;  ///< samples of all ranks
  Handle counts_handle;
  bool counts_stated = false;
  std::optional<double> weight_now;

  Seconds begun_s = 0, backward_end_s = 0, last_contribution_s = 0, exchanged_s = 0;
  CommCounters counters_before;
  StepStats stats;
};

}  // namespace thinwire
