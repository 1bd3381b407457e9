#include "ops/kv_write/kv_write_metal.h"

#include <algorithm>

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

// A row's scale and codes by their definition; FP8 codes by search.
std::vector<uint8_t> codes_of(const float* row, int dim, bool is_fp8, float& scale) {
  const float limit = is_fp8 ? kMaxF8 : kMaxI8;
  float absmax = 0;
  for (int i = 0; i < dim; ++i)
    absmax = std::isnan(row[i]) ? NAN : std::max(absmax, std::abs(row[i]));
  scale = std::isfinite(absmax) ? absmax / limit : NAN;
  std::vector<uint8_t> codes(dim, 0);
  if (!std::isfinite(absmax) || absmax == 0) return codes;
  for (int i = 0; i < dim; ++i) {
    const float x = row[i] * (limit / absmax);
    if (!is_fp8) {
      codes[i] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(x)));
      continue;
    }
    uint8_t best = 0;
    for (uint8_t code = 0; code < 0x7F; ++code) {
      const float distance = std::abs(std::abs(x) - to_float(F8{code}));
      const float least = std::abs(std::abs(x) - to_float(F8{best}));
      if (distance < least || (distance == least && code % 2 == 0)) best = code;
    }
    codes[i] = static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
  }
  return codes;
}

TEST(MetalKvWrite, RowsBecomeCodesWithAScale) {
  constexpr int kHeads = 3, kTokens = 4, kSlots = 9;
  for (const FloatType type : kTypes)
    for (const bool is_fp8 : {false, true})
      for (const auto& [key_dim, value_dim] : {std::pair(64, 40), {8, 576}, {128, 128}}) {
        std::vector<int64_t> slots = {7, 0, -1, 4};
        auto k = random_floats(size_t(kTokens) * kHeads * key_dim, type, 1);
        const auto v = random_floats(size_t(kTokens) * kHeads * value_dim, type, 2);
        std::fill_n(k.begin(), key_dim, 0.0f);
        k[key_dim + 3] = INFINITY;
        KvQuantiseMetal write = kv_quantise_metal({.type = type,
                                                   .kv_type = is_fp8 ? KvType::kFp8 : KvType::kInt8,
                                                   .kv_heads = kHeads,
                                                   .key_dim = key_dim,
                                                   .value_dim = value_dim},
                                                  kTokens);
        EXPECT_EQ(write.call.kernel, std::string("kv_write_codes_") + name(type));
        auto key_bytes = encode(k, type), value_bytes = encode(v, type);
        std::vector<uint8_t> k_pool(size_t(kSlots) * kHeads * key_dim, 0x55),
            v_pool(size_t(kSlots) * kHeads * value_dim, 0x55);
        std::vector<float> k_scale(kSlots * kHeads, 5.0f), v_scale = k_scale;
        auto want_k = k_pool, want_v = v_pool;
        auto want_k_scale = k_scale, want_v_scale = v_scale;
        for (int t = 0; t < kTokens; ++t)
          for (int h = 0; h < kHeads && slots[t] >= 0; ++h) {
            const size_t from = size_t(t) * kHeads + h, to = size_t(slots[t]) * kHeads + h;
            std::ranges::copy(codes_of(&k[from * key_dim], key_dim, is_fp8, want_k_scale[to]),
                              &want_k[to * key_dim]);
            std::ranges::copy(codes_of(&v[from * value_dim], value_dim, is_fp8, want_v_scale[to]),
                              &want_v[to * value_dim]);
          }
        run_in_all_orders(launch_of(write.call, {{kKvWriteParams, buffer_of(write.params)},
                                                 {kKvWriteSlots, buffer_of(slots)},
                                                 {kKvWriteKeys, buffer_of(key_bytes)},
                                                 {kKvWriteValues, buffer_of(value_bytes)},
                                                 {kKvWriteKeyPool, buffer_of(k_pool)},
                                                 {kKvWriteValuePool, buffer_of(v_pool)},
                                                 {kKvWriteKeyScale, buffer_of(k_scale)},
                                                 {kKvWriteValueScale, buffer_of(v_scale)}}));
        EXPECT_TRUE(k_pool == want_k) << write.call.kernel << " " << is_fp8;
        EXPECT_TRUE(v_pool == want_v) << write.call.kernel << " " << is_fp8;
        EXPECT_TRUE(v_scale == want_v_scale);
        for (size_t i = 0; i < k_scale.size(); ++i)
          EXPECT_TRUE(k_scale[i] == want_k_scale[i] ||
                      (std::isnan(k_scale[i]) && std::isnan(want_k_scale[i])))
              << i;
      }
}

TEST(MetalKvWrite, RefusesRowsOfAnOddNumberOfBytes) {
  EXPECT_THROW(kv_write_metal(1, 3, 2, 16), std::invalid_argument);
}

}  // namespace
}  // namespace quire::emulator::testing
