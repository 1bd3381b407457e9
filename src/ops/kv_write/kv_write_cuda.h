#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/layout/kv_type.h"

namespace quire::ops {

// Rows of keys and values into their slots of the pools; pointers are of the device.
struct KvWriteCudaParams {
  FloatType type = FloatType::kF32;  // of k and v
  KvType kv_type = KvType::kF32;     // of the pools: the same, or codes
  int64_t tokens = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  const int64_t* slots = nullptr;                // [T]; negative: do not write
  const void *k = nullptr, *v = nullptr;         // [T, K, D], [T, K, Dv]
  void *k_pool = nullptr, *v_pool = nullptr;     // [N, P, K, D], [N, P, K, Dv]
  float *k_scale = nullptr, *v_scale = nullptr;  // [N, P, K], of codes
};
void kv_write_cuda(CudaStream stream, const KvWriteCudaParams& params);

}  // namespace quire::ops
