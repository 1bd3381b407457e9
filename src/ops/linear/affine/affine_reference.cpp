#include "ops/linear/affine/affine_reference.h"

#include <cstring>
#include <vector>

#include "ops/linear/pack/affine_matrix.h"

namespace quire::ops {
namespace {

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

struct Affine {
  float scale, bias;
};

Affine scale_at(const QuantisedLayout& layout, const std::byte* block, int64_t group, int64_t row) {
  if (layout.scale_type == FloatType::kF32) {
    const std::byte* at = block + (group * 32 + row) * 4;
    return {read<float>(at), read<float>(at + 64)};
  }
  if (layout.zeros != ZeroPoints::kNone) {
    const auto bits = read<uint16_t>(block + (group * 16 + row) * 2);
    const float scale =
        layout.scale_type == FloatType::kF16 ? to_float(F16{bits}) : to_float(Bf16{bits});
    int zero = layout.least_zero;
    if (layout.zeros == ZeroPoints::kBytes)
      zero += read<uint8_t>(block + layout.groups() * 32 + group * 16 + row);
    return {scale, -scale * static_cast<float>(zero)};
  }
  const auto both = read<uint32_t>(block + (group * 16 + row) * 4);
  const auto high = static_cast<uint16_t>(both >> 16), low = static_cast<uint16_t>(both);
  if (layout.scale_type == FloatType::kF16) return {to_float(F16{high}), to_float(F16{low})};
  return {to_float(Bf16{high}), to_float(Bf16{low})};
}

}  // namespace

mx::array unpack_affine(const PackedMatrix& matrix) {
  const QuantisedLayout layout = quantised_layout(matrix);
  std::vector<float> q, scales, biases;
  // Where each row of the matrix lies.
  std::vector<int64_t> place(static_cast<size_t>(layout.n));
  for (int64_t row = 0; row < layout.panels() * 16; ++row)
    if (const int64_t source = layout.source_row(row); source >= 0)
      place[static_cast<size_t>(source)] = row;
  for (const int64_t n : place) {
    for (int64_t k = 0; k < layout.k; ++k) {
      const std::byte* block = matrix.data.get() + layout.offset(n / 16, k / 128);
      const auto* bytes = reinterpret_cast<const uint8_t*>(block);
      const Affine affine = scale_at(layout, block, k % 128 / layout.group_size, n % 16);
      q.push_back(static_cast<float>(layout.code(bytes, n % 16, k % 128)));
      scales.push_back(affine.scale);
      biases.push_back(affine.bias);
    }
  }
  const mx::Shape shape = {static_cast<int>(layout.n), static_cast<int>(layout.k)};
  const auto array = [&](const std::vector<float>& values) {
    return mx::array(values.data(), shape, mx::float32);
  };
  return mx::astype(array(scales) * array(q) + array(biases), matrix.dtype);
}

}  // namespace quire::ops
