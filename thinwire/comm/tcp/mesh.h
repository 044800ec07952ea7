// SPDX-License-Identifier: Apache-2.0
// What all communicators of one rank share: a connection to each other rank, one progress thread,
// the calls under way. Callers start calls under one lock and send at once what is short;
// everything else is done by the progress thread, which holds the lock only to look things up.
//
// Nothing is ever sent that the receiver has no place for: a long call's pieces go to a peer only
// after the peer has said that it has started the call too; short ones go at once and wait there if
// need be.
#pragma once
#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "thinwire/comm/membership.h"
#include "thinwire/comm/tcp/call.h"
#include "thinwire/comm/tcp/reactor.h"

namespace thinwire::tcp {

class Mesh;

/// Waits for one call; knows how to say who is missing.
class CallPending final : public Pending {
 public:
  explicit CallPending(std::weak_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}
  Call* call = nullptr;  ///< under the mesh's lock; null once it is over
  Signature signature;
  std::string name;  ///< of a barrier

 protected:
  std::exception_ptr expired(Seconds waited_s) override;

 private:
  std::weak_ptr<Mesh> mesh_;
};

/// A piece that has a place in a peer's queue.
struct Queued {
  Segment segment;
  Call* call = nullptr;  ///< whose memory it is in; null: the header is all
  std::int64_t order = 0;
};

/// Pieces to one peer, in the order of their calls.
class SendQueue {
 public:
  bool empty() const { return head_ == items_.size(); }
  std::size_t size() const { return items_.size() - head_; }
  Queued& at(std::size_t i) { return items_[head_ + i]; }
  /// Behind what has the same or a smaller order, but never among the first `fixed`, which are on
  /// their way.
  void insert(const Queued& item, std::size_t fixed);
  void pop_front();
  void reserve(std::size_t places) { items_.reserve(places); }
  bool holds_calls() const;  ///< whether some call waits for a piece to be sent
  void clear();

 private:
  std::vector<Queued> items_;
  std::size_t head_ = 0;
};

/// Bytes of a message or of a short call that this rank has not started yet.
struct Early {
  Rank from = -1;  ///< world rank
  Frame frame;
  std::vector<std::byte> bytes;
  bool complete = true;
  Call* claimed = nullptr;  ///< a receive that waits for the rest of it
};

struct Peer {
  explicit Peer(int connected) : fd(connected) {}
  const int fd;
  // Sending.
  SendQueue queue;
  std::size_t fixed = 0;  ///< pieces at the front that are being sent
  std::size_t sent = 0;   ///< bytes of the first piece, header included, that are gone
  bool sending = false;   ///< the progress thread is in sendmsg
  bool armed = false;     ///< waits for room in the socket
  /// Takes nothing any more. What it has sent before may still wait in the socket, so the end of
  /// the reading decides whether anybody misses something.
  bool deaf = false;
  bool closed = false;
  // Eager bytes, modulo 2^32: those sent to the peer and those of them that it has taken in; those
  // of the peer that this rank has taken in, and how much of that the peer has been told.
  std::uint32_t eager_sent = 0, eager_acked = 0, taken = 0, told = 0;
  // Receiving; the progress thread alone.
  FrameBytes header;
  std::size_t header_got = 0;
  bool in_payload = false;
  std::array<std::byte, 8192> stage;
  Frame frame;
  Call* call = nullptr;
  std::unique_ptr<Early> early;
  std::byte* place = nullptr;
  std::uint32_t got = 0;
};

struct GroupState {
  std::shared_ptr<const GroupInfo> info;
  std::int64_t next = 0;  ///< sequence of the next collective
  std::int64_t splits = 0;
  std::vector<Signature> last;  ///< of the latest collectives, by sequence modulo size
  CommCounters counters;
};

class Mesh : public std::enable_shared_from_this<Mesh> {
 public:
  /// Collective: connects to all other ranks. `ports`: first and last, 0 for any.
  static std::shared_ptr<Mesh> make(std::shared_ptr<Membership> membership, const Options& options,
                                    std::pair<int, int> ports);
  ~Mesh();
  const std::shared_ptr<Membership>& membership() const { return membership_; }
  const Options& options() const { return options_; }
  std::string congestion() const;  ///< of the data connections; empty with one rank

  void add_group(std::shared_ptr<const GroupInfo> info);
  void drop_group(std::uint64_t id);
  std::int64_t next_split(std::uint64_t id);
  CommCounters counters(std::uint64_t id);

  /// A fresh call of this group with its pending result; fill signature, buffers and counts, then
  /// start it.
  Call& fresh_call(const std::shared_ptr<const GroupInfo>& group);
  Handle start(Call& call, const std::string& name = {});
  Handle start_message(Call& call);

  std::exception_ptr expired(CallPending& pending, Seconds waited_s);

