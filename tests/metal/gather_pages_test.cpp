#include "ops/gather_pages/gather_pages_metal.h"

#include "harness.h"
#include "launch.h"

namespace quire::emulator::testing {
namespace {

using namespace quire::ops;

struct Rows {
  const char* kernel;  // that is expected
  int64_t bytes, alignment;
};

TEST(MetalGatherPages, CopiesTheRowsOfItsSlots) {
  for (const Rows& c : {Rows{"gather_pages_16", 4096, 256}, Rows{"gather_pages_16", 9216, 16},
                        Rows{"gather_pages_8", 40, 256}, Rows{"gather_pages_4", 12, 256},
                        Rows{"gather_pages_2", 6, 256}, Rows{"gather_pages_2", 96, 2}}) {
    std::vector<int64_t> slots = {3, 0, -1, 6, 3};
    std::vector<uint8_t> pool(7 * c.bytes), rows(slots.size() * c.bytes, 0xFF), want;
    std::mt19937 random(1);
    for (uint8_t& byte : pool) byte = static_cast<uint8_t>(random());
    for (const int64_t slot : slots)
      for (int64_t i = 0; i < c.bytes; ++i)
        want.push_back(slot < 0 ? uint8_t{0} : pool[slot * c.bytes + i]);
    GatherPagesMetal gather =
        gather_pages_metal(static_cast<int64_t>(slots.size()), c.bytes, c.alignment);
    EXPECT_EQ(gather.call.kernel, c.kernel);
    run_in_all_orders(launch_of(gather.call, {{kGatherPagesParams, buffer_of(gather.params)},
                                              {kGatherPagesSlots, buffer_of(slots)},
                                              {kGatherPagesPool, buffer_of(pool)},
                                              {kGatherPagesRows, buffer_of(rows)}}));
    EXPECT_TRUE(rows == want) << c.kernel;
  }
  EXPECT_THROW(gather_pages_metal(1, 3, 16), std::invalid_argument);
}

}  // namespace
}  // namespace quire::emulator::testing
