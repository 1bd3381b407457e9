#include "append.h"

#include <cstddef>
#include <cstring>

namespace quire_kernels {
namespace {

using quire::ops::Bf16;
using quire::ops::F16;
using quire::ops::FloatType;
using quire::ops::from_float;
using quire::ops::to_float;

template <class T>
void rotate(const T* x, T* out, const int64_t* positions, int64_t n, int64_t heads, int64_t dim,
            const Rotation& rotation) {
  const int64_t half = rotation.width / 2;
  const int64_t step = rotation.interleaved ? 2 : 1, apart = rotation.interleaved ? 1 : half;
  for (int64_t row = 0; row < n; ++row) {
    const T* cos = static_cast<const T*>(rotation.cos) + positions[row] * half;
    const T* sin = static_cast<const T*>(rotation.sin) + positions[row] * half;
    for (int64_t h = 0; h < heads; ++h, x += dim, out += dim) {
      for (int64_t i = 0; i < half; ++i) {
        const int64_t a = i * step, b = a + apart;
        const float c = to_float(cos[i]), s = to_float(sin[i]);
        const float xa = to_float(x[a]), xb = to_float(x[b]);
        out[a] = from_float<T>(xa * c - xb * s);
        out[b] = from_float<T>(xa * s + xb * c);
      }
      for (int64_t i = rotation.width; i < dim; ++i) out[i] = x[i];
    }
  }
}

}  // namespace

void write_rows(const void* rows, void* pool, const int64_t* slots, int64_t n, int64_t row_bytes) {
  for (int64_t i = 0; i < n; ++i) {
    if (slots[i] < 0) continue;
    std::memcpy(static_cast<std::byte*>(pool) + slots[i] * row_bytes,
                static_cast<const std::byte*>(rows) + i * row_bytes,
                static_cast<size_t>(row_bytes));
  }
}

void rotate_rows(const void* x, void* out, const int64_t* positions, int64_t n, int64_t heads,
                 int64_t dim, const Rotation& rotation) {
  switch (rotation.type) {
    case FloatType::kF32:
      return rotate(static_cast<const float*>(x), static_cast<float*>(out), positions, n, heads,
                    dim, rotation);
    case FloatType::kF16:
      return rotate(static_cast<const F16*>(x), static_cast<F16*>(out), positions, n, heads, dim,
                    rotation);
    case FloatType::kBf16:
      return rotate(static_cast<const Bf16*>(x), static_cast<Bf16*>(out), positions, n, heads, dim,
                    rotation);
  }
}

}  // namespace quire_kernels
