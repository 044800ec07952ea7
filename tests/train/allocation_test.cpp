// SPDX-License-Identifier: Apache-2.0
// No allocation of ours in a step in steady state. A program of its own, for it replaces operator
// new.
//
// What counts as ours: an allocation on a rank's thread inside the engine (begin, mark, backward)
// whose nearest caller outside the C++ runtime lies in this program, where the library is linked
// statically. What torch allocates for the graph, for gradients and for its own calls has its
// nearest caller in torch's libraries. The thread of tcp is not counted: a message that comes
// before its call is kept in memory that grows to the largest such message (comm/tcp/early.cpp).
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/train/sync_ranks.h"

extern "C" char __executable_start, etext;

namespace {

struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool has(const void* at) const {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    return address >= begin && address < end;
  }
};
Range program, runtime;
std::atomic<bool> steady{false};
std::atomic<int> ours{0}, all{0};
thread_local bool in_engine = false, looking = false;

constexpr int kFrames = 24, kKept = 8;
std::array<std::array<void*, kFrames>, kKept> kept;

void find_ranges() {
  program = {reinterpret_cast<std::uintptr_t>(&__executable_start),
             reinterpret_cast<std::uintptr_t>(&etext)};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void*) {
        if (!std::strstr(info->dlpi_name, "libstdc++")) return 0;
        runtime.begin = info->dlpi_addr;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_LOAD)
            runtime.end = std::max(runtime.end, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr +
                                                    info->dlpi_phdr[i].p_memsz);
        return 0;
      },
      nullptr);
  void* once[4];
  ::backtrace(once, 4);  // its first call allocates
}

__attribute__((noinline)) void look() {
  if (!steady || looking || !in_engine) return;
  looking = true;
  ++all;
  std::array<void*, kFrames> frames{};
  const int count = ::backtrace(frames.data(), kFrames);
  int caller = 2;  // after this function and operator new
  while (caller < count && runtime.has(frames[static_cast<std::size_t>(caller)])) ++caller;
  if (caller < count && program.has(frames[static_cast<std::size_t>(caller)]))
    if (const int number = ours++; number < kKept) kept[static_cast<std::size_t>(number)] = frames;
  looking = false;
}

__attribute__((noinline)) void* allocate(std::size_t bytes, std::size_t alignment) {
  void* memory =
      alignment > alignof(std::max_align_t)
          ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
          : std::malloc(bytes > 0 ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  look();
  return allocate(bytes, 1);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  look();
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace thinwire::test {
namespace {

template <class Fn>
void inside_engine(const Fn& fn) {
  in_engine = true;
  fn();
  in_engine = false;
}

void steps(RankWorld& world, bool set_to_none) {
  std::vector<at::Tensor> p;
  std::vector<NamedTensor> list;
  for (int i = 0; i < 8; ++i) {
    p.push_back(parameter(at::ones({i % 2 == 0 ? 3000 : 7})));
    list.push_back({"p" + std::to_string(i), p.back()});
  }
  auto mean = at::zeros({4});
  GradientSync sync(list, {{"mean", mean}}, world.comm, world.options("size_cap{bytes=20000}"));
  for (int step = 0; step < 12; ++step) {
    if (step == 6) {
      world.comm.barrier("warm");
      if (world.rank == 0) steady = true;
      world.comm.barrier("steady");
    }
    inside_engine([&] { sync.begin(); });
    at::Tensor out = at::zeros({});
    for (auto& one : p) out = out + (one * (world.rank + 1)).sum();
    at::Tensor* const outputs[] = {&out};
    inside_engine([&] { sync.mark(outputs); });
    inside_engine([&] { out.backward(); });
    EXPECT_TRUE(all_equal(p[0].grad(), 1.5));
    sgd(p, 0, set_to_none);
  }
  world.comm.barrier("end");
  steady = false;
}

}  // namespace

TEST(Allocation, NoneOfOursInASteadyStep) {
  const Watchdog watchdog;
  find_ranges();
  for (const std::string transport : {"local", "tcp"})
    for (const bool set_to_none : {false, true}) {
      ours = all = 0;
      auto comms = make_local(2, 20, transport);
      ranks_as_threads(2, [&](Rank rank) {
        at::set_num_threads(1);
        RankWorld world{.rank = rank, .comm = *comms[static_cast<std::size_t>(rank)]};
        steps(world, set_to_none);
      });
      EXPECT_EQ(ours, 0) << transport << (set_to_none ? ", set to none" : ", kept");
      EXPECT_GT(all, 0) << "torch's own allocations are seen, so ours would be";
      for (int i = 0; i < std::min<int>(ours.load(), kKept); ++i) {
        std::printf("allocation %d from:", i);
        for (const void* frame : kept[static_cast<std::size_t>(i)])
          if (program.has(frame))
            std::printf(" 0x%zx", reinterpret_cast<std::uintptr_t>(frame) - program.begin);
        std::printf("\n");
      }
    }
}

TEST(Allocation, OneOfOursWouldBeSeen) {
  find_ranges();
  in_engine = true;
  ours = 0;
  steady = true;
  const auto one = std::make_unique<std::array<char, 100>>();
  const std::string other(100, 'x');  // made by the runtime for us
  const volatile void* const keep[] = {static_cast<const void*>(one.get()), other.data()};
  steady = false;
  in_engine = false;
  EXPECT_NE(keep[0], keep[1]);
  EXPECT_EQ(ours, 2);
}

}  // namespace thinwire::test
