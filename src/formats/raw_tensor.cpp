#include "formats/raw_tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/first_failure.h"
#include "base/json.h"
#include "formats/finite.h"

namespace quire::formats {
namespace {

struct DTypeRow {
  DType dtype;
  DTypeBlock block;
  std::string_view name;
  bool in_safetensors = true;
};

constexpr std::array kDTypes = {
    DTypeRow{DType::kBool, {1, 1}, "BOOL"},
    DTypeRow{DType::kU8, {1, 1}, "U8"},
    DTypeRow{DType::kI8, {1, 1}, "I8"},
    DTypeRow{DType::kU16, {1, 2}, "U16"},
    DTypeRow{DType::kI16, {1, 2}, "I16"},
    DTypeRow{DType::kU32, {1, 4}, "U32"},
    DTypeRow{DType::kI32, {1, 4}, "I32"},
    DTypeRow{DType::kU64, {1, 8}, "U64"},
    DTypeRow{DType::kI64, {1, 8}, "I64"},
    DTypeRow{DType::kF4, {2, 1}, "F4"},
    DTypeRow{DType::kF8E4M3, {1, 1}, "F8_E4M3"},
    DTypeRow{DType::kF8E5M2, {1, 1}, "F8_E5M2"},
    DTypeRow{DType::kF8E8M0, {1, 1}, "F8_E8M0"},
    DTypeRow{DType::kF16, {1, 2}, "F16"},
    DTypeRow{DType::kBF16, {1, 2}, "BF16"},
    DTypeRow{DType::kF32, {1, 4}, "F32"},
    DTypeRow{DType::kF64, {1, 8}, "F64"},
    DTypeRow{DType::kQ4_0, {32, 18}, "Q4_0", false},
    DTypeRow{DType::kQ4_1, {32, 20}, "Q4_1", false},
    DTypeRow{DType::kQ5_0, {32, 22}, "Q5_0", false},
    DTypeRow{DType::kQ5_1, {32, 24}, "Q5_1", false},
    DTypeRow{DType::kQ8_0, {32, 34}, "Q8_0", false},
    DTypeRow{DType::kQ2K, {256, 84}, "Q2_K", false},
    DTypeRow{DType::kQ3K, {256, 110}, "Q3_K", false},
    DTypeRow{DType::kQ4K, {256, 144}, "Q4_K", false},
    DTypeRow{DType::kQ5K, {256, 176}, "Q5_K", false},
    DTypeRow{DType::kQ6K, {256, 210}, "Q6_K", false},
    DTypeRow{DType::kIq4Nl, {32, 18}, "IQ4_NL", false},
    DTypeRow{DType::kIq4Xs, {256, 136}, "IQ4_XS", false},
    DTypeRow{DType::kMxfp4, {32, 17}, "MXFP4", false},
    DTypeRow{DType::kNvfp4, {64, 36}, "NVFP4", false},
};

const DTypeRow& row(DType dtype) {
  for (const DTypeRow& r : kDTypes)
    if (r.dtype == dtype) return r;
  QUIRE_CHECK(false) << "DType " << static_cast<int>(dtype) << " is not in the table";
  return kDTypes[0];
}

// Calls handle(begin, count) for pieces of [offset, offset + size) of a tensor, on all threads.
// They are cut where blocks of its digest begin.
template <class Handle>
void in_pieces(const RawTensor& tensor, uint64_t offset, uint64_t size, ThreadPool& pool,
               const Handle& handle) {
  constexpr uint64_t kPieceBytes = uint64_t{128} << 10;
  const uint64_t block = digest_block_bytes(tensor);
  const uint64_t piece_bytes = block * std::max<uint64_t>(1, kPieceBytes / block);
  const uint64_t end = offset + size, first_piece = offset / piece_bytes;
  const uint64_t pieces = (end + piece_bytes - 1) / piece_bytes - first_piece;
  FirstFailure failure;
  pool.parallel_for(static_cast<int64_t>(pieces), [&](int64_t i) {
    const uint64_t piece = (first_piece + static_cast<uint64_t>(i)) * piece_bytes;
    const uint64_t from = std::max(offset, piece), to = std::min(end, piece + piece_bytes);
    failure.note([&] { handle(from, to - from); });
  });
  failure.rethrow();
}

}  // namespace

DTypeBlock dtype_block(DType dtype) { return row(dtype).block; }

bool is_blocks(DType dtype) { return !row(dtype).in_safetensors; }

int dtype_bits(DType dtype) {
  const DTypeRow& r = row(dtype);
  QUIRE_CHECK(r.in_safetensors) << r.name << " has blocks, and no whole number of bits per element";
  return static_cast<int>(r.block.bytes * 8 / r.block.elements);
}

int dtype_size(DType dtype) {
  const DTypeRow& r = row(dtype);
  QUIRE_CHECK(r.block.elements == 1) << r.name << " has no whole number of bytes per element";
  return static_cast<int>(r.block.bytes);
}

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view safetensors_name) {
  for (const DTypeRow& r : kDTypes)
    if (r.in_safetensors && r.name == safetensors_name) return r.dtype;
  return std::nullopt;
}

