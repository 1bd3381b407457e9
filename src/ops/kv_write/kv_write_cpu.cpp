#include "ops/kv_write/kv_write_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kv_write/kv_write_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/layout/kv_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class T, class Code>
void quantise_tokens(const KvQuantiseParams& p, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    if (p.slots[t] < 0) continue;
    for (int64_t h = 0; h < p.kv_heads; ++h) {
      const int64_t from = t * p.kv_heads + h, to = p.slots[t] * p.kv_heads + h;
      p.k_scale[to] = quantise_row(static_cast<const T*>(p.k) + from * p.key_dim, p.key_dim,
                                   static_cast<Code*>(p.k_codes) + to * p.key_dim);
      p.v_scale[to] = quantise_row(static_cast<const T*>(p.v) + from * p.value_dim, p.value_dim,
                                   static_cast<Code*>(p.v_codes) + to * p.value_dim);
    }
  }
}

template <class T>
void quantise_as(const KvQuantiseParams& p, int64_t begin, int64_t end) {
  p.kv_type == KvType::kInt8 ? quantise_tokens<T, I8>(p, begin, end)
                             : quantise_tokens<T, F8>(p, begin, end);
}

void KvQuantise(const KvQuantiseParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return quantise_as<float>(params, begin, end);
    case FloatType::kF16:
      return quantise_as<F16>(params, begin, end);
    case FloatType::kBf16:
      return quantise_as<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(KvQuantise);
void kv_quantise_cpu(const KvQuantiseParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(KvQuantise)(params, begin, end);
}
}  // namespace quire::ops
#endif
