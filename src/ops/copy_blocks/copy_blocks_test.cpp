#include "ops/copy_blocks/copy_blocks.h"

#include "ops/kv_write/kv_write.h"
#include "ops/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// A pool with known bytes everywhere.
PagedKv pool_of(mx::Dtype dtype, KvStorage storage) {
  const PagedKv kv = make_paged_kv(7, 5, 3, 24, dtype, storage, 40);
  uint32_t state = 1;
  for (const mx::array& array : kv.arrays()) {
    auto* bytes = reinterpret_cast<uint8_t*>(const_cast<char*>(array.data<char>()));
    for (size_t i = 0; i < array.nbytes(); ++i)
      bytes[i] = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  }
  return kv;
}

void expect_copied(const PagedKv& kv, const std::vector<BlockCopy>& copies) {
  std::vector<std::vector<uint8_t>> expected;
  std::vector<const void*> addresses;
  for (const mx::array& array : kv.arrays()) {
    expected.push_back(to_bytes(array));
    addresses.push_back(array.data<char>());
    const size_t block = array.nbytes() / 7;
    for (const BlockCopy& copy : copies)
      std::memcpy(&expected.back()[copy.to * block], to_bytes(array).data() + copy.from * block,
                  block);
  }
  const Context context = make_context(3);
  const auto after = copy_blocks(context, kv, copies).arrays();
  ASSERT_EQ(after.size(), expected.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(to_bytes(after[i]) == expected[i]) << i;
    EXPECT_EQ(after[i].data<char>(), addresses[i]);
  }
  EXPECT_EQ(context.kernels->count("copy_blocks", "cpu"), 1);
}

TEST(CopyBlocks, CopiesEveryByteOfEveryPoolInPlace) {
  const std::vector<std::vector<BlockCopy>> all = {
      {}, {{0, 6}}, {{6, 0}, {6, 1}, {6, 2}}, {{0, 3}, {1, 4}, {2, 5}}};
  for (const auto& copies : all) {
    for (const mx::Dtype dtype : float_dtypes())
      expect_copied(pool_of(dtype, KvStorage::kAuto), copies);
    for (const KvStorage storage : {KvStorage::kInt8, KvStorage::kFp8})
      expect_copied(pool_of(mx::bfloat16, storage), copies);
  }
}

// The graph orders a copy after the write of what it copies.
TEST(CopyBlocks, ComesAfterTheWriteWhoseHandlesItTakes) {
  const Context context = make_context(2);
  PagedKv kv = pool_of(mx::float32, KvStorage::kInt8);
  auto layout = std::make_shared<BatchLayout>();
  layout->num_tokens = 1;
  layout->block_size = 5;
  layout->slot_mapping = {2 * 5 + 1};
  const mx::array k = random_array({1, 3, 24}, mx::float32, 1);
  const mx::array v = random_array({1, 3, 40}, mx::float32, 2);
  kv = kv_write(context, k, v, kv, layout);
  kv = copy_blocks(context, kv, {{2, 5}});
  for (const mx::array& array : kv.arrays()) {
    const auto bytes = to_bytes(array);
    const size_t block = bytes.size() / 7;
    EXPECT_EQ(std::memcmp(&bytes[2 * block], &bytes[5 * block], block), 0);
  }
}

TEST(CopyBlocks, RefusesBlocksThatAreNotThereAndOrdersThatMatter) {
  const PagedKv kv = pool_of(mx::float32, KvStorage::kAuto);
  const std::vector<std::vector<BlockCopy>> bad = {{{0, 7}},         {{-1, 2}},        {{7, 0}},
                                                   {{0, 1}, {2, 1}}, {{0, 1}, {1, 2}}, {{3, 3}}};
  for (const auto& copies : bad)
    EXPECT_THROW(copy_blocks(make_context(1), kv, copies), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
