#pragma once
#include <cstddef>
#include <span>

#include "formats/raw_tensor.h"

namespace quire::formats {

// Throws LoadError if one of these elements of a tensor of floats (F16, BF16 or F32) is infinite or
// NaN. They begin with a whole element; elements of other dtypes are not looked at.
void expect_finite(const RawTensor& tensor, std::span<const std::byte> elements);

}  // namespace quire::formats
