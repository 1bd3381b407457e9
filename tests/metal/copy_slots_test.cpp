#include "ops/copy_slots/copy_slots_metal.h"

#include "harness.h"
#include "launch.h"

namespace quire::emulator::testing {
namespace {

using namespace quire::ops;

struct Slots {
  const char* kernel;  // that is expected
  int64_t bytes, alignment;
};

TEST(MetalCopySlots, CopiesItsPairsAndNothingElse) {
  for (const Slots& c : {Slots{"copy_slots_16", 4096, 256}, Slots{"copy_slots_16", 81920, 16},
                         Slots{"copy_slots_8", 40, 256}, Slots{"copy_slots_4", 12, 256},
                         Slots{"copy_slots_2", 6, 256}, Slots{"copy_slots_2", 4096, 2}}) {
    std::vector<int32_t> pairs = {3, 0, 3, 5, 1, 6};
    std::vector<uint8_t> pool(7 * c.bytes);
    std::mt19937 random(1);
    for (uint8_t& byte : pool) byte = static_cast<uint8_t>(random());
    auto want = pool;
    for (size_t i = 0; i < pairs.size(); i += 2)
      std::copy_n(&pool[pairs[i] * c.bytes], c.bytes, &want[pairs[i + 1] * c.bytes]);
    CopySlotsMetal copy = copy_slots_metal(3, c.bytes, c.alignment);
    EXPECT_EQ(copy.call.kernel, c.kernel);
    run_in_all_orders(launch_of(copy.call, {{kCopySlotsParams, buffer_of(copy.params)},
                                            {kCopySlotsPairs, buffer_of(pairs)},
                                            {kCopySlotsPool, buffer_of(pool)}}));
    EXPECT_TRUE(pool == want) << c.kernel;
  }
  EXPECT_THROW(copy_slots_metal(1, 3, 16), std::invalid_argument);
}

}  // namespace
}  // namespace quire::emulator::testing
