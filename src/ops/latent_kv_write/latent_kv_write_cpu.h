#pragma once
#include <cstdint>

#include "ops/layout/kv_type.h"

namespace quire::ops {

// The longest row, because it is put together on the stack.
inline constexpr int64_t kMaxLatentRow = 1024;

struct LatentKvWriteParams {
  FloatType type = FloatType::kF32;    // of x
  KvType kv_type = KvType::kF32;       // of the pool: the same, or codes
  int64_t latent = 0, rotary_dim = 0;  // L, R
  float eps = 0;
  const int32_t* positions = nullptr;  // [T]
  const int64_t* slots = nullptr;      // [T]; negative: do not write
  const float* cos_sin = nullptr;      // [max_positions][2][R / 2]
  const float* weight = nullptr;       // [L]
  const void* x = nullptr;             // [T, x_row], whose first L + R columns count
  int64_t x_row = 0;
  void* rows = nullptr;    // [N, P, L + R]
  float* scale = nullptr;  // [N, P], of codes
};

// Tokens [begin, end).
void latent_kv_write_cpu(const LatentKvWriteParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
