#include "ops/metal/apple_encoder.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/check.h"
#include "ops/metal/metal_texts.h"

namespace quire::ops {
namespace {

std::string text_of(std::string_view op) {
  for (const MetalText& entry : metal_texts())
    if (entry.op == op) return entry.text;
  throw std::logic_error("there are no kernels called " + std::string(op));
}

MTL::Size size_of(const MetalSize& size) { return MTL::Size(size.x, size.y, size.z); }

}  // namespace

void AppleEncoder::dispatch(const MetalCall& call, std::span<const MetalArgument> arguments) {
  if (call.groups.x == 0 || call.groups.y == 0 || call.groups.z == 0) return;
  QUIRE_CHECK(call.threadgroup_bytes % 16 == 0) << call.kernel << ": " << call.threadgroup_bytes;
  encoder_.set_compute_pipeline_state(pipeline_of(call));
  for (const MetalArgument& argument : arguments) set(argument);
  if (call.threadgroup_bytes > 0) encoder_.set_threadgroup_memory_length(call.threadgroup_bytes, 0);
  encoder_.dispatch_threadgroups(size_of(call.groups), size_of(call.threads));
}

// Only what no other node of the graph sees may be a temporary: MLX forgets who wrote it.
mx::array AppleEncoder::scratch(int64_t floats) {
  const auto count = static_cast<int>(std::max<int64_t>(1, floats));
  mx::array memory(mx::allocator::malloc(static_cast<size_t>(count) * sizeof(float)), {count},
                   mx::float32);
  encoder_.add_temporary(memory);
  return memory;
}

// Compiles the op's text when the first of its kernels is asked for. The key has all that a
// pipeline is made of.
MTL::ComputePipelineState* AppleEncoder::pipeline_of(const MetalCall& call) {
  MTL::Library* library =
      device_.get_library("quire_" + std::string(op_), [this] { return text_of(op_); });
  mx::metal::MTLFCList constants;
  std::string key = call.kernel;
  for (const MetalConstant& constant : call.constants) {
    constants.emplace_back(
        constant.bytes, constant.is_bool() ? MTL::DataTypeBool : MTL::DataTypeInt, constant.index);
    key += "_" + std::to_string(constant.index) + "=" + std::to_string(constant.value());
  }
  MTL::ComputePipelineState* pipeline = device_.get_kernel(call.kernel, library, key, constants);
  const uint64_t threads = uint64_t{call.threads.x} * call.threads.y * call.threads.z;
  if (threads > pipeline->maxTotalThreadsPerThreadgroup())
    throw std::runtime_error("metal: this GPU runs " +
                             std::to_string(pipeline->maxTotalThreadsPerThreadgroup()) +
                             " threads of " + call.kernel + " together, but " +
                             std::to_string(threads) + " are needed; --device cpu runs the model");
  return pipeline;
}

void AppleEncoder::set(const MetalArgument& argument) {
  if (argument.use == MetalArgument::Use::kNumbers)
    return encoder_.set_bytes(static_cast<const char*>(argument.numbers),
                              static_cast<int>(argument.bytes), argument.index);
  encoder_.set_input_array(*argument.array, argument.index);
  if (argument.use != MetalArgument::Use::kRead) encoder_.register_output_array(*argument.array);
}

}  // namespace quire::ops
