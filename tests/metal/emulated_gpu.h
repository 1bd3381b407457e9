#pragma once
#include <memory>

#include "ops/metal/metal_device.h"

namespace quire::emulator::testing {

// A device for which the ops launch their Metal kernels, as they do on a Mac: the kernels run in
// the emulator, and what MLX does there is done by its operations for the CPU, on the same stream.
// Each dispatch steps its threads in another order. A Fault comes out of the evaluation.
std::shared_ptr<ops::MetalDevice> make_emulated_gpu();

}  // namespace quire::emulator::testing
