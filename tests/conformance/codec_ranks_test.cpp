// SPDX-License-Identifier: Apache-2.0
// Every registered codec between ranks: known failures of comparable systems, inputs and results as
// the list has them.
#include <cmath>

#include "tests/conformance/codec_specs.h"
#include "tests/exchange/one_exchange.h"
#include "thinwire/codec/codec.h"

namespace thinwire::test {
namespace {

/// `fn` with every spec; what goes wrong names it.
template <class Fn>
void for_every_spec(const Fn& fn) {
  for (const std::string& spec : codec_specs()) {
    SCOPED_TRACE(spec);
    fn(spec);
  }
}

std::string sum_of(const at::Tensor& tensor) {
  return std::to_string(tensor.to(at::kDouble).sum().item<double>());
}

void expect_finite_and_same(RankWorld& world, const at::Tensor& out, const std::string& what) {
  EXPECT_TRUE(out.isfinite().all().item<bool>()) << what;
  must_agree(*world.comm.membership(), what, sum_of(out));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(, KnownFailures, ::testing::Values(RanksAre::threads, RanksAre::processes),
                         [](const auto& info) {
                           return info.param == RanksAre::threads ? "threads" : "processes";
                         });

TEST_P(KnownFailures, KF13_AParameterWithoutElementsInEveryForm) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    for_every_spec([&](const std::string& form) {
      const auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
      auto first = parameter(at::randn({10, 10}, generator)),
           second = parameter(at::zeros({0, 10}));
      auto bias = parameter(at::zeros({0})), alone = parameter(at::zeros({0}));
      SyncOptions options = world.options("wfbp");
      options.form = form;
      GradientSync sync({{"0", first}, {"1.weight", second}, {"1.bias", bias}}, {}, world.comm,
                        options);
      GradientSync empty({{"empty", alone}}, {}, world.comm, options);
      const auto x = at::ones({4, 10}) * (world.rank + 1);
      for (int step = 0; step < 2; ++step) {
        backward(sync, [&] {
          const auto h = at::linear(x, first);
          return h.sum() + at::linear(h, second, bias).sum();
        });
        expect_finite_and_same(world, first.grad(), form);
        if (form == "none") {
          EXPECT_TRUE(all_equal(first.grad(), 6.0));
        }
        EXPECT_EQ(second.grad().sizes().vec(), (std::vector<std::int64_t>{0, 10}));
        EXPECT_EQ(bias.grad().sizes().vec(), (std::vector<std::int64_t>{0}));
        sgd({first, second, bias}, 0);
        backward(empty, [&] { return alone.sum(); });
        EXPECT_EQ(alone.grad().numel(), 0);
      }
    });
  });
}

TEST_P(KnownFailures, KF14_ComplexParametersInEveryForm) {
  const Watchdog watchdog;
  sync_ranks(2, [](RankWorld& world) {
    for_every_spec([&](const std::string& form) {
      auto z = parameter(at::full({2}, c10::complex<float>(1, 1), at::kComplexFloat));
      SyncOptions options = world.options();
      options.form = form;
      GradientSync sync({{"z", z}}, {}, world.comm, options);
      backward(sync, [&] {
        const auto y = z.conj();  // its gradient arrives marked as conjugated
        return at::real(y * y.conj()).sum() * (world.rank + 1);
      });
      expect_finite_and_same(world, at::view_as_real(z.grad()), form);
      if (form == "none") {
        EXPECT_TRUE(
            at::equal(z.grad(), at::full({2}, c10::complex<float>(3, 3), at::kComplexFloat)));
      }
    });
  });
}

TEST_P(KnownFailures, KF15_EveryShapeIsAccepted) {
  const Watchdog watchdog;
  sync_ranks(3, [](RankWorld& world) {
    const std::vector<std::vector<std::int64_t>> shapes{{}, {1}, {7}, {3, 5}, {2, 3, 5, 7}, {1031}};
    for_every_spec([&](const std::string& form) {
      for (const auto& shape : shapes) {
        const TensorDesc desc{"x", DType::f32, shape};
        const at::Tensor ramp = at::arange(elements(desc), at::kFloat).view(shape);
        OneExchange one(world.comm, {desc}, form);
        const at::Tensor out = one.step(ramp * (world.rank + 1));
        EXPECT_EQ(out.sizes(), ramp.sizes()) << form;
        expect_finite_and_same(world, out, form);
        if (form == "none") {
          EXPECT_TRUE(at::equal(out, 2 * ramp));
        }
      }
    });
  });
}

TEST_P(KnownFailures, KF15_EvenLevelsAreWithinHalfAStep) {
  const Watchdog watchdog;
  sync_ranks(3, [](RankWorld& world) {
    for (const std::int64_t block : {8, 128})
      for (const int bits : {1, 4, 8})
        for (const std::int64_t n : {1, 7, 15, 210, 1031}) {
          OneExchange one(
              world.comm, {{"x", DType::f32, {n}}},
              "minmax{bits=" + std::to_string(bits) + ",block=" + std::to_string(block) + "}");
          const at::Tensor ramp = at::arange(n, at::kFloat);
          const at::Tensor lost = (one.step(ramp * (world.rank + 1)) - 2 * ramp).abs();
          for (std::int64_t begin = 0; begin < n; begin += block) {
            const std::int64_t count = std::min(block, n - begin);
            const double half_step = 0.5 * static_cast<double>(count - 1) / ((1 << bits) - 1);
            EXPECT_LE(lost.narrow(0, begin, count).max().item<double>(),
                      half_step * (1 + 2 + 3) / 3 + 1e-3)
                << block << " " << bits << " " << n << " " << begin;
          }
        }
  });
}

TEST(CodecList, KF26_EveryListedCodecRunsWithoutAnAccelerator) {
  const Watchdog watchdog;
  for (const std::string& name : payloads().names())
    EXPECT_NO_THROW(codecs().find(name)) << "listed, so this build has it";
  sync_ranks(2, [](RankWorld& world) {
    for_every_spec([&](const std::string& form) {
      OneExchange one(world.comm, {{"x", DType::f32, {1024}}}, form);
      const at::Tensor out = one.step(at::sin(at::arange(1024, at::kFloat)) + world.rank);
      expect_finite_and_same(world, out, form);
    });
  });
}

TEST_P(KnownFailures, KF27_OptionsOfEveryCodec) {
  const Watchdog watchdog;
  sync_ranks(
      2,
      [](RankWorld& world) {
        for_every_spec([&](const std::string& spec) {
          for (const std::string& form : {spec, "ef|" + spec}) {
            OneExchange one(world.comm, {{"x", DType::f32, {1000}}}, form);
            for (int step = 0; step < 4; ++step) {
              const at::Tensor out =
                  one.step(at::sin(at::arange(1000, at::kFloat) * (world.rank + 1) + step));
              ASSERT_EQ(out.numel(), 1000) << form;
              expect_finite_and_same(world, out, form);
            }
            if (form == spec) continue;
            const at::Tensor left = one.residual("x");
            ASSERT_TRUE(left.defined()) << form;
            EXPECT_EQ(left.numel(), 1000) << form;
            EXPECT_TRUE(left.isfinite().all().item<bool>()) << form;
          }
        });
      },
      10);
}

}  // namespace thinwire::test
