// SPDX-License-Identifier: Apache-2.0
// The simulated experiments of experiments/, and what their papers publish.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "thinwire/report/curve.h"
#include "thinwire/report/run_folder.h"
#include "thinwire/sim/curve.h"

namespace thinwire {
namespace {

// Every file of experiments/ that is simulated: it parses, its options are taken, its rules find
// what they look at, in the short form too, and the same again gives the same.
TEST(SimulatedExperiments, AllRunAndAreDecided) {
  int found = 0;
  for (const auto& file : std::filesystem::directory_iterator(TW_SOURCE "/experiments")) {
    const std::string path = file.path().string(), text = read_text(path);
    if (experiment_kind(text, path) != "simulated") continue;
    ++found;
    const CurveExperiment experiment = parse_curve(text, path);
    for (const bool quick : {false, true}) {
      const Curves curves = evaluate(experiment, {}, quick, curve_point);
      const Judgement judgement = judge(experiment, curves);
      EXPECT_NE(judgement.shape, Shape::incomplete) << path;
      EXPECT_GE(experiment.rules.size(), 3U) << path;
      EXPECT_EQ(json_outcome(experiment, curves),
                json_outcome(experiment, evaluate(experiment, {}, quick, curve_point)));
    }
  }
  EXPECT_GE(found, 7);
}

Curves curves_of(const std::string& name) {
  const std::string path = std::string(TW_SOURCE "/experiments/") + name + ".toml";
  return evaluate(parse_curve(read_text(path), path), {}, false, curve_point);
}

// arXiv 1811.11141, GoogLeNet on 8 nodes: one message for all is 5.44 times as quick as one node
// (the model must meet it, since nothing overlaps there), and merging by cost nearly eight times.
TEST(SimulatedExperiments, MgWfbpMeetsThePublishedSingleMessage) {
  const Curves curves = curves_of("mg-wfbp");
  EXPECT_NEAR(curves.find("single", 8)->at("speedup"), 5.44, 0.05 * 5.44);
  EXPECT_NEAR(curves.find("mg_wfbp", 8)->at("speedup"), 7.41, 0.1 * 7.41);
  for (const double n : {2.0, 4.0})
    EXPECT_NEAR(curves.find("wfbp", n)->at("step_s") / curves.find("mg_wfbp", n)->at("step_s"), 1,
                0.005);
  for (const double n : curves.xs) {
    const double exact = curves.find("exact", n)->at("step_s");
    for (const char* other : {"wfbp", "single", "mg_wfbp", "ddp_25mib"})
      EXPECT_LE(exact, curves.find(other, n)->at("step_s") * (1 + 1e-9)) << other << " at " << n;
    EXPECT_LE(
        curves.find("mg_wfbp", n)->at("step_s"),
        std::min(curves.find("wfbp", n)->at("step_s"), curves.find("single", n)->at("step_s")) *
            (1 + 1e-9));
  }
  // The surprise: as published it is not the best of all merges.
  EXPECT_GT(curves.find("mg_wfbp", 256)->at("step_s"),
            1.1 * curves.find("exact", 256)->at("step_s"));
}

TEST(SimulatedExperiments, CovapIsNearlyLinearWhereDenseIsFlat) {
  const Curves curves = curves_of("covap-scaling");
  for (const double n : curves.xs) {
    EXPECT_GT(curves.find("covap", n)->at("efficiency"), 0.9) << n;
    if (n >= 16) {
      EXPECT_LT(curves.find("dense_overlap", n)->at("efficiency"), 0.4) << n;
    }
  }
}

}  // namespace
}  // namespace thinwire
