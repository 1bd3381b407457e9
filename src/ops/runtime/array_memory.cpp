#include "ops/runtime/array_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <vector>

#include "ops/cpu/aligned_bytes.h"

namespace quire::ops {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallest = 512;  // with the header
constexpr size_t kHugePage = size_t{2} << 20;
// Kernels write columns of rows: with small pages every row of such an array is a page of its own.
constexpr size_t kHugeFrom = kHugePage / 2;

// Where MLX finds the data of a Buffer, relative to the pointer that the Buffer holds.
ptrdiff_t buffer_offset() {
  static const ptrdiff_t offset = [] {
    const auto data = mx::allocator::malloc(1);
    auto buffer = data.buffer();
    return static_cast<std::byte*>(buffer.raw_ptr()) - static_cast<std::byte*>(buffer.ptr());
  }();
  return offset;
}

// Four sizes for each power of two: at most a fifth is wasted, and a few classes serve all lengths
// of prompts. Large ones are whole huge pages.
size_t round_up(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  const size_t step = std::max<size_t>(std::bit_floor(bytes - 1) / 4, 1);
  const size_t size = (bytes + step - 1) / step * step;
  return size < kHugeFrom ? size : (size + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

// Blocks are a header of kAlignment bytes and the data. The header's last word is what MLX's
// allocator keeps there: the size.
class ArrayMemory::Cache {
 public:
  explicit Cache(size_t limit) : limit_(limit) {}

  void* allocate(size_t bytes) {
    if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
    const size_t size = round_up(bytes + kAlignment);
    void* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto& bin = bins_[size];
      bin.last_use = ++clock_;
      if (!bin.free.empty()) {
        block = bin.free.back();
        bin.free.pop_back();
        stats_.cached -= size;
      }
      stats_.used += size;
      ++users_;
    }
    if (!block) block = fresh(size);
    auto* header = static_cast<Header*>(block);
    header->cache = this;
    header->block_size = size;
    header->array_size = bytes;
    return static_cast<std::byte*>(block) + kAlignment;
  }

  static void free(void* data) {
    void* block = static_cast<std::byte*>(data) - kAlignment;
    static_cast<Header*>(block)->cache->give_back(block);
  }

  // Drops one user; the last one deletes the cache.
  void leave() {
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      last = --users_ == 0;
    }
    if (last) delete this;
  }

  Stats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  struct Header {
    Cache* cache;
    size_t block_size;
    std::byte padding[kAlignment - 3 * sizeof(size_t)];
    size_t array_size;
  };
  static_assert(sizeof(Header) == kAlignment);
  struct Bin {
    std::vector<void*> free;
    uint64_t last_use = 0;
  };

  ~Cache() {
    for (auto& [size, bin] : bins_)
      for (void* block : bin.free) std::free(block);
  }

  void* fresh(size_t size) {
    const bool huge = size >= kHugeFrom;
    const size_t alignment = huge ? kHugePage : kAlignment;
    void* block = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (!block) {
      const std::lock_guard lock(mutex_);
      stats_.used -= size;
      --users_;  // never the last: the caller holds the ArrayMemory
      throw std::bad_alloc();
    }
#ifdef MADV_HUGEPAGE
    if (huge) madvise(block, size, MADV_HUGEPAGE);  // a hint: fails without harm
#endif
    return block;
  }

  void give_back(void* block) {
    const size_t size = static_cast<Header*>(block)->block_size;
    {
      const std::lock_guard lock(mutex_);
      stats_.used -= size;
      if (size <= limit_) {
        while (stats_.cached + size > limit_) drop_oldest();
        bins_[size].free.push_back(block);
        stats_.cached += size;
        block = nullptr;
      }
    }
    std::free(block);
    leave();
  }

  // Frees a block of the size that nobody has asked for the longest.
  void drop_oldest() {
    Bin* oldest = nullptr;
    size_t oldest_size = 0;
    for (auto& [size, bin] : bins_) {
      if (bin.free.empty() || (oldest && oldest->last_use <= bin.last_use)) continue;
      oldest = &bin;
      oldest_size = size;
    }
    std::free(oldest->free.back());
    oldest->free.pop_back();
    stats_.cached -= oldest_size;
  }

  const size_t limit_;
  mutable std::mutex mutex_;
  std::map<size_t, Bin> bins_;
  uint64_t clock_ = 0;
  int64_t users_ = 1;
  Stats stats_;
};

ArrayMemory::ArrayMemory(size_t cache_limit) : cache_(new Cache(cache_limit)) {}
ArrayMemory::~ArrayMemory() { cache_->leave(); }
ArrayMemory::Stats ArrayMemory::stats() const { return cache_->stats(); }

void ArrayMemory::begin_launch(size_t bytes) {
  for (size_t ahead = launched_.load(); ahead > kAheadLimit; ahead = launched_.load())
    launched_.wait(ahead);
  launched_.fetch_add(bytes);
}

void ArrayMemory::finish_launch(size_t bytes) noexcept {
  launched_.fetch_sub(bytes);
  launched_.notify_all();
}

mx::allocator::Data ArrayMemory::allocate(size_t bytes) {
  const ptrdiff_t offset = buffer_offset();
  void* data = cache_->allocate(bytes);
  return {mx::allocator::Buffer(static_cast<std::byte*>(data) - offset),
          [](mx::allocator::Buffer buffer) { Cache::free(buffer.raw_ptr()); }};
}

void* ArrayMemory::take(size_t bytes) { return cache_->allocate(bytes); }
void ArrayMemory::give_back(void* memory) noexcept { Cache::free(memory); }

size_t array_bytes(const mx::Shape& shape, mx::Dtype dtype) {
  size_t bytes = mx::size_of(dtype);
  for (const auto length : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(length), &bytes))
      throw std::invalid_argument("an array's size overflows 64 bits");
  }
  return bytes;
}

