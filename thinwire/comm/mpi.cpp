// SPDX-License-Identifier: Apache-2.0
// Transport `mpi`: Open MPI, started by mpirun. Non-blocking calls, looked after by one progress
// thread that sleeps. When a rank dies it is mpirun that decides: Open MPI ends all the others.
#define OMPI_SKIP_MPICXX 1  // the C++ bindings of 1997
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <climits>
#include <cstring>

#include "thinwire/comm/foreign.h"
#include "thinwire/comm/transports.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

void must(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(std::string(what) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

/// MPI ends the program noisily if it is not finalized; after a fault finalizing would wait for a
/// dead rank.
bool fault_seen = false;
void finalize() {
  int over = 0;
  MPI_Finalized(&over);
  if (!over && !fault_seen) MPI_Finalize();
}

void initialize() {
  int running = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&running);
  if (running) {
    MPI_Query_thread(&level);
  } else {
    must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    std::atexit(finalize);
  }
  if (level < MPI_THREAD_MULTIPLE)
    throw UnsupportedError(
        "mpi: needs MPI_THREAD_MULTIPLE, which this MPI or its caller did not grant");
}

int narrow(std::int64_t count) {
  if (count > INT_MAX)
    throw UnsupportedError("mpi: a call takes at most 2147483647 elements, got " +
                           std::to_string(count));
  return static_cast<int>(count);
}

/// The type a sum is computed in; complex numbers travel and add as pairs.
MPI_Datatype number_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::c64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::c128:
      return MPI_C_DOUBLE_COMPLEX;
    case DType::i64:
      return MPI_INT64_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i16:
      return MPI_INT16_T;
    case DType::i8:
      return MPI_INT8_T;
    case DType::u8:
    case DType::bool8:
      return MPI_UINT8_T;
    case DType::f16:
    case DType::bf16:
      return MPI_UINT16_T;  // moved, never summed
  }
  return MPI_BYTE;
}

MPI_Op operation(Combine op) {
  switch (op) {
    case Combine::max:
      return MPI_MAX;
    case Combine::min:
      return MPI_MIN;
    case Combine::bit_and:
      return MPI_BAND;
    case Combine::bit_or:
      return MPI_BOR;
    default:
      return MPI_SUM;
  }
}

class MpiCall final : public ForeignCall {
 public:
  explicit MpiCall(const ForeignRequest& request) : expects_(request.signature) {}
  bool ready() override {
    int done = 0;
    MPI_Status status;
    must(MPI_Test(&request, &done, &status), "mpi");
    if (done && expects_.kind == CallKind::recv) {
      int got = 0;
      MPI_Get_count(&status, number_type(expects_.dtype), &got);
      if (got != expects_.count)
        throw CommError("the ranks disagree: rank " + std::to_string(status.MPI_SOURCE) + " sent " +
                        std::to_string(got) + " elements for " + describe(expects_));
    }
    return done != 0;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<int> in_counts, in_offsets, out_counts,
      out_offsets;  // MPI reads them until the call is done

 private:
  Signature expects_;
};

void offsets(const std::vector<std::int64_t>& counts, std::vector<int>& narrow_counts,
             std::vector<int>& offsets) {
  std::int64_t at = 0;
  for (const std::int64_t count : counts) {
    narrow_counts.push_back(narrow(count));
    offsets.push_back(narrow(at));
    at += count;
  }
}

class MpiOps final : public ForeignOps {
 public:
  /// Collective. Two copies of `comm`: one for the progress thread, one for splitting in the
  /// caller's.
  explicit MpiOps(MPI_Comm comm) {
    must(MPI_Comm_dup(comm, &data_), "MPI_Comm_dup");
    must(MPI_Comm_dup(comm, &control_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(data_, &rank_);
    MPI_Comm_size(data_, &size_);
  }
  // Freeing a communicator is collective and would wait; MPI_Finalize does it.
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "mpi"; }
  bool sums(DType dtype, Combine) const override {
    return dtype != DType::f16 && dtype != DType::bf16;
  }
  std::unique_ptr<ForeignCall> start(const ForeignRequest& r) override;
  std::unique_ptr<ForeignOps> split(std::int64_t, int color,
                                    const std::vector<Rank>& members) override {
    int key = 0;
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i] == rank_) key = static_cast<int>(i);
    MPI_Comm part = MPI_COMM_NULL;
    must(MPI_Comm_split(control_, color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
    return part == MPI_COMM_NULL ? nullptr : std::make_unique<MpiOps>(part);
  }
  void park() override { fault_seen = true; }

 private:
  MPI_Comm data_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
};

std::unique_ptr<ForeignCall> MpiOps::start(const ForeignRequest& r) {
  auto call = std::make_unique<MpiCall>(r);
  const Signature& s = r.signature;
  const MPI_Datatype type = number_type(s.dtype);
  const int count = narrow(s.count);
  const auto tag = [&] { return tag_of(s.id, 15); };  // every MPI takes tags up to 32767
  switch (s.kind) {
    case CallKind::all_reduce:
      must(MPI_Iallreduce(MPI_IN_PLACE, r.out.data, count, type, operation(s.op), data_,
                          &call->request),
           "MPI_Iallreduce");
      break;
    case CallKind::all_gather:
      must(MPI_Iallgather(r.in.data, count, type, r.out.data, count, type, data_, &call->request),
           "MPI_Iallgather");
      break;
    case CallKind::all_to_all:
      offsets(r.in_counts, call->in_counts, call->in_offsets);
      offsets(r.out_counts, call->out_counts, call->out_offsets);
      must(MPI_Ialltoallv(r.in.data, call->in_counts.data(), call->in_offsets.data(), type,
                          r.out.data, call->out_counts.data(), call->out_offsets.data(), type,
                          data_, &call->request),
           "MPI_Ialltoallv");
      break;
    case CallKind::broadcast:
      must(MPI_Ibcast(r.out.data, count, type, s.root, data_, &call->request), "MPI_Ibcast");
      break;
    case CallKind::send:
      must(MPI_Isend(r.in.data, count, type, s.root, tag(), data_, &call->request), "MPI_Isend");
      break;
    case CallKind::recv:
      must(MPI_Irecv(r.out.data, count, type, s.root < 0 ? MPI_ANY_SOURCE : s.root, tag(), data_,
                     &call->request),
           "MPI_Irecv");
      break;
    default:
      throw UnsupportedError("mpi: " + describe(s));
  }
  return call;
}

std::unique_ptr<Comm> make_mpi(const Spec& spec, const JoinOptions& options) {
  SpecReader(spec).finish();
  initialize();
  auto ops = std::make_unique<MpiOps>(MPI_COMM_WORLD);
  JoinOptions join = options;
  join.rank = ops->rank();
  join.size = ops->size();
  join.address.clear();
  join.publish = [](const std::string& own) {
    char address[256] = {};
    std::strncpy(address, own.c_str(), sizeof address - 1);
    must(MPI_Bcast(address, sizeof address, MPI_CHAR, 0, MPI_COMM_WORLD), "MPI_Bcast");
    return std::string(address);
  };
  auto group = join.size == 1 ? local_group(1, join.timeout_s)[0] : join_group(join);
  return make_foreign(std::move(ops), std::move(group));
}

}  // namespace

void register_mpi(Registry<CommFactory>& registry) {
  registry.add("mpi", make_mpi, "Open MPI under mpirun; rank and size come from MPI");
}

}  // namespace thinwire
