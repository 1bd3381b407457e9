#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "ops/layout/batch_layout.h"
#include "ops/metal/metal_encoder.h"
#include "ops/runtime/device.h"

namespace quire::ops {

// Slower ways to the same tokens, to measure what the usual ones gain.
struct MetalWays {
  bool gathers_pages = false;       // attention is MLX's, over keys and values copied from pages
  bool delta_rule_in_turn = false;  // the gated delta rule takes a node for each sequence
};

// A device whose kernels are in Metal's language, and on which MLX runs everything else: its
// default device is this one. A step is one lazy graph of MLX's operations and of nodes that
// launch_metal() makes. Memory is the host's, too. What differs between an Apple GPU and the
// emulator of the tests is virtual.
class MetalDevice : public Device {
 public:
  const char* name() const override { return "metal"; }
  const char* kernel_name() const override { return "metal"; }
  MetalDevice* metal() override { return this; }

  // Set before the first step.
  void set_ways(const MetalWays& ways) { ways_ = ways; }
  const MetalWays& ways() const { return ways_; }

  // Gives the kernels of one node to the encoder; outputs have their memory. `op` has the text.
  // Called on the thread that evaluates the graph.
  virtual void encode(mx::Stream stream, const char* op, const MetalKernel& kernel,
                      const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) = 0;
  // Uninitialised memory of an array.
  virtual mx::allocator::Data allocate_array(size_t bytes) = 0;
  // What an array takes for its memory over whole pages of the host, which `owner` keeps; nothing
  // if there is no buffer of them.
  virtual std::optional<mx::allocator::Data> wrap_pages(void* pages, size_t bytes,
                                                        std::shared_ptr<const void> owner) = 0;

  // An array over memory of the host that stays as it is while `owner` lives, without a copy; all
  // of the pages that it touches must be readable. Nothing if it does not begin at a multiple of
  // its elements' size, or if Metal makes no buffer of these pages.
  std::optional<mx::array> view(const void* data, const mx::Shape& shape, mx::Dtype dtype,
                                const std::shared_ptr<const void>& owner);

  void* take(size_t bytes) override;
  void give_back(void* memory) noexcept override;
  mx::array take_array(const mx::Shape& shape, mx::Dtype dtype) override;
  std::shared_ptr<std::byte[]> allocate(size_t bytes) override;
  mx::array make_pool(const mx::Shape& shape, mx::Dtype dtype) override;
  mx::array make_array(const void* values, const mx::Shape& shape, mx::Dtype dtype) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  std::unique_ptr<HostCopies> copy_to_host(const std::vector<mx::array>& arrays) override;
  void synchronize() override;
  bool owns(const void*) const override { return true; }

  // A copy of the host's values, never of size 0, which no buffer can have.
  template <class T>
  mx::array make_values(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return make_bytes(values.data(), values.size_bytes());
  }
  template <class T>
  mx::array make_values(const std::vector<T>& values) {
    return make_values(std::span<const T>(values));
  }
  // The same, made once for a layout or what else owns the values, and kept as long as that.
  template <class T>
  mx::array values_of(const std::shared_ptr<const void>& owner, const std::vector<T>& values) {
    return values_of(owner, &values, std::span<const T>(values));
  }
  template <class T>
  mx::array values_of(const std::shared_ptr<const void>& owner, std::span<const T> values) {
    return values_of(owner, values.data(), values);
  }
  // What an op keeps as long as `owner`, such as a layout's work list: make() gives it the first
  // time. `key` tells several of one owner apart.
  using Key = std::array<int64_t, 9>;
  std::shared_ptr<const void> keep(const std::shared_ptr<const void>& owner, const Key& key,
                                   const std::function<std::shared_ptr<const void>()>& make);

 private:
  mx::array make_bytes(const void* values, size_t bytes);
  template <class T>
  mx::array values_of(const std::shared_ptr<const void>& owner, const void* key,
                      std::span<const T> values) {
    const std::shared_ptr<const void> kept =
        keep(owner, {static_cast<int64_t>(reinterpret_cast<intptr_t>(key))},
             [&] { return std::make_shared<const mx::array>(make_values(values)); });
    return *static_cast<const mx::array*>(kept.get());
  }

  struct Kept {
    std::weak_ptr<const void> owner;
    std::map<Key, std::shared_ptr<const void>> values;
  };
  MetalWays ways_;
  std::mutex mutex_;
  std::map<const void*, Kept> kept_;  // by owner
};

}  // namespace quire::ops
