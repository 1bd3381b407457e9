#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace quire::models {

// Memory for pieces of the weights that were read and are packed next. They use it in turn: the
// pages of a new one would have to be cleared first, and that of the last one is in a cache.
class PieceMemory {
 public:
  // Goes back with its last handle, which must not outlive this object. Any thread.
  std::shared_ptr<std::byte[]> take(size_t bytes) {
    const auto piece = std::make_shared<Piece>(find(bytes));
    const auto give_back = [this, piece](std::byte*) {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(*piece));
    };
    return {piece->memory.get(), give_back};
  }

 private:
  struct Piece {
    std::unique_ptr<std::byte[]> memory = nullptr;
    size_t size = 0;
  };
  Piece find(size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      for (auto i = free_.rbegin(); i != free_.rend(); ++i) {
        if (i->size < bytes) continue;
        Piece piece = std::move(*i);
        free_.erase(std::next(i).base());
        return piece;
      }
      if (!free_.empty()) free_.pop_back();  // too small
    }
    return {.memory = std::make_unique_for_overwrite<std::byte[]>(bytes), .size = bytes};
  }

  std::mutex mutex_;
  std::vector<Piece> free_;
};

}  // namespace quire::models
