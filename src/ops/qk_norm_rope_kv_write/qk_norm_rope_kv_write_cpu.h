#pragma once
#include <cstdint>

#include "ops/layout/kv_type.h"

namespace quire::ops {

// The largest head dimension, because a normalised head is kept on the stack.
inline constexpr int64_t kMaxRotatedDim = 1024;

struct QkNormRopeKvWriteParams {
  FloatType type = FloatType::kF32;  // of qkv and q
  KvType kv_type = KvType::kF32;     // of the pools: the same, or codes
  int64_t heads = 0, kv_heads = 0;   // H, K
  int64_t head_dim = 0;              // D
  int64_t row = 0;                   // length of a row of qkv, gates included
  int64_t rotary_dim = 0;
  float eps = 0;
  bool norms_follow = false;           // the rotation
  const int32_t* positions = nullptr;  // [T]
  const int64_t* slots = nullptr;      // [T]; negative: do not write
  const float* cos_sin = nullptr;      // [max_positions][2][rotary_dim / 2]
  const float* q_norm = nullptr;       // [D], or null
  const float* k_norm = nullptr;       // [D], or null
  const void* qkv = nullptr;           // [T, row]
  void* q = nullptr;                   // [T, H, D]
  void* k = nullptr;                   // [N, P, K, D]
  void* v = nullptr;                   // [N, P, K, D]
  float* k_scale = nullptr;            // [N, P, K], of codes
  float* v_scale = nullptr;            // [N, P, K], of codes
};

// Tokens [begin, end).
void qk_norm_rope_kv_write_cpu(const QkNormRopeKvWriteParams& params, int64_t begin, int64_t end);

// The same bits by hand-written instructions of AVX-512-BF16, for bfloat16 pools and these
// dimensions. `stream`: results go past the caches, which reads no lines to overwrite them: for
// more than caches hold. Then q and the pools are aligned to 64 bytes.
inline bool has_avx512_bf16_kernel(const QkNormRopeKvWriteParams& p) {
  return p.type == FloatType::kBf16 && p.kv_type == KvType::kBf16 && !p.norms_follow &&
         p.head_dim % 32 == 0 && p.rotary_dim % 64 == 0 && p.head_dim <= kMaxRotatedDim;
}
void qk_norm_rope_kv_write_avx512_bf16(const QkNormRopeKvWriteParams& params, int64_t begin,
                                       int64_t end, bool stream);

}  // namespace quire::ops
