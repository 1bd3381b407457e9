#pragma once
#include "ops/metal/metal_device.h"
#include "ops/runtime/context.h"

namespace quire::ops {

// What an array of MLX's begins at a multiple of, unless it is part of another.
inline constexpr int64_t kMetalAlignment = 16;

struct MetalSpec {
  const char* op;  // "kv_write"; a literal. Its text is src/ops/<op>/<op>_metal.metal
  MetalKernel encode;
  // alias[i] = j: output i is input j's memory, written in place; -1: freshly allocated. Empty: all
  // fresh.
  std::vector<int> alias = {};
  // Bytes that inputs begin at a multiple of in their buffers: for kernels that load several
  // elements at once.
  int64_t alignment = 1;
};

// One lazy graph node on MLX's default device, which dispatches kernels in Metal's language. The
// context's device is a MetalDevice. Inputs must be row-contiguous and aligned (the node checks,
// and throws std::invalid_argument). Counts each run as "op/metal".
std::vector<mx::array> launch_metal(const Context& context, MetalSpec spec,
                                    std::vector<mx::Shape> shapes, std::vector<mx::Dtype> dtypes,
                                    std::vector<mx::array> inputs);

}  // namespace quire::ops
