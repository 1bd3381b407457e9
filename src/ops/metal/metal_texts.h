#pragma once
#include <vector>

namespace quire::ops {

// The kernels of an op in Metal's language, without includes of ours: cmake/metal_texts.py makes
// them from <op>_metal.metal.
struct MetalText {
  const char* op;
  const char* text;
};
const std::vector<MetalText>& metal_texts();

}  // namespace quire::ops