mx::array make_lazy_array(const mx::Shape& shape, mx::Dtype dtype) {
  const size_t bytes = array_bytes(shape, dtype);
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  // Room to align to a huge page, behind at least one page for the size that MLX keeps there.
  const size_t mapped = (bytes + kHugePage - 1) / kHugePage * kHugePage + 2 * kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t aligned = (begin + 4096 + kHugePage - 1) / kHugePage * kHugePage;
  auto* data = reinterpret_cast<std::byte*>(aligned);
#ifdef MADV_HUGEPAGE
  if (bytes >= kHugePage) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  reinterpret_cast<size_t*>(data)[-1] = bytes;
  return mx::array(
      mx::allocator::Data(mx::allocator::Buffer(data - buffer_offset()),
                          [memory, mapped](mx::allocator::Buffer) { munmap(memory, mapped); }),
      shape, dtype);
}

void commit_memory(const mx::array& lazy, size_t begin, size_t end) noexcept {
#ifdef MADV_POPULATE_WRITE
  constexpr size_t kPage = 4096;
  const size_t to = std::min(end, lazy.nbytes());
  const size_t from = begin / kPage * kPage;  // lazy arrays begin at a page
  auto* data = const_cast<std::byte*>(lazy.data<std::byte>());
  if (from < to) madvise(data + from, (to - from + kPage - 1) / kPage * kPage, MADV_POPULATE_WRITE);
#endif
}

mx::allocator::Data wrap_data(void* memory, std::function<void(void*)> free) {
  return mx::allocator::Data(
      mx::allocator::Buffer(static_cast<std::byte*>(memory) - buffer_offset()),
      [memory, free = std::move(free)](mx::allocator::Buffer) { free(memory); });
}

mx::array wrap_memory(void* memory, const mx::Shape& shape, mx::Dtype dtype,
                      std::function<void(void*)> free) {
  return mx::array(wrap_data(memory, std::move(free)), shape, dtype);
}

}  // namespace quire::ops
