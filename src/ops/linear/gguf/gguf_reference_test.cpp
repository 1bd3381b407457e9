#include "ops/linear/gguf/gguf_reference.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "ops/linear/gguf/gguf_vectors.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

std::vector<uint8_t> bytes_of(std::string_view hex) {
  const auto digit = [](char c) { return c < 'a' ? c - '0' : c - 'a' + 10; };
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  return bytes;
}

// Value for value what the `gguf` package makes of them (0 equals -0).
TEST(GgufReference, EqualsThePackagesValues) {
  int formats = 0;
  for (const GgufVector& vector : kGgufVectors) {
    const GgufBlock block = gguf_block(vector.format);
    SCOPED_TRACE(block.name);
    const std::vector<uint8_t> blocks = bytes_of(vector.blocks), expected = bytes_of(vector.values);
    const auto k = static_cast<int64_t>(expected.size() / sizeof(float));
    ASSERT_EQ(static_cast<int64_t>(blocks.size()), gguf_row_bytes(vector.format, k));
    std::vector<float> wanted(static_cast<size_t>(k)), values(wanted.size());
    std::memcpy(wanted.data(), expected.data(), expected.size());
    gguf_reference(vector.format, blocks.data(), k, values.data());
    EXPECT_EQ(values, wanted);
    ++formats;
  }
  EXPECT_EQ(formats, 14);
}

TEST(GgufReference, KnowsTheTypesOfAFile) {
  EXPECT_EQ(find_gguf_format(12), GgufFormat::kQ4_K);
  EXPECT_EQ(gguf_row_bytes(GgufFormat::kQ4_K, 512), 288);
  for (const uint32_t other : {0u, 1u, 30u, 9u, 16u, 41u, 268u, 0xFFFFFFFFu})
    EXPECT_FALSE(find_gguf_format(other)) << other;
}

}  // namespace
}  // namespace quire::ops
