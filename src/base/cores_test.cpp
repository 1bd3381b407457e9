#include "base/cores.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/parallel.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// A machine whose processor i is a thread of the core with these threads.
class Cores : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "cores-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  int count(const std::vector<std::string>& siblings, const std::vector<int>& usable) {
    for (size_t i = 0; i < siblings.size(); ++i) {
      const fs::path topology = folder_ / ("cpu" + std::to_string(i)) / "topology";
      fs::create_directories(topology);
      std::ofstream(topology / "thread_siblings_list") << siblings[i] << "\n";
    }
    return physical_cores(usable, folder_.string());
  }

  fs::path folder_;
};

TEST_F(Cores, ThreadsOfACoreCountOnce) {
  EXPECT_EQ(count({"0,2", "1,3", "0,2", "1,3"}, {0, 1, 2, 3}), 2);
}

TEST_F(Cores, OnlyUsableProcessorsCount) {
  EXPECT_EQ(count({"0-1", "0-1", "2-3", "2-3"}, {1}), 1);
  EXPECT_EQ(count({"0-1", "0-1", "2-3", "2-3"}, {1, 3}), 2);
}

// Two fast cores with two threads each, four slow ones with one.
TEST_F(Cores, HybridMachinesCountEveryCore) {
  EXPECT_EQ(count({"0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"}, {0, 1, 2, 3, 4, 5, 6, 7}), 6);
}

TEST_F(Cores, WhatIsNotKnownIsACore) {
  EXPECT_EQ(count({}, {0, 1, 2}), 3);
  EXPECT_EQ(count({}, {}), 1);
}

TEST(UsableCores, AreAtMostTheUsableProcessors) {
  EXPECT_GE(usable_physical_cores(), 1);
  EXPECT_LE(usable_physical_cores(), usable_processors());
}

}  // namespace
}  // namespace quire
