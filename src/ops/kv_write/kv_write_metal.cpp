#include "ops/kv_write/kv_write_metal.h"

#include <algorithm>
#include <stdexcept>

namespace quire::ops {

KvWriteMetal kv_write_metal(int64_t tokens, int64_t key_bytes, int64_t value_bytes,
                            int64_t alignment) {
  const int64_t unit = metal_unit({key_bytes, value_bytes, alignment});
  if (unit < 2) throw std::invalid_argument("kv_write: rows of an odd number of bytes");
  KvWriteMetal launch = {{key_bytes / unit, value_bytes / unit},
                         {.kernel = "kv_write_" + std::to_string(unit)}};
  const int64_t most = std::max(launch.params.key_units, launch.params.value_units);
  launch.call.groups = {static_cast<uint32_t>(tokens), 2, 1};
  launch.call.threads = {static_cast<uint32_t>(std::clamp<int64_t>((most + 31) / 32 * 32, 32, 256)),
                         1, 1};
  return launch;
}

}  // namespace quire::ops
