#include "base/numa.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/cores.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace quire {
namespace {

namespace fs = std::filesystem;

// A made-up /sys/devices/system/node.
class Nodes : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "nodes-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void add(const std::string& node, const std::string& processors) {
    fs::create_directories(folder_ / node);
    std::ofstream(folder_ / node / "cpulist") << processors << "\n";
  }
  std::vector<int> with(const std::vector<int>& usable) const {
    return numa_nodes(usable, folder_.string());
  }

  fs::path folder_;
};

using Numbers = std::vector<int>;

// Two sockets with two threads a core, as Linux numbers them.
TEST_F(Nodes, AreThoseOfUsableProcessors) {
  add("node0", "0-3,8-11");
  add("node1", "4-7,12-15");
  EXPECT_EQ(with({0, 1, 2, 3, 4, 5, 6, 7}), (Numbers{0, 1}));
  EXPECT_EQ(with({3, 4}), (Numbers{0, 1}));
  EXPECT_EQ(with({8, 11}), (Numbers{0}));
  EXPECT_EQ(with({13}), (Numbers{1}));
  EXPECT_EQ(with({16}), Numbers());
  EXPECT_EQ(with({}), Numbers());
}

TEST_F(Nodes, AreInOrderAndMayHaveGaps) {
  add("node10", "30");
  add("node2", "20");
  add("node0", "10");
  EXPECT_EQ(with({10, 20, 30}), (Numbers{0, 2, 10}));
}

// Memory of its own kind (HBM, CXL) has no processors.
TEST_F(Nodes, WithoutProcessorsAreNone) {
  add("node0", "0-1");
  add("node1", "");
  EXPECT_EQ(with({0, 1}), (Numbers{0}));
}

TEST_F(Nodes, WhatIsNoNodeIsPassedOver) {
  add("node0", "0");
  add("node0x", "0");
  add("node", "0");
  add("node-1", "0");
  add("node99999999999", "0");
  add("node5000", "0");
  add("power", "0");
  add("node3", "zero");
  add("node4", "0x");
  fs::create_directories(folder_ / "node6");
  std::ofstream(folder_ / "possible") << "0-3\n";
  EXPECT_EQ(with({0}), (Numbers{0}));
  EXPECT_EQ(numa_nodes(Numbers{0}, (folder_ / "absent").string()), Numbers());
}

TEST(UsableNodes, HaveUsableProcessors) {
  const Numbers nodes = usable_numa_nodes();
  EXPECT_LE(nodes.size(), usable_processor_numbers().size());
}

#if defined(__linux__)
// What the kernel says of the memory: its policy, and the nodes of that.
std::pair<int, unsigned long> policy_of(void* memory) {
  int mode = -1;
  unsigned long nodes[16] = {};
  constexpr int kOfAddress = 2;  // MPOL_F_ADDR
  if (::syscall(SYS_get_mempolicy, &mode, nodes, 1024, memory, kOfAddress) != 0) return {-1, 0};
  return {mode, nodes[0]};
}

TEST(SpreadPages, SetsThePolicyOfWholePages) {
  const Numbers nodes = usable_numa_nodes();
  if (nodes.empty() || try_to_spread(nodes) != 0) GTEST_SKIP() << "the system does not do it";
  unsigned long mask = 0;  // of the first 64
  for (const int node : nodes)
    if (node < 64) mask |= 1ul << node;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto* memory = static_cast<char*>(
      ::mmap(nullptr, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(spread_pages(memory + 1, 4 * page, nodes), 0);  // three whole ones
  constexpr int kDefault = 0, kInterleave = 3;
  EXPECT_EQ(policy_of(memory).first, kDefault);
  for (size_t i = 1; i < 4; ++i)
    EXPECT_EQ(policy_of(memory + i * page), std::pair(kInterleave, mask));
  EXPECT_EQ(policy_of(memory + 4 * page).first, kDefault);
  EXPECT_EQ(spread_pages(memory + 1, page, nodes), 0);  // none
  for (size_t i = 0; i < 8 * page; ++i) memory[i] = 1;
  ::munmap(memory, 8 * page);
}

// No machine has this node.
TEST(SpreadPages, SaysWhyItCannot) {
  if (try_to_spread(usable_numa_nodes()) != 0) GTEST_SKIP() << "the system does not do it";
  EXPECT_EQ(try_to_spread(Numbers{1023}), EINVAL);
}

TEST(MemoryPolicy, IsSeen) {
  const Numbers nodes = usable_numa_nodes();
  if (nodes.empty() || try_to_spread(nodes) != 0) GTEST_SKIP() << "the system does not do it";
  if (has_memory_policy()) GTEST_SKIP() << "these tests run under one (numactl)";
  unsigned long mask[16] = {};
  const auto node = static_cast<size_t>(nodes.front());
  mask[node / 64] = 1ul << node % 64;
  constexpr int kDefault = 0, kBind = 2;
  ASSERT_EQ(::syscall(SYS_set_mempolicy, kBind, mask, 1025), 0);
  EXPECT_TRUE(has_memory_policy());
  ASSERT_EQ(::syscall(SYS_set_mempolicy, kDefault, nullptr, 0), 0);
  EXPECT_FALSE(has_memory_policy());
}
#endif

}  // namespace
}  // namespace quire
