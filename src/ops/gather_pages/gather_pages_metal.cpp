#include "ops/gather_pages/gather_pages_metal.h"

#include <stdexcept>

namespace quire::ops {

GatherPagesMetal gather_pages_metal(int64_t rows, int64_t row_bytes, int64_t alignment) {
  const int64_t unit = metal_unit({row_bytes, alignment});
  if (unit < 2) throw std::invalid_argument("gather_pages: rows of an odd number of bytes");
  GatherPagesMetal launch = {{row_bytes / unit},
                             {.kernel = "gather_pages_" + std::to_string(unit)}};
  launch.call.groups = {static_cast<uint32_t>(rows), 1, 1};
  launch.call.threads = {metal_copy_threads(launch.params.row_units), 1, 1};
  return launch;
}

}  // namespace quire::ops
