#include "ops/metal/metal_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "ops/runtime/array_memory.h"

namespace quire::ops {
namespace {

// Of the largest pages of Apple's systems: MLX makes a buffer over such memory without a copy.
constexpr size_t kPage = 16384;

}  // namespace

std::optional<mx::array> MetalDevice::view(const void* data, const mx::Shape& shape,
                                           mx::Dtype dtype,
                                           const std::shared_ptr<const void>& owner) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const size_t bytes = array_bytes(shape, dtype);
  if (bytes == 0 || address % dtype.size() != 0) return std::nullopt;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = address / page * page, end = (address + bytes + page - 1) / page * page;
  auto pages = wrap_pages(reinterpret_cast<void*>(begin), end - begin, owner);
  if (!pages) return std::nullopt;
  // MLX's arrays begin anywhere in their buffers, as slices do.
  const mx::array at_begin(std::move(*pages), shape, dtype);
  mx::array result(mx::allocator::Data(mx::allocator::Buffer(nullptr), {}), shape, dtype);
  result.copy_shared_buffer(at_begin, at_begin.strides(), at_begin.flags(), at_begin.data_size(),
                            static_cast<int64_t>((address - begin) / dtype.size()));
  return result;
}

void* MetalDevice::take(size_t bytes) {
  const size_t size = std::max<size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
  void* memory = std::aligned_alloc(kPage, size);
  if (!memory) throw std::bad_alloc();
  return memory;
}

void MetalDevice::give_back(void* memory) noexcept { std::free(memory); }

std::shared_ptr<std::byte[]> MetalDevice::allocate(size_t bytes) {
  return {static_cast<std::byte*>(take(bytes)), [](std::byte* memory) { std::free(memory); }};
}

mx::array MetalDevice::take_array(const mx::Shape& shape, mx::Dtype dtype) {
  return mx::array(allocate_array(std::max<size_t>(1, array_bytes(shape, dtype))), shape, dtype);
}

mx::array MetalDevice::make_pool(const mx::Shape& shape, mx::Dtype dtype) {
  return take_array(shape, dtype);
}

mx::array MetalDevice::make_array(const void* values, const mx::Shape& shape, mx::Dtype dtype) {
  mx::array result = take_array(shape, dtype);
  if (result.nbytes() > 0) std::memcpy(result.data<std::byte>(), values, result.nbytes());
  return result;
}

mx::array MetalDevice::make_bytes(const void* values, size_t bytes) {
  mx::array result = take_array({static_cast<int>(std::max<size_t>(1, bytes))}, mx::uint8);
  if (bytes > 0) std::memcpy(result.data<std::byte>(), values, bytes);
  return result;
}

void MetalDevice::upload(void* to, const void* from, size_t bytes) {
  synchronize();
  std::memcpy(to, from, bytes);
}

void MetalDevice::download(void* to, const void* from, size_t bytes) {
  synchronize();
  std::memcpy(to, from, bytes);
}

std::unique_ptr<HostCopies> MetalDevice::copy_to_host(const std::vector<mx::array>& arrays) {
  return wait_by_evaluating(arrays);
}

void MetalDevice::synchronize() { mx::synchronize(); }

std::shared_ptr<const void> MetalDevice::keep(
    const std::shared_ptr<const void>& owner, const Key& key,
    const std::function<std::shared_ptr<const void>()>& make) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [](const auto& entry) { return entry.second.owner.expired(); });
  Kept& kept = kept_[owner.get()];
  kept.owner = owner;
  std::shared_ptr<const void>& value = kept.values[key];
  if (!value) value = make();
  return value;
}

}  // namespace quire::ops
