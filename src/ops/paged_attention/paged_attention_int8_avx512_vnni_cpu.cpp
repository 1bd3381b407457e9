#include "ops/paged_attention/paged_attention_avx512_vnni.h"

#if defined(__AVX512VNNI__)
#include "ops/paged_attention/attention_packed_avx512-inl.h"

namespace quire::ops {

int64_t attention_int8_avx512_vnni_scratch(const AttentionKernelParams& params, int64_t rows) {
  return packed_attention_scratch<Int8Pool>(params, rows);
}

void paged_attention_int8_avx512_vnni(const AttentionKernelParams& params,
                                      const AttentionItem& item, void* scratch, float* partials) {
  PackedAttention<Int8Pool>(params, item, scratch, partials).run();
}

}  // namespace quire::ops
#endif
