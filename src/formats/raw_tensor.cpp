#include "formats/raw_tensor.h"

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>

#include "base/check.h"
#include "base/json.h"

namespace quire::formats {
namespace {

struct DTypeRow {
  DType dtype;
  int bits;
  std::string_view name;
};

constexpr std::array kDTypes = {
    DTypeRow{DType::kBool, 8, "BOOL"},      DTypeRow{DType::kU8, 8, "U8"},
    DTypeRow{DType::kI8, 8, "I8"},          DTypeRow{DType::kU16, 16, "U16"},
    DTypeRow{DType::kI16, 16, "I16"},       DTypeRow{DType::kU32, 32, "U32"},
    DTypeRow{DType::kI32, 32, "I32"},       DTypeRow{DType::kU64, 64, "U64"},
    DTypeRow{DType::kI64, 64, "I64"},       DTypeRow{DType::kF4, 4, "F4"},
    DTypeRow{DType::kF8E4M3, 8, "F8_E4M3"}, DTypeRow{DType::kF8E5M2, 8, "F8_E5M2"},
    DTypeRow{DType::kF8E8M0, 8, "F8_E8M0"}, DTypeRow{DType::kF16, 16, "F16"},
    DTypeRow{DType::kBF16, 16, "BF16"},     DTypeRow{DType::kF32, 32, "F32"},
    DTypeRow{DType::kF64, 64, "F64"},
};

const DTypeRow& row(DType dtype) {
  for (const DTypeRow& r : kDTypes)
    if (r.dtype == dtype) return r;
  QUIRE_CHECK(false) << "DType " << static_cast<int>(dtype) << " is not in the table";
  return kDTypes[0];
}

}  // namespace

int dtype_bits(DType dtype) { return row(dtype).bits; }

int dtype_size(DType dtype) {
  const DTypeRow& r = row(dtype);
  QUIRE_CHECK(r.bits % 8 == 0) << r.name << " has no whole number of bytes per element";
  return r.bits / 8;
}

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view safetensors_name) {
  for (const DTypeRow& r : kDTypes)
    if (r.name == safetensors_name) return r.dtype;
  return std::nullopt;
}

int64_t RawTensor::num_elements() const {
  int64_t n = 1;
  for (int64_t dim : shape) n *= dim;
  return n;
}

void RawTensor::read(uint64_t offset, std::span<std::byte> out) const {
  QUIRE_CHECK(offset <= size && out.size() <= size - offset) << name << ": read beyond its end";
  source->read(begin + offset, out);
  if (digest) digest->add(offset, out);
}

void RawTensor::read(uint64_t offset, std::span<std::byte> out, ThreadPool& pool) const {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  std::exception_ptr failure;
  std::mutex mutex;
  // Cut at fixed places of the tensor, as the blocks of its digest are.
  const uint64_t end = offset + out.size(), first_piece = offset / kPieceBytes;
  const uint64_t pieces = (end + kPieceBytes - 1) / kPieceBytes - first_piece;
  pool.parallel_for(static_cast<int64_t>(pieces), [&](int64_t i) {
    const uint64_t piece = (first_piece + static_cast<uint64_t>(i)) * kPieceBytes;
    const uint64_t from = std::max(offset, piece), to = std::min(end, piece + kPieceBytes);
    try {
      read(from, out.subspan(from - offset, to - from));
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
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
