// SPDX-License-Identifier: Apache-2.0
// Networks as published: their numbers of tensors, parameters and multiplications.
#include "thinwire/plan/known_models.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

std::int64_t parameters(const KnownModel& model) {
  std::int64_t out = 0;
  for (const TensorDesc& tensor : model.params) out += elements(tensor);
  return out;
}

double multiplications(const KnownModel& model) {
  return std::accumulate(model.multiplications.begin(), model.multiplications.end(), 0.0);
}

// The released trace has 64 layers of 13.38 million parameters together.
TEST(KnownModels, GoogLeNetHasTheLayersOfTheReleasedTrace) {
  const KnownModel model = known_model("googlenet");
  EXPECT_EQ(model.params.size(), 64U);
  EXPECT_EQ(parameters(model), 13378280);
  EXPECT_NEAR(multiplications(model), 1.59e9, 0.01e9);
}

TEST(KnownModels, ResNet50HasThePublishedNumbers) {
  const KnownModel model = known_model("resnet50");
  EXPECT_EQ(model.params.size(), 161U);
  EXPECT_EQ(parameters(model), 25557032);
  // 4.09e9 of filters and the last layer; the rest are scales and shifts.
  EXPECT_NEAR(multiplications(model), 4.11e9, 0.03e9);
}

TEST(KnownModels, Vgg19HasThePublishedNumbers) {
  const KnownModel model = known_model("vgg19");
  EXPECT_EQ(model.params.size(), 38U);
  EXPECT_EQ(parameters(model), 143667240);
  EXPECT_NEAR(multiplications(model), 19.63e9, 0.02e9);
}

TEST(KnownModels, TimesAreSharedOutByMultiplications) {
  const KnownModel model = known_model("vgg19");
  const Profile profile = shared_out(model, 1, 2);
  double forward = 0, backward = 0;
  for (std::size_t i = 0; i < profile.params.size(); ++i) {
    forward += profile.forward_s[i];
    backward += profile.backward_s[i];
    EXPECT_NEAR(profile.backward_s[i], 2 * profile.forward_s[i], 1e-12);
  }
  EXPECT_NEAR(forward, 1, 1e-9);
  EXPECT_NEAR(backward, 2, 1e-9);
  EXPECT_NEAR(profile.forward_s[0], model.multiplications[0] / multiplications(model), 1e-12);
}

TEST(KnownModels, AnUnknownOneIsRefused) {
  TW_EXPECT_THROW(known_model("resnet5"), ConfigError,
                  "unknown model 'resnet5'; did you mean 'resnet50'");
}

}  // namespace
}  // namespace thinwire
