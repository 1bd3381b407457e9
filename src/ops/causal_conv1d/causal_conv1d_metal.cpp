#include "ops/causal_conv1d/causal_conv1d_metal.h"

#include "ops/metal/metal_types.h"

namespace quire::ops {
namespace {

constexpr int64_t kThreads = 128, kTokens = 64;  // as the kernel has them

}  // namespace

CausalConv1dMetal causal_conv1d_metal(const CausalConv1dParams& p, int64_t num_sequences,
                                      int64_t max_tokens) {
  CausalConv1dMetal launch = {
      {.row = p.row, .channels = static_cast<int32_t>(p.channels)},
      {.kernel = std::string("causal_conv1d_") + metal_type_name(p.type),
       .constants = {metal_constant(kConvTaps, static_cast<int32_t>(p.kernel))}}};
  launch.call.groups = {static_cast<uint32_t>((p.channels + kThreads - 1) / kThreads),
                        static_cast<uint32_t>(num_sequences),
                        static_cast<uint32_t>((max_tokens + kTokens - 1) / kTokens)};
  launch.call.threads = {kThreads, 1, 1};
  return launch;
}

}  // namespace quire::ops
