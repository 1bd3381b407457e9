#pragma once
#include <cstdint>

#include "ops/half.h"

namespace quire::ops {

// How a pool stores keys and values, for kernels: no MLX.
enum class KvType : uint8_t { kF32, kF16, kBf16 };

constexpr KvType kv_type_of(FloatType type) {
  return type == FloatType::kF32 ? KvType::kF32
                                 : (type == FloatType::kF16 ? KvType::kF16 : KvType::kBf16);
}

}  // namespace quire::ops
