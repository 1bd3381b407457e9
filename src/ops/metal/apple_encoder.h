#pragma once
#include <mlx/backend/metal/device.h>

#include "ops/metal/metal_encoder.h"

namespace quire::ops {

// Gives dispatches to MLX's encoder, which orders them by what it is told of their arrays. Only in
// builds with Metal; tests/metal compiles it, too, with a stand-in for MLX's side.
class AppleEncoder final : public MetalEncoder {
 public:
  // `op` has the text of the kernels.
  AppleEncoder(mx::metal::Device& device, mx::metal::CommandEncoder& encoder, const char* op)
      : device_(device), encoder_(encoder), op_(op) {}

  void dispatch(const MetalCall& call, std::span<const MetalArgument> arguments) override;
  mx::array scratch(int64_t floats) override;

 private:
  MTL::ComputePipelineState* pipeline_of(const MetalCall& call);
  void set(const MetalArgument& argument);

  mx::metal::Device& device_;
  mx::metal::CommandEncoder& encoder_;
  const char* op_;
};

}  // namespace quire::ops
