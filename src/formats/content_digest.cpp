#include "formats/content_digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "base/check.h"
#include "formats/content_hash.h"

namespace quire::formats {

static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

namespace {

uint64_t plain_hash(const void* data, size_t size) { return XXH3_64bits(data, size); }

// The same numbers, three times as fast with AVX2.
ContentHash fastest_hash() {
#ifdef __x86_64__
  if (content_hash_avx2() && __builtin_cpu_supports("avx2")) return content_hash_avx2();
#endif
  return plain_hash;
}

}  // namespace

ContentDigest::ContentDigest(uint64_t size, uint64_t block_bytes)
    : size_(size),
      block_bytes_(block_bytes),
      count_((size + block_bytes - 1) / block_bytes),
      blocks_(std::make_unique<std::atomic<uint64_t>[]>(count_)) {}

uint64_t ContentDigest::block_size(uint64_t block) const {
  return std::min(block_bytes_, size_ - block * block_bytes_);
}

void ContentDigest::add(uint64_t offset, std::span<const std::byte> bytes) {
  QUIRE_CHECK(offset <= size_ && bytes.size() <= size_ - offset) << "bytes beyond the end";
  begun_.store(true, std::memory_order_relaxed);
  const uint64_t end = offset + bytes.size();
  for (uint64_t i = (offset + block_bytes_ - 1) / block_bytes_; i < count_; ++i) {
    const uint64_t begin = i * block_bytes_;
    if (begin + block_size(i) > end) return;
    if (blocks_[i].load(std::memory_order_relaxed) != 0) continue;
    static const ContentHash kHash = fastest_hash();
    const uint64_t hash = kHash(bytes.data() + (begin - offset), block_size(i));
    blocks_[i].store(std::max<uint64_t>(1, hash), std::memory_order_relaxed);
  }
}

void ContentDigest::complete(
    const std::function<void(uint64_t offset, std::span<std::byte> out)>& read) {
  std::vector<std::byte> bytes;
  for (uint64_t i = 0; i < count_; ++i) {
    if (blocks_[i].load(std::memory_order_relaxed) != 0) continue;
    bytes.resize(block_size(i));
    read(i * block_bytes_, bytes);
    add(i * block_bytes_, bytes);
  }
}

std::string_view ContentDigest::blocks() const {
  return {reinterpret_cast<const char*>(blocks_.get()), count_ * sizeof(uint64_t)};
}

std::string hex_digest(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text.data();
}

}  // namespace quire::formats