 private:
  Mesh(std::shared_ptr<Membership> membership, const Options& options);

  void make_room();
  void refuse_if_over(const Signature& signature);

  // announce.cpp; with the lock held
  Handle publish(Call& call);
  void introduce(Call& call);
  void emit_to(Call& call, Rank peer, bool eager = false);
  Call* find(std::uint64_t group, std::int64_t sequence);
  void take_announcement(Rank world, const Frame& frame);
  void take_posted(Call& call, Rank peer, const Signature& theirs);
  bool differs_from_past(const GroupState& state, Rank world, const Frame& frame);
  void disagree_on_group(Rank world, const Frame& frame);
  void disagree(const Call& call, Rank peer, const Signature& theirs);
  void finish_early(std::unique_ptr<Early> early);
  void replay_early(Call& call);
  void replay(Call& call, Rank peer, const Early& early);
  void try_complete(Call& call);
  void release(Call& call);

  // endings.cpp; the first three with the lock held, the others take it
  std::string missing_ranks(const Call& call) const;
  void close_peer(Rank world, const std::string& why);
  void suspect(Rank world, const std::string& why);  ///< it is needed and its connection is closed
  /// Whether the end is put off, for calls whose bytes are still on their way.
  bool await_last_bytes(const Fault& fault);
  int report_suspect();  ///< progress thread, lock free; how long to sleep at most, in ms
  void end_all(const Fault& fault);

  // messages.cpp; with the lock held
  Call* waiting_receive(std::uint64_t group, Rank from_world, const MessageId& id);
  bool find_early_message(Call& receive);
  void bind(Call& receive, Rank from_world, const Frame& frame);
  void take_offer(Rank from_world, const Frame& frame);
  void take_accept(Rank from_world, const Frame& frame);
  void fill_from(Call& receive, Early& early);

  // wire.cpp
  void count_call(GroupState* group);
  void enqueue(Rank world, const Segment& segment, Call* call, std::int64_t order,
               GroupState* group);
  void run();                                   ///< the progress thread
  bool take_inbox();                            ///< false: the mesh ends
  void send_now(Rank world);                    ///< caller's thread, lock held: short queues only
  void flush_later();                           ///< lock held
  void flush(Rank world);                       ///< progress thread
  void flush_due();                             ///< progress thread: whoever has something waiting
  void advance(Rank world, std::size_t bytes);  ///< lock held
  void arm_write(Rank world, bool armed);

  // incoming.cpp; progress thread
  void read(Rank world);
  bool consume(Rank world, std::size_t bytes);
  bool take_header(Rank world);
  void place_data(Rank world);  ///< lock held
  bool finish_frame(Rank world);
  void finish_data(Rank world, Call& call);

  // early.cpp; with the lock held
  bool has_room(Rank world, Bytes bytes);
  void sent_eagerly(Rank world, Frame& frame);
  void take_in(Rank world, const Frame& frame);
  std::unique_ptr<Early> fresh_early(Rank world, const Frame& frame);
  void drop_early(std::size_t at);
  void place_message(Rank world);

  Rank group_rank(const GroupInfo& info, Rank world) const;
  GroupState* group(std::uint64_t id);
  Peer& peer(Rank world) { return *peers_[static_cast<std::size_t>(world)]; }

  const std::shared_ptr<Membership> membership_;
  const Options options_;
  const std::uint64_t run_;
  Reactor reactor_;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< by world rank; null for this one
  std::thread thread_;
  std::shared_ptr<void> subscription_;

  std::mutex inbox_mutex_;  ///< taken last, for a moment
  std::optional<Fault> inbox_;
  bool ending_ = false;

  mutable std::mutex mutex_;
  std::condition_variable stopped_changed_;
  bool stopped_ = false;  ///< the progress thread touches no caller's memory any more
  std::optional<Fault> fault_;
  struct Suspect {
    Fault fault;
    Deadline due;
  };
  std::optional<Suspect> suspect_, dying_;
  bool flush_posted_ = false;
  std::int64_t next_order_ = 0, next_message_ = 0;
  std::map<std::uint64_t, GroupState> groups_;
  std::vector<std::unique_ptr<Call>> calls_;  ///< all that were ever needed at once; reused
  std::vector<Call*> active_;
  std::vector<std::unique_ptr<Early>> early_, spare_early_;
  std::vector<Segment> pieces_;                     ///< scratch, under the lock
  std::vector<std::pair<Rank, Segment>> results_;   ///< scratch of the progress thread
  std::vector<Rank> due_;                           ///< scratch of the progress thread
  std::vector<std::pair<Rank, Segment>> replayed_;  ///< scratch, under the lock
};

/// Collective: one connected socket to each other rank, by world rank; -1 for this one.
std::vector<int> connect_all(Membership& membership, const std::string& agreed,
                             std::pair<int, int> ports);

}  // namespace thinwire::tcp
