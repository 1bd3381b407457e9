#include "ops/runtime/cpu_device.h"

#include "base/numa.h"
#include "ops/cpu/aligned_bytes.h"
#include "ops/linear/linear.h"
#include "ops/runtime/test_util.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr int kDefault = 0, kInterleave = 3;  // MPOL_DEFAULT, MPOL_INTERLEAVE

int policy_of(const void* memory) {
  int mode = -1;
  constexpr int kOfAddress = 2;  // MPOL_F_ADDR
  if (::syscall(SYS_get_mempolicy, &mode, nullptr, 0, memory, kOfAddress) != 0) return -1;
  return mode;
}

// What the device's memory is asked for: packed weights, pools and small pieces.
struct Policies {
  int weights, pool, small;
};
Policies policies_on(std::vector<int> nodes) {
  const Context context = make_context(1, make_cpu_device(std::move(nodes)));
  const mx::array a = random_array({1024, 2048}, mx::float32, 1);
  const RowMatrix rows = {.data = a.data<void>(), .n = 1024, .k = 2048, .dtype = mx::float32};
  const PackedMatrix packed = pack_matrix(context, {&rows, 1}, mx::bfloat16);
  const mx::array pool = context.device->make_pool({64, 16, 8, 128}, mx::bfloat16);
  const auto small = context.device->allocate(kOwnPages - 1);
  EXPECT_GE(packed.nbytes(), kOwnPages);
  return {policy_of(packed.data.get()), policy_of(pool.data<void>()), policy_of(small.get())};
}

TEST(CpuDevice, SpreadsWeightsAndPools) {
  const std::vector<int> nodes = usable_numa_nodes();
  if (nodes.empty() || try_to_spread(nodes) != 0) GTEST_SKIP() << "the system does not do it";
  const Policies spread = policies_on(nodes), usual = policies_on({});
  EXPECT_EQ(spread.weights, kInterleave);
  EXPECT_EQ(spread.pool, kInterleave);
  EXPECT_EQ(spread.small, kDefault);
  EXPECT_EQ(usual.weights, kDefault);
  EXPECT_EQ(usual.pool, kDefault);
  EXPECT_EQ(make_cpu_device({0, 1})->description(),
            make_cpu_device({})->description() + ", memory over 2 NUMA nodes");
}

// Where it is forbidden, or a node is gone, memory is as usual.
TEST(CpuDevice, DoesWithoutNodesThatAreNotThere) {
  EXPECT_EQ(policies_on({1023}).weights, policies_on({}).weights);
}

TEST(CpuDevice, SaysThatPortableKernelsAreSlow) {
  for (const std::string& isa : available_cpu_isas()) {
    const ForcedIsa forced(isa);
    EXPECT_EQ(make_cpu_device({})->description(),
              isa + " kernels" + (isa == "portable" ? " (slow: for CPUs without AVX2)" : ""));
  }
}

}  // namespace
}  // namespace quire::ops
#endif
