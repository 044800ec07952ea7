// SPDX-License-Identifier: Apache-2.0
// The environments of launchers, as they set them.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <string>

#include "thinwire/comm/membership.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

/// Sets variables for one test and removes what a launcher of the test run itself may have set.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) {
    for (const char* name :
         {"THINWIRE_RANK", "THINWIRE_SIZE", "THINWIRE_ADDRESS", "THINWIRE_RUN_ID",
          "THINWIRE_TIMEOUT", "THINWIRE_PORTS", "THINWIRE_INTERFACE", "RANK", "WORLD_SIZE",
          "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK",
          "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "SLURM_STEP_ID", "SLURM_PROCID",
          "SLURM_NTASKS"})
      ::unsetenv(name);
    for (const auto& [name, value] : values) {
      ::setenv(name.c_str(), value.c_str(), 1);
      names_.push_back(name);
    }
  }
  ~Environment() {
    for (const auto& name : names_) ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

std::string refusal(const std::map<std::string, std::string>& values) {
  const Environment environment(values);
  try {
    launch_environment();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LaunchEnvironment, NoneWhereThereIsNoLauncher) {
  const Environment environment({});
  EXPECT_FALSE(launch_environment());
}

TEST(LaunchEnvironment, Ours) {
  const Environment environment({{"THINWIRE_RANK", "1"},
                                 {"THINWIRE_SIZE", "4"},
                                 {"THINWIRE_ADDRESS", "10.1.2.3:4000"},
                                 {"THINWIRE_RUN_ID", "abc"},
                                 {"THINWIRE_TIMEOUT", "2.5"},
                                 {"THINWIRE_PORTS", "5000-5010"},
                                 {"RANK", "9"},
                                 {"WORLD_SIZE", "10"},
                                 {"MASTER_ADDR", "elsewhere"}});
  const auto launch = launch_environment();
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->source, "thinwire");
  EXPECT_EQ(launch->join.rank, 1);
  EXPECT_EQ(launch->join.size, 4);
  EXPECT_EQ(launch->join.address, "10.1.2.3:4000");
  EXPECT_EQ(launch->join.run_id, "abc");
  EXPECT_EQ(launch->join.timeout_s, 2.5);
  EXPECT_EQ(launch->join.port_first, 5000);
  EXPECT_EQ(launch->join.port_last, 5010);
}

TEST(LaunchEnvironment, Torchrun) {
  const Environment environment({{"RANK", "3"},
                                 {"WORLD_SIZE", "4"},
                                 {"LOCAL_RANK", "1"},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", "29500"},
                                 {"TORCHELASTIC_RUN_ID", "job"}});
  const auto launch = launch_environment();
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->source, "torchrun");
  EXPECT_EQ(launch->join.rank, 3);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->store_host, "127.0.0.1");
  EXPECT_EQ(launch->store_port, 29500);
  EXPECT_EQ(launch->join.address, "");
  EXPECT_EQ(launch->join.run_id, "job-0");
}

TEST(LaunchEnvironment, MpirunAndSrun) {
  {
    const Environment environment({{"OMPI_COMM_WORLD_RANK", "0"},
                                   {"OMPI_COMM_WORLD_SIZE", "2"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                   {"PMIX_NAMESPACE", "12/34"}});
    const auto launch = launch_environment();
    ASSERT_TRUE(launch);
    EXPECT_EQ(launch->source, "mpirun");
    EXPECT_EQ(launch->join.address.substr(0, 5), "file:");
    EXPECT_NE(launch->join.address.find("12-34"), std::string::npos);
  }
  const Environment environment({{"SLURM_STEP_ID", "0"},
                                 {"SLURM_PROCID", "1"},
                                 {"SLURM_NTASKS", "2"},
                                 {"SLURM_JOB_ID", "100"},
                                 {"SLURM_NNODES", "2"},
                                 {"SLURM_STEP_NODELIST", "node[03-04]"}});
  const auto launch = launch_environment();
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->source, "srun");
  EXPECT_EQ(launch->join.address, "node03:20700");
}

TEST(LaunchEnvironment, RefusesHalfAnEnvironmentAndNonsense) {
  EXPECT_NE(refusal({{"THINWIRE_RANK", "1"}}).find("THINWIRE_SIZE is not"), std::string::npos);
  EXPECT_NE(refusal({{"THINWIRE_RANK", "2"}, {"THINWIRE_SIZE", "2"}}).find("below"),
            std::string::npos);
  EXPECT_NE(refusal({{"THINWIRE_RANK", "x"}, {"THINWIRE_SIZE", "2"}}).find("'x'"),
            std::string::npos);
  EXPECT_NE(refusal({{"THINWIRE_RANK", "0"}, {"THINWIRE_SIZE", "2"}}).find("THINWIRE_ADDRESS"),
            std::string::npos);
  EXPECT_NE(refusal({{"THINWIRE_RANK", "0"}, {"THINWIRE_SIZE", "1"}, {"THINWIRE_TIMEOUT", "soon"}})
                .find("'soon'"),
            std::string::npos);
}

}  // namespace
}  // namespace thinwire
