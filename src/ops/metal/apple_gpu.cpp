// The GPU of a Mac, through MLX's own device and encoder.
#include <mlx/backend/gpu/device_info.h>
#include <mlx/backend/metal/device.h>
#include <mlx/backend/metal/metal.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "ops/metal/metal_device.h"
#include "ops/metal/metal_texts.h"

namespace quire::ops {
namespace {

std::string text_of(std::string_view op) {
  for (const MetalText& entry : metal_texts())
    if (entry.op == op) return entry.text;
  throw std::logic_error("there are no kernels called " + std::string(op));
}

MTL::Size size_of(const MetalSize& size) { return MTL::Size(size.x, size.y, size.z); }

class AppleEncoder final : public MetalEncoder {
 public:
  AppleEncoder(mx::Stream stream, const char* op)
      : device_(mx::metal::device(stream.device)),
        encoder_(mx::metal::get_command_encoder(stream)),
        op_(op) {}

  void dispatch(const MetalCall& call, std::span<const MetalArgument> arguments) override {
    if (call.groups.x == 0 || call.groups.y == 0 || call.groups.z == 0) return;
    MTL::ComputePipelineState* pipeline = pipeline_of(call);
    encoder_.set_compute_pipeline_state(pipeline);
    for (const MetalArgument& argument : arguments) set(argument);
    if (call.threadgroup_bytes > 0)
      encoder_.set_threadgroup_memory_length(call.threadgroup_bytes, 0);
    encoder_.dispatch_threadgroups(size_of(call.groups), size_of(call.threads));
  }

  mx::array scratch(int64_t floats) override {
    const size_t bytes = static_cast<size_t>(std::max<int64_t>(1, floats)) * sizeof(float);
    mx::array memory(mx::allocator::malloc(bytes), {static_cast<int>(std::max<int64_t>(1, floats))},
                     mx::float32);
    encoder_.add_temporary(memory);
    return memory;
  }

 private:
  // Compiles the op's text when the first of its kernels is asked for.
  MTL::ComputePipelineState* pipeline_of(const MetalCall& call) {
    MTL::Library* library =
        device_.get_library("quire_" + std::string(op_), [this] { return text_of(op_); });
    mx::metal::MTLFCList constants;
    std::string key = call.kernel;
    for (const MetalConstant& constant : call.constants) {
      constants.emplace_back(constant.bytes,
                             constant.is_bool() ? MTL::DataTypeBool : MTL::DataTypeInt,
                             constant.index);
      key += "_" + std::to_string(constant.value());
    }
    MTL::ComputePipelineState* pipeline = device_.get_kernel(call.kernel, library, key, constants);
    const uint64_t threads = uint64_t{call.threads.x} * call.threads.y * call.threads.z;
    if (threads > pipeline->maxTotalThreadsPerThreadgroup())
      throw std::runtime_error(
          "metal: this GPU runs " + std::to_string(pipeline->maxTotalThreadsPerThreadgroup()) +
          " threads of " + call.kernel + " together, but " + std::to_string(threads) +
          " are needed; --device cpu runs the model");
    return pipeline;
  }

  void set(const MetalArgument& argument) {
    if (argument.use == MetalArgument::Use::kNumbers)
      return encoder_.set_bytes(static_cast<const char*>(argument.numbers),
                                static_cast<int>(argument.bytes), argument.index);
    encoder_.set_input_array(*argument.array, argument.index);
    if (argument.use != MetalArgument::Use::kRead) encoder_.register_output_array(*argument.array);
  }

  mx::metal::Device& device_;
  mx::metal::CommandEncoder& encoder_;
  const char* op_;
};

template <class T>
std::optional<T> info(const char* key) {
  const auto& all = mx::gpu::device_info();
  const auto entry = all.find(key);
  if (entry == all.end() || !std::holds_alternative<T>(entry->second)) return std::nullopt;
  return std::get<T>(entry->second);
}

class AppleGpu final : public MetalDevice {
 public:
  std::string description() const override {
    return info<std::string>("device_name").value_or("Apple GPU");
  }
  void encode(mx::Stream stream, const char* op, const MetalKernel& kernel,
              const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    AppleEncoder encoder(stream, op);
    kernel(encoder, inputs, outputs);
  }
  mx::allocator::Data allocate_array(size_t bytes) override { return mx::allocator::malloc(bytes); }
  std::optional<mx::allocator::Data> wrap_pages(void* pages, size_t bytes,
                                                std::shared_ptr<const void> owner) override {
    const mx::allocator::Buffer buffer = mx::allocator::make_buffer(pages, bytes);
    if (!buffer.ptr()) return std::nullopt;
    return mx::allocator::Data(
        buffer, [owner = std::move(owner)](mx::allocator::Buffer b) { mx::allocator::release(b); });
  }

  // What Metal recommends to use at most; more makes the system slow.
  std::optional<size_t> total_bytes() const override {
    return info<size_t>("max_recommended_working_set_size");
  }
  std::optional<size_t> free_bytes() const override {
    const auto total = total_bytes();
    if (!total) return std::nullopt;
    return *total - std::min(*total, mx::get_active_memory());
  }
};

}  // namespace

std::shared_ptr<Device> make_apple_gpu() {
  if (!mx::metal::is_available()) throw std::runtime_error("this Mac has no GPU that Metal knows");
  mx::set_default_device(mx::Device::gpu);
  return std::make_shared<AppleGpu>();
}

}  // namespace quire::ops
