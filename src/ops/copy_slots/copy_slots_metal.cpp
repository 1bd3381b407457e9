#include "ops/copy_slots/copy_slots_metal.h"

#include <stdexcept>

namespace quire::ops {
namespace {

constexpr int64_t kThreads = 256, kUnitsOfThread = 8;

}  // namespace

CopySlotsMetal copy_slots_metal(int64_t count, int64_t slot_bytes, int64_t alignment) {
  const int64_t unit = metal_unit({slot_bytes, alignment});
  if (unit < 2) throw std::invalid_argument("copy_slots: slots of an odd number of bytes");
  CopySlotsMetal launch = {{slot_bytes / unit}, {.kernel = "copy_slots_" + std::to_string(unit)}};
  const int64_t of_group = kThreads * kUnitsOfThread;
  launch.call.groups = {static_cast<uint32_t>((launch.params.slot_units + of_group - 1) / of_group),
                        static_cast<uint32_t>(count), 1};
  launch.call.threads = {kThreads, 1, 1};
  return launch;
}

}  // namespace quire::ops
