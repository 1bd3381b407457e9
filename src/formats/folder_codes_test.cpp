#include "formats/folder_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "formats/gptq_vectors.h"

namespace quire::formats {
namespace {

using testing::FolderVector;

std::vector<std::byte> bytes_of(std::string_view digits) {
  std::vector<std::byte> out;
  for (size_t i = 0; i < digits.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  return out;
}

float widen(uint16_t bits, bool is_half) {
  if (!is_half) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &wide, sizeof(x));
    return x;
  }
  const int exponent = bits >> 10 & 31;
  const float size = exponent ? std::ldexp(static_cast<float>(1024 + (bits & 1023)), exponent - 25)
                              : std::ldexp(static_cast<float>(bits & 1023), -24);
  return bits & 0x8000 ? -size : size;
}

IntegerMatrix unpack(const FolderVector& v, ThreadPool& pool) {
  const std::string_view name = v.name;
  const auto codes = bytes_of(v.codes), zeros = bytes_of(v.zeros), scales = bytes_of(v.scales);
  IntegerMatrix m{.n = v.n, .k = v.k, .group_size = 16, .bits = v.bits};
  if (name.starts_with("awq")) {
    unpack_awq(codes, zeros, scales, pool, m);
  } else if (name.starts_with("gptq")) {
    unpack_gptq(codes, zeros, scales, 1, pool, m);
  } else {
    unpack_packed(codes, zeros, scales, m);
  }
  const auto order = bytes_of(v.group_of);
  m.group_of.resize(order.size() / 4);
  if (!order.empty()) std::memcpy(m.group_of.data(), order.data(), order.size());
  return m;
}

// Float32 holds products of small integers and 16-bit scales, so the values are equal.
void expect_values(const FolderVector& v, ThreadPool& pool) {
  SCOPED_TRACE(v.name);
  const IntegerMatrix m = unpack(v, pool);
  const auto expected = bytes_of(v.values);
  ASSERT_EQ(expected.size(), static_cast<size_t>(4 * v.n * v.k));
  const bool is_half = !std::string_view(v.name).starts_with("compressed");
  for (int64_t row = 0; row < m.n; ++row)
    for (int64_t k = 0; k < m.k; ++k) {
      const auto at = static_cast<size_t>(row * m.groups() + m.group(k));
      const int q = static_cast<int>(m.code(row, k)) - m.zeros[at];
      float value;
      std::memcpy(&value, expected.data() + 4 * (row * m.k + k), sizeof(value));
      ASSERT_EQ(static_cast<float>(q) * widen(m.scales[at], is_half), value) << row << " " << k;
    }
}

TEST(FolderCodes, AreWhatTheLibrariesDequantise) {
  ThreadPool pool(2);
  for (const FolderVector& v : testing::kFolderVectors) expect_values(v, pool);
  for (const FolderVector& v : testing::kGptqVectors) expect_values(v, pool);
}

}  // namespace
}  // namespace quire::formats
