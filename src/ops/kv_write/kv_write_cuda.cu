#include "ops/kv_write/kv_write_cuda.h"

#include "ops/cuda/copy.cuh"
#include "ops/cuda/kv_codes.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kWarps = 4;

__global__ void __launch_bounds__(128)
    hot_copy_rows(const KvWriteCudaParams p, int64_t item_bytes) {
  begin_dependent();
  const int64_t token = blockIdx.x, slot = p.slots[token];
  if (slot < 0) return;
  const bool is_key = blockIdx.y == 0;
  const int64_t bytes = p.kv_heads * (is_key ? p.key_dim : p.value_dim) * item_bytes;
  block_copy(static_cast<const char*>(is_key ? p.k : p.v) + token * bytes,
             static_cast<char*>(is_key ? p.k_pool : p.v_pool) + slot * bytes, bytes);
}

// A warp for each row of a token's keys and values.
template <class T, class Code>
__global__ void __launch_bounds__(kWarps * 32) hot_quantise_rows(const KvWriteCudaParams p) {
  begin_dependent();
  const int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (index >= p.tokens * p.kv_heads) return;
  const int64_t slot = p.slots[index / p.kv_heads];
  if (slot < 0) return;
  const bool is_key = blockIdx.y == 0;
  const int64_t to = slot * p.kv_heads + index % p.kv_heads;
  const int64_t dim = is_key ? p.key_dim : p.value_dim;
  const T* x = static_cast<const T*>(is_key ? p.k : p.v) + index * dim;
  Code* codes = static_cast<Code*>(is_key ? p.k_pool : p.v_pool) + to * dim;
  const float scale = warp_quantise(dim, [&](int64_t i) { return widen(x[i]); }, codes);
  if (threadIdx.x % 32 == 0) (is_key ? p.k_scale : p.v_scale)[to] = scale;
}

}  // namespace

void kv_write_cuda(CudaStream stream, const KvWriteCudaParams& p) {
  const dim3 grid(blocks_for(p.tokens * p.kv_heads, kWarps), 2);
  if (!is_quantised(p.kv_type)) {
    launch("kv_write", stream, hot_copy_rows, dim3(static_cast<unsigned>(p.tokens), 2), 128, 0, p,
           float_type_bytes(p.type));
    return;
  }
  with_float_type(p.type, [&](auto t) {
    using T = decltype(t);
    launch("kv_write", stream,
           p.kv_type == KvType::kInt8 ? hot_quantise_rows<T, I8> : hot_quantise_rows<T, F8>, grid,
           kWarps * 32, 0, p);
  });
}

}  // namespace quire::ops
