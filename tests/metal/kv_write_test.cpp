#include "ops/kv_write/kv_write_metal.h"

#include "harness.h"
#include "launch.h"

namespace quire::emulator::testing {
namespace {

using namespace quire::ops;

struct Rows {
  const char* kernel;  // that is expected
  int64_t key_bytes, value_bytes, alignment;
};

TEST(MetalKvWrite, WritesTheRowsOfItsSlotsAndNothingElse) {
  for (const Rows& rows : {Rows{"kv_write_16", 96, 64, 256}, Rows{"kv_write_8", 96, 64, 8},
                           Rows{"kv_write_8", 24, 40, 16}, Rows{"kv_write_4", 12, 60, 256},
                           Rows{"kv_write_2", 2, 26, 256}, Rows{"kv_write_2", 96, 64, 2},
                           Rows{"kv_write_16", 8192, 1040, 16}}) {
    for (std::vector<int64_t> slots :
         {std::vector<int64_t>{3, 20, 7, 40, 1}, std::vector<int64_t>{5, -1, 9},
          std::vector<int64_t>{-1}, std::vector<int64_t>{47}}) {
      std::mt19937 random(1);
      const auto bytes = [&](int64_t count) {
        std::vector<uint8_t> all(count);
        for (uint8_t& byte : all) byte = static_cast<uint8_t>(random());
        return all;
      };
      const auto tokens = static_cast<int64_t>(slots.size());
      auto k = bytes(tokens * rows.key_bytes), v = bytes(tokens * rows.value_bytes);
      auto k_pool = bytes(48 * rows.key_bytes), v_pool = bytes(48 * rows.value_bytes);
      auto want_k = k_pool, want_v = v_pool;
      for (int64_t t = 0; t < tokens; ++t) {
        if (slots[t] < 0) continue;
        std::copy_n(&k[t * rows.key_bytes], rows.key_bytes, &want_k[slots[t] * rows.key_bytes]);
        std::copy_n(&v[t * rows.value_bytes], rows.value_bytes,
                    &want_v[slots[t] * rows.value_bytes]);
      }
      KvWriteMetal write = kv_write_metal(tokens, rows.key_bytes, rows.value_bytes, rows.alignment);
      EXPECT_EQ(write.call.kernel, rows.kernel);
      run_in_all_orders(launch_of(write.call, {{kKvWriteParams, buffer_of(write.params)},
                                               {kKvWriteSlots, buffer_of(slots)},
                                               {kKvWriteKeys, buffer_of(k)},
                                               {kKvWriteValues, buffer_of(v)},
                                               {kKvWriteKeyPool, buffer_of(k_pool)},
                                               {kKvWriteValuePool, buffer_of(v_pool)}}));
      EXPECT_TRUE(k_pool == want_k) << rows.kernel;
      EXPECT_TRUE(v_pool == want_v) << rows.kernel;
    }
  }
}

TEST(MetalKvWrite, RefusesRowsOfAnOddNumberOfBytes) {
  EXPECT_THROW(kv_write_metal(1, 3, 2, 16), std::invalid_argument);
}

}  // namespace
}  // namespace quire::emulator::testing
