#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_metal.h"

#include "ops/metal/metal_types.h"

namespace quire::ops {
namespace {

constexpr uint32_t kSimdgroups = 4;

}  // namespace

QkNormRopeKvWriteMetal qk_norm_rope_kv_write_metal(const QkNormRopeKvWriteParams& p,
                                                   int64_t tokens) {
  QkNormRopeKvWriteMetal launch = {
      .params = {.items = tokens * (p.heads + 2 * p.kv_heads),
                 .row = p.row,
                 .heads = static_cast<int32_t>(p.heads),
                 .kv_heads = static_cast<int32_t>(p.kv_heads),
                 .head_dim = static_cast<int32_t>(p.head_dim),
                 .rotary_half = static_cast<int32_t>(p.rotary_dim / 2),
                 .eps = p.eps},
      .call = {.kernel = std::string("qk_norm_rope_kv_write_") + metal_type_name(p.type)}};
  launch.call.constants = {metal_constant(kQkRopeHasQNorm, p.q_norm != nullptr),
                           metal_constant(kQkRopeHasKNorm, p.k_norm != nullptr),
                           metal_constant(kQkRopeNormsFollow, p.norms_follow),
                           metal_constant(kQkRopeHasCodes, is_quantised(p.kv_type)),
                           metal_constant(kQkRopeIsFp8, p.kv_type == KvType::kFp8)};
  launch.call.threadgroup_bytes =
      kSimdgroups * static_cast<uint32_t>(p.head_dim) * static_cast<uint32_t>(sizeof(float));
  launch.call.groups = {
      static_cast<uint32_t>((launch.params.items + kSimdgroups - 1) / kSimdgroups), 1, 1};
  launch.call.threads = {32 * kSimdgroups, 1, 1};
  return launch;
}

}  // namespace quire::ops
