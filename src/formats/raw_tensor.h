#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "formats/content_digest.h"
#include "formats/data_file.h"

namespace quire::formats {

// Element types of stored tensors. The float8 types and F4 are the OCP ones, as in safetensors.
// Those from kQ4_0 on are GGUF's: blocks of neighbours in a row, which have scales of their own.
enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF4,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF16,
  kBF16,
  kF32,
  kF64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kMxfp4,
  kNvfp4,
};

// What is stored together: one element, two of kF4, or a block of a row.
struct DTypeBlock {
  int64_t elements = 1, bytes = 1;
};
DTypeBlock dtype_block(DType dtype);

// Whether elements lie in GGUF's blocks.
bool is_blocks(DType dtype);

// Bits per element: 4 for kF4, else a multiple of 8. Blocks have none: asking for it is a bug.
int dtype_bits(DType dtype);

// Bytes per element. kF4 has none (two elements share a byte): asking for it is a bug.
int dtype_size(DType dtype);

// The name in safetensors or GGUF ("BF16", "F8_E4M3", "Q4_K").
std::string_view dtype_name(DType dtype);

// The dtype of a safetensors name; nothing for a name that this program does not know.
std::optional<DType> dtype_from_name(std::string_view safetensors_name);

// A tensor as it lies in a file: C order (but see alternating_rows), little-endian. Every dim is in
// [0, kMaxDim], and `size` is exactly what the shape and dtype need.
struct RawTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar, one element
  std::shared_ptr<const DataFile> source;
  uint64_t begin = 0;  // of the file, in bytes
  uint64_t size = 0;   // in bytes
  // Counts what is read, once record_contents() was called; see Checkpoint::record_contents.
  std::shared_ptr<ContentDigest> digest = nullptr;
  // > 0: in the file each run of so many rows (of the outermost dim) has them in another order, the
  // first of one half, the first of the other and so on. They are read in their own order.
  int64_t alternating_rows = 0;
  // What its file calls it, where that is not `name`.
  std::string stored_name = {};

  const std::string& file() const { return source->path(); }
  void record_contents();
  // Product of the dims; cannot overflow in a RawTensor that a reader made.
  int64_t num_elements() const;
  // Fills `out` with its bytes from `offset` on. Any thread. Throws LoadError as DataFile::read.
  void read(uint64_t offset, std::span<std::byte> out) const;
  // The same on all threads of the pool, for large ranges.
  void read(uint64_t offset, std::span<std::byte> out, ThreadPool& pool) const;
  // The same of whole elements; throws LoadError as expect_finite, too, while they are at hand.
  void read_finite(uint64_t offset, std::span<std::byte> out) const;
  void read_finite(uint64_t offset, std::span<std::byte> out, ThreadPool& pool) const;
  // Counts and checks bytes that lie in a snapshot of its file, as if read_finite() had read them.
  void count(uint64_t offset, std::span<const std::byte> bytes, ThreadPool& pool) const;
  // All bytes of a small tensor. Throws LoadError.
  std::vector<std::byte> read_all() const;
  // As read, but does not count.
  void fetch(uint64_t offset, std::span<std::byte> out) const;

 private:
  void fetch_ordered(uint64_t offset, std::span<std::byte> out) const;
};

// Its name, for messages: that in its file first.
std::string title(const RawTensor& tensor);

// "file: tensor name", for messages.
std::string where(const RawTensor& tensor);

// Of the blocks that a tensor's digest is made of: 16 rows (packing takes as many at once), or 8,
// 4, 2 or 1 where these are long, so that rows that are read together are counted as a whole.
uint64_t digest_block_bytes(const RawTensor& tensor);

// Arrays count a dim in 32 bits further down, so a larger one is refused where it is read.
inline constexpr int64_t kMaxDim = INT32_MAX;
inline constexpr size_t kMaxDims = 16;

// `text` quoted and escaped for an error message, cut if long: names come from untrusted files.
std::string quote_name(std::string_view text);

}  // namespace quire::formats