std::string title(const RawTensor& tensor) {
  if (tensor.stored_name.empty()) return tensor.name;
  return tensor.stored_name + " (" + tensor.name + ")";
}

std::string where(const RawTensor& tensor) { return tensor.file() + ": tensor " + title(tensor); }

uint64_t digest_block_bytes(const RawTensor& tensor) {
  constexpr uint64_t kMost = uint64_t{128} << 10, kLeast = uint64_t{4} << 10, kRows = 16;
  if (tensor.shape.size() < 2 || tensor.size == 0) return ContentDigest::kBlockBytes;
  const auto rows = static_cast<uint64_t>(tensor.num_elements() / tensor.shape.back());
  uint64_t bytes = tensor.size / rows * kRows;
  while (bytes > kMost && bytes % 2 == 0 && bytes > tensor.size / rows) bytes /= 2;
  return bytes >= kLeast && bytes <= kMost ? bytes : ContentDigest::kBlockBytes;
}

void RawTensor::record_contents() {
  digest = std::make_shared<ContentDigest>(size, digest_block_bytes(*this));
}

int64_t RawTensor::num_elements() const {
  int64_t n = 1;
  for (int64_t dim : shape) n *= dim;
  return n;
}

// Whole runs are read, and their rows put in order.
void RawTensor::fetch_ordered(uint64_t offset, std::span<std::byte> out) const {
  const auto rows = static_cast<uint64_t>(alternating_rows);
  const uint64_t row_bytes = size / static_cast<uint64_t>(shape.front());
  std::vector<std::byte> run(rows * row_bytes);
  uint64_t have = UINT64_MAX;
  while (!out.empty()) {
    const uint64_t row = offset / row_bytes, inside = offset % row_bytes;
    const uint64_t index = row / rows, i = row % rows;
    if (have != index) source->read(begin + index * run.size(), run);
    have = index;
    const uint64_t stored = i < rows / 2 ? 2 * i : 2 * (i - rows / 2) + 1;
    const size_t bytes = std::min<size_t>(out.size(), row_bytes - inside);
    std::memcpy(out.data(), run.data() + stored * row_bytes + inside, bytes);
    out = out.subspan(bytes);
    offset += bytes;
  }
}

void RawTensor::fetch(uint64_t offset, std::span<std::byte> out) const {
  QUIRE_CHECK(offset <= size && out.size() <= size - offset) << name << ": read beyond its end";
  alternating_rows > 0 ? fetch_ordered(offset, out) : source->read(begin + offset, out);
}

void RawTensor::read(uint64_t offset, std::span<std::byte> out) const {
  fetch(offset, out);
  if (digest) digest->add(offset, out);
}

void RawTensor::read(uint64_t offset, std::span<std::byte> out, ThreadPool& pool) const {
  in_pieces(*this, offset, out.size(), pool, [&](uint64_t begin, uint64_t count) {
    read(begin, out.subspan(begin - offset, count));
  });
}

void RawTensor::read_finite(uint64_t offset, std::span<std::byte> out, ThreadPool& pool) const {
  in_pieces(*this, offset, out.size(), pool, [&](uint64_t begin, uint64_t count) {
    read_finite(begin, out.subspan(begin - offset, count));
  });
}

void RawTensor::read_finite(uint64_t offset, std::span<std::byte> out) const {
  read(offset, out);
  expect_finite(*this, out);
}

void RawTensor::count(uint64_t offset, std::span<const std::byte> bytes, ThreadPool& pool) const {
  in_pieces(*this, offset, bytes.size(), pool, [&](uint64_t begin, uint64_t count) {
    const std::span<const std::byte> piece = bytes.subspan(begin - offset, count);
    if (digest) digest->add(begin, piece);
    expect_finite(*this, piece);
  });
}

std::vector<std::byte> RawTensor::read_all() const {
  std::vector<std::byte> bytes(size);
  read(0, bytes);
  return bytes;
}

std::string quote_name(std::string_view text) {
  constexpr size_t kMost = 120;
  std::string out;
  append_json_string(out, text.substr(0, kMost));
  if (text.size() > kMost) out += "... (" + std::to_string(text.size()) + " bytes)";
  return out;
}

}  // namespace quire::formats
