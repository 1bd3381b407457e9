// Lets the tests of the ops, which are compiled with it, run on the emulator of Metal.
#include <cstdio>
#include <cstdlib>

#include "emulated_gpu.h"
#include "ops/runtime/test_util.h"

namespace quire::emulator::testing {
namespace {

// The engine runs in one order of threads for each launch, and its pools are guarded.
#ifdef QUIRE_GUARD_POOLS
constexpr EmulatedGpuOptions kOptions = {.all_orders = false, .guard_pools = true};
#else
constexpr EmulatedGpuOptions kOptions = {};
#endif

const bool is_set = [] {
  setenv("QUIRE_TEST_METAL", "1", /*overwrite=*/1);
  ops::testing::make_metal_for_tests = [] {
    return std::shared_ptr<ops::Device>(make_emulated_gpu(kOptions));
  };
  return true;
}();

class Orders : public ::testing::Environment {
 public:
  void TearDown() override {
    const LaunchCounts counts = launch_counts();
    printf("%lld launches in three orders of threads, %lld in one\n",
           static_cast<long long>(counts.in_all_orders),
           static_cast<long long>(counts.in_one_order));
  }
};
::testing::Environment* const kOrders = ::testing::AddGlobalTestEnvironment(new Orders);

}  // namespace
}  // namespace quire::emulator::testing
