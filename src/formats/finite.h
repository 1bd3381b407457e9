#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "formats/raw_tensor.h"

namespace quire::formats {

// Its name, for messages: that in its file first.
std::string title(const RawTensor& tensor);

// "file: tensor name", for messages.
std::string where(const RawTensor& tensor);

// Throws LoadError if one of these elements of a tensor of floats (F16, BF16 or F32) is infinite or
// NaN. They begin with a whole element; elements of other dtypes are not looked at.
void expect_finite(const RawTensor& tensor, std::span<const std::byte> elements);

}  // namespace quire::formats
