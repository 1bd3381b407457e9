#pragma once
#include <cstdint>

#include "ops/layout/kv_type.h"

namespace quire::ops {

struct KvQuantiseParams {
  FloatType type = FloatType::kF32;  // of k and v
  KvType kv_type = KvType::kInt8;    // kInt8 or kFp8
  int64_t kv_heads = 0, key_dim = 0, value_dim = 0;
  const int64_t* slots = nullptr;               // [T]; negative: do not write
  const void *k = nullptr, *v = nullptr;        // [T, K, D], [T, K, Dv]
  void *k_codes = nullptr, *v_codes = nullptr;  // pools
  float *k_scale = nullptr, *v_scale = nullptr;
};

// Tokens [begin, end), each row by its own absmax: scale = absmax / 127 or / 448, code = x * (127 /
// absmax) rounded to nearest even. The same bits on every instruction set.
void kv_quantise_cpu(const KvQuantiseParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
