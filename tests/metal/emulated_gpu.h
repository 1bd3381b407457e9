#pragma once
#include <cstdint>
#include <memory>

#include "ops/metal/metal_device.h"

namespace quire::emulator::testing {

struct EmulatedGpuOptions {
  // Each launch in three orders of its threads, which must leave the same bits; else in one of
  // them, in turn.
  bool all_orders = true;
  // Pools can be touched by the ops' kernels alone: whoever else does ends the process.
  bool guard_pools = false;
};

// A device for which the ops launch their Metal kernels, as they do on a Mac: by the encoder that
// is used there, with a stand-in for MLX's, which checks the order of command buffers as if each
// node had one of its own. The kernels run in the emulator, and what MLX does there is done by its
// operations for the CPU, on the same stream. A Fault comes out of the evaluation.
std::shared_ptr<ops::MetalDevice> make_emulated_gpu(const EmulatedGpuOptions& options);

// Launches of this process so far.
struct LaunchCounts {
  int64_t in_all_orders = 0, in_one_order = 0;
};
LaunchCounts launch_counts();

}  // namespace quire::emulator::testing
