#include "ops/kv_write/kv_write_metal.h"

#include <algorithm>
#include <stdexcept>

#include "ops/metal/metal_types.h"

namespace quire::ops {

KvWriteMetal kv_write_metal(int64_t tokens, int64_t key_bytes, int64_t value_bytes,
                            int64_t alignment) {
  const int64_t unit = metal_unit({key_bytes, value_bytes, alignment});
  if (unit < 2) throw std::invalid_argument("kv_write: rows of an odd number of bytes");
  KvWriteMetal launch = {{key_bytes / unit, value_bytes / unit},
                         {.kernel = "kv_write_" + std::to_string(unit)}};
  launch.call.constants = {metal_constant(kKvWriteIsFp8, false)};  // nothing to these kernels
  const int64_t most = std::max(launch.params.key_units, launch.params.value_units);
  launch.call.groups = {static_cast<uint32_t>(tokens), 2, 1};
  launch.call.threads = {metal_copy_threads(most), 1, 1};
  return launch;
}

KvQuantiseMetal kv_quantise_metal(const KvQuantiseParams& p, int64_t tokens) {
  constexpr int64_t kSimdgroups = 4;
  const int64_t most = std::max(p.key_dim, p.value_dim);
  KvQuantiseMetal launch = {
      .params = {.rows = tokens * p.kv_heads,
                 .kv_heads = static_cast<int32_t>(p.kv_heads),
                 .key_dim = static_cast<int32_t>(p.key_dim),
                 .value_dim = static_cast<int32_t>(p.value_dim),
                 .most_dim = static_cast<int32_t>(most)},
      .call = {.kernel = std::string("kv_write_codes_") + metal_type_name(p.type)}};
  launch.call.constants = {metal_constant(kKvWriteIsFp8, p.kv_type == KvType::kFp8)};
  launch.call.threadgroup_bytes = static_cast<uint32_t>(kSimdgroups * most * 4);
  launch.call.groups = {static_cast<uint32_t>((launch.params.rows + kSimdgroups - 1) / kSimdgroups),
                        2, 1};
  launch.call.threads = {32 * kSimdgroups, 1, 1};
  return launch;
}

}  // namespace quire::ops
