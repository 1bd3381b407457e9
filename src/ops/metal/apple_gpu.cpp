// The GPU of a Mac, through MLX's own device and encoder.
#include <mlx/backend/gpu/device_info.h>
#include <mlx/backend/metal/device.h>
#include <mlx/backend/metal/metal.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "ops/metal/apple_encoder.h"
#include "ops/metal/metal_device.h"

namespace quire::ops {
namespace {

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
    AppleEncoder encoder(mx::metal::device(stream.device), mx::metal::get_command_encoder(stream),
                         op);
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
