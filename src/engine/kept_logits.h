#pragma once
#include <mlx/mlx.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ops/gather_rows/gather_rows.h"
#include "ops/runtime/context.h"

namespace quire::engine {

namespace mx = mlx::core;

// Logits of rows that are sampled later than their step, on the device: they never go to the host,
// and only these rows are copied. Used by the engine thread.
class KeptLogits {
 public:
  // A row's place, as long as this lives.
  class Place {
   public:
    Place(std::shared_ptr<std::vector<int32_t>> free, int32_t index)
        : free_(std::move(free)), index_(index) {}
    ~Place() {
      if (free_) free_->push_back(index_);
    }
    Place(Place&&) noexcept = default;
    Place& operator=(Place&& other) noexcept {
      std::swap(free_, other.free_);
      std::swap(index_, other.index_);
      return *this;
    }
    int32_t index() const { return index_; }

   private:
    std::shared_ptr<std::vector<int32_t>> free_;
    int32_t index_;
  };

  // For as many rows at a time.
  KeptLogits(int64_t rows, int64_t vocab);

  // Takes the memory, if it is not there yet. Else the first put() does.
  void allocate(ops::Device& device);
  void release() { memory_.reset(); }

  // Throws std::logic_error if all are taken.
  Place take_place();

  // Copies rows of logits [R, V] into places. Launch what is returned; if that was MLX's way, give
  // it to set(): there it may be another array.
  mx::array put(const ops::Context& context, const mx::array& logits,
                const std::vector<size_t>& rows, const std::vector<Place>& places);
  void set(mx::array memory) { memory_ = std::move(memory); }
  // [places, V]
  mx::array get(const ops::Context& context, const std::vector<int32_t>& places) const;

 private:
  int64_t rows_, vocab_;
  std::shared_ptr<std::vector<int32_t>> free_;
  std::optional<mx::array> memory_;
};

}  // namespace quire::engine
