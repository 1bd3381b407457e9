#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quire::formats {

// The digest of a long run of bytes (a tensor's) that are read in any order, in pieces of any size.
// It is made of the digests of blocks at fixed places, each taken while its bytes are at hand, so
// that nothing is read for the digest alone. It tells files apart that differ by accident; it is no
// protection against files that somebody made to be taken for each other.
class ContentDigest {
 public:
  static constexpr uint64_t kBlockBytes = uint64_t{64} << 10;

  explicit ContentDigest(uint64_t size, uint64_t block_bytes = kBlockBytes);

  // Any thread. `bytes` lie at `offset`. Counts the blocks that they hold as a whole.
  void add(uint64_t offset, std::span<const std::byte> bytes);
  // Whether anything was added.
  bool is_begun() const { return begun_.load(std::memory_order_relaxed); }
  // Calls `read` for every block that no piece held as a whole, and counts it.
  void complete(const std::function<void(uint64_t offset, std::span<std::byte> out)>& read);
  // The digests of all blocks, once they are complete.
  std::string_view blocks() const;

 private:
  uint64_t block_size(uint64_t block) const;

  const uint64_t size_, block_bytes_, count_;
  std::atomic<bool> begun_{false};
  std::unique_ptr<std::atomic<uint64_t>[]> blocks_;  // 0: not counted
};

// The digest of a text: 32 hexadecimal digits.
std::string hex_digest(std::string_view bytes);

}  // namespace quire::formats
