// SPDX-License-Identifier: Apache-2.0
// One rank of bench/comm/against_gloo: all-reduces of plain MPI. Sizes come from the file
// COMMANDS<rank>, one a line; each is measured as `thinwire bench comm --size -` does it.
#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr double kBlock_s = 2e-3;

double cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

void reduce(void* data, std::size_t count, MPI_Datatype type, MPI_Op op) {
  MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), type, op, MPI_COMM_WORLD);
}

double block(std::vector<float>& data, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < calls; ++i) reduce(data.data(), data.size(), MPI_FLOAT, MPI_SUM);
  return (MPI_Wtime() - begin) / calls;
}

void check(std::size_t count, int rank, int ranks) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank)) % 64);
  reduce(data.data(), count, MPI_FLOAT, MPI_SUM);
  for (std::size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int r = 0; r < ranks; ++r)
      expected += static_cast<float>((i * 7 + static_cast<std::size_t>(r)) % 64);
    if (data[i] == expected) continue;
    std::fprintf(stderr, "all_reduce of %zu elements is wrong\n", count);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

void measure(std::size_t bytes, double seconds, int rank) {
  std::vector<float> data(bytes / 4);
  double pace = std::min(block(data, 1), block(data, 2));
  reduce(&pace, 1, MPI_DOUBLE, MPI_MAX);
  const int calls = std::clamp(static_cast<int>(kBlock_s / pace), 1, 1000);
  std::vector<double> times(
      static_cast<std::size_t>(std::clamp(seconds / (calls * pace), 1.0, 1000.0)));
  double used = cpu_s();
  for (double& time : times) time = block(data, calls);
  used = cpu_s() - used;
  reduce(&used, 1, MPI_DOUBLE, MPI_SUM);
  reduce(times.data(), times.size(), MPI_DOUBLE, MPI_MAX);
  std::sort(times.begin(), times.end());
  const double gigabytes =
      static_cast<double>(bytes) * calls * static_cast<double>(times.size()) / 1e9;
  if (rank != 0) return;
  std::printf("{\"bytes\": %zu, \"time_s\": %.9g, \"cpu_s_per_gb\": %.6g}\n", bytes,
              times[times.size() / 2], used / (2 * gigabytes));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_mpi_rank COMMANDS SECONDS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::ifstream commands(argv[1] + std::to_string(rank));
  std::vector<std::size_t> checked;
  for (std::size_t bytes = 0; commands >> bytes;) {
    if (std::find(checked.begin(), checked.end(), bytes) == checked.end())
      check(bytes / 4, rank, ranks);
    checked.push_back(bytes);
    measure(bytes, std::atof(argv[2]), rank);
  }
  MPI_Finalize();
}
