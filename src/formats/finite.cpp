#include "formats/finite.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace quire::formats {
namespace {

// Eight bytes of elements: the bits of their exponents, and the lowest one of each.
struct Exponents {
  uint64_t all, lowest;
};

std::optional<Exponents> exponents_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Exponents{0x7f800000'7f800000, 0x00800000'00800000};
    case DType::kF16:
      return Exponents{0x7c00'7c00'7c00'7c00, 0x0400'0400'0400'0400};
    case DType::kBF16:
      return Exponents{0x7f80'7f80'7f80'7f80, 0x0080'0080'0080'0080};
    default:
      return std::nullopt;
  }
}

// What is no number has all bits of its exponent. Then the sum carries into the place of the sign,
// and never further.
bool are_finite(std::span<const std::byte> elements, Exponents exponents) {
  uint64_t carried = 0;
  const auto look_at = [&](size_t at, size_t bytes) {
    uint64_t word = 0;
    std::memcpy(&word, elements.data() + at, bytes);
    carried |= (word & exponents.all) + exponents.lowest;
  };
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= elements.size(); at += sizeof(uint64_t))
    look_at(at, sizeof(uint64_t));
  if (at < elements.size()) look_at(at, elements.size() - at);
  const uint64_t signs = exponents.all + exponents.lowest;
  return (carried & signs) == 0;
}

}  // namespace

void expect_finite(const RawTensor& tensor, std::span<const std::byte> elements) {
  const auto exponents = exponents_of(tensor.dtype);
  if (exponents && !are_finite(elements, *exponents))
    throw LoadError(where(tensor) +
                    " holds what is no number (NaN or infinity); download the model again");
}

}  // namespace quire::formats
