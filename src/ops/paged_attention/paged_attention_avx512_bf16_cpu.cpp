#include "ops/paged_attention/paged_attention_avx512_bf16.h"

#if defined(__AVX512BF16__)
#include "ops/paged_attention/attention_packed_avx512-inl.h"

namespace quire::ops {

int64_t attention_avx512_bf16_scratch(const AttentionKernelParams& params, int64_t rows) {
  return packed_attention_scratch<Bf16Pool>(params, rows);
}

void paged_attention_avx512_bf16(const AttentionKernelParams& params, const AttentionItem& item,
                                 void* scratch, float* partials) {
  PackedAttention<Bf16Pool>(params, item, scratch, partials).run();
}

}  // namespace quire::ops
#endif
