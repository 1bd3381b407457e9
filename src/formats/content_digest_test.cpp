#include "formats/content_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <string>

#include "formats/checkpoint.h"
#include "formats/content_hash.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using testing::TempDir;

constexpr uint64_t kBlock = ContentDigest::kBlockBytes;

std::string some_bytes(uint64_t size) {
  std::string bytes(size, '\0');
  for (uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 2654435761u) >> 13);
  return bytes;
}

std::span<const std::byte> part(const std::string& bytes, uint64_t begin, uint64_t end) {
  return std::as_bytes(std::span(bytes)).subspan(begin, end - begin);
}

// The blocks of `bytes` added in pieces of `piece`, and what had to be read for them alone.
std::string blocks_in_pieces(const std::string& bytes, uint64_t piece, uint64_t* read_again) {
  ContentDigest digest(bytes.size());
  *read_again = 0;
  for (uint64_t i = 0; i < bytes.size(); i += piece)
    digest.add(i, part(bytes, i, std::min<uint64_t>(bytes.size(), i + piece)));
  digest.complete([&](uint64_t offset, std::span<std::byte> out) {
    *read_again += out.size();
    std::memcpy(out.data(), bytes.data() + offset, out.size());
  });
  return std::string(digest.blocks());
}

TEST(ContentDigest, IsTheSameInPiecesOfAnySize) {
  const std::string bytes = some_bytes(5 * kBlock + 123);
  uint64_t read_again = 0;
  const std::string whole = blocks_in_pieces(bytes, bytes.size(), &read_again);
  EXPECT_EQ(whole.size(), 6 * sizeof(uint64_t));
  EXPECT_EQ(read_again, 0u);
  EXPECT_EQ(blocks_in_pieces(bytes, 2 * kBlock, &read_again), whole);
  EXPECT_EQ(read_again, 0u);
  EXPECT_EQ(blocks_in_pieces(bytes, 2 * kBlock + 1, &read_again), whole);
  EXPECT_EQ(read_again, 2 * kBlock);  // those that two pieces share
  EXPECT_EQ(blocks_in_pieces(bytes, 1000, &read_again), whole);
}

TEST(ContentDigest, BlocksMayHaveAnotherSize) {
  const std::string bytes = some_bytes(2500);
  ContentDigest digest(bytes.size(), 1000);
  digest.add(0, part(bytes, 0, 1500));
  digest.add(1500, part(bytes, 1500, 2500));
  std::vector<std::pair<uint64_t, size_t>> read;
  digest.complete([&](uint64_t offset, std::span<std::byte> out) {
    read.emplace_back(offset, out.size());
    std::memcpy(out.data(), bytes.data() + offset, out.size());
  });
  EXPECT_EQ(read, (std::vector<std::pair<uint64_t, size_t>>{{1000, 1000}}));
  const uint64_t expected[] = {XXH3_64bits(bytes.data(), 1000),
                               XXH3_64bits(bytes.data() + 1000, 1000),
                               XXH3_64bits(bytes.data() + 2000, 500)};
  EXPECT_EQ(digest.blocks(),
            std::string_view(reinterpret_cast<const char*>(expected), sizeof(expected)));
}

// What packing reads at once is counted as a whole.
TEST(ContentDigest, BlocksOfATensorAreWholeRows) {
  const auto block = [](std::vector<int64_t> shape) {
    RawTensor tensor;
    tensor.dtype = DType::kU8;
    tensor.shape = std::move(shape);
    tensor.size = static_cast<uint64_t>(tensor.num_elements());
    return digest_block_bytes(tensor);
  };
  EXPECT_EQ(block({64, 1440}), 16u * 1440);
  EXPECT_EQ(block({4, 64, 1440}), 16u * 1440);
  EXPECT_EQ(block({64, 8192}), 16u * 8192);
  EXPECT_EQ(block({64, 8193}), 8u * 8193);
  EXPECT_EQ(block({64, 40000}), 2u * 40000);
  EXPECT_EQ(block({64, 100000}), 100000u);
  EXPECT_EQ(block({64, 200000}), kBlock);  // rows are too long,
  EXPECT_EQ(block({100000, 2}), kBlock);   // too short,
  EXPECT_EQ(block({100000}), kBlock);      // or there are none
  EXPECT_EQ(block({0, 5}), kBlock);
  EXPECT_EQ(block({}), kBlock);
}

// Whatever instructions count a block.
TEST(ContentDigest, BlocksAreHashesOfXxh3) {
  for (const uint64_t size : {uint64_t{1}, uint64_t{300}, kBlock - 1, kBlock}) {
    const std::string bytes = some_bytes(size);
    uint64_t ignored = 0, expected = XXH3_64bits(bytes.data(), bytes.size());
    EXPECT_EQ(blocks_in_pieces(bytes, size, &ignored),
              std::string(reinterpret_cast<const char*>(&expected), sizeof(expected)))
        << size;
#ifdef __x86_64__
    if (content_hash_avx2() && __builtin_cpu_supports("avx2")) {
      EXPECT_EQ(content_hash_avx2()(bytes.data(), bytes.size()), expected) << size;
    }
#endif
  }
}

TEST(ContentDigest, EveryByteCounts) {
  std::string bytes = some_bytes(2 * kBlock + 5);
  uint64_t ignored = 0;
  const std::string before = blocks_in_pieces(bytes, bytes.size(), &ignored);
  for (const uint64_t i : {uint64_t{0}, kBlock - 1, kBlock, 2 * kBlock + 4}) {
    bytes[i] = static_cast<char>(bytes[i] ^ 1);
    EXPECT_NE(blocks_in_pieces(bytes, bytes.size(), &ignored), before) << i;
    bytes[i] = static_cast<char>(bytes[i] ^ 1);
  }
}

TEST(ContentDigest, OfATextIsXxh3) {
  // The value that the specification of XXH3 gives for 128 bits of no input.
  EXPECT_EQ(hex_digest(""), "99aa06d3014798d86001c324468d497f");
}

constexpr const char* kConfig = R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,
    "num_hidden_layers":2,"num_attention_heads":4,"vocab_size":320,
    "max_position_embeddings":512})";

std::string file_of(const std::string& tensors, const std::string& data) {
  return testing::safetensors_bytes(tensors, 0) + data;
}

// The digest of a model of two tensors of three bytes, in one file or two, of which `read` are
// read.
std::string digest_of(const std::string& a, const std::string& b, bool in_shards,
                      const std::vector<std::string>& read = {"a", "b"}) {
  TempDir dir;
  dir.write("config.json", kConfig);
  const auto entry = [](const char* name, int begin) {
    return "\"" + std::string(name) + R"(":{"dtype":"U8","shape":[3],"data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(begin + 3) + "]}";
  };
  if (in_shards) {
    dir.write("x.safetensors", file_of("{" + entry("a", 0) + "}", a));
    dir.write("y.safetensors", file_of("{" + entry("b", 0) + "}", b));
    dir.write("model.safetensors.index.json",
              R"({"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})");
  } else {
    dir.write("model.safetensors", file_of("{" + entry("b", 0) + "," + entry("a", 3) + "}", b + a));
  }
  Checkpoint checkpoint = Checkpoint::open(dir.path());
  checkpoint.record_contents();
  for (const std::string& name : read) checkpoint.find(name)->read_all();
  return checkpoint.contents_digest();
}

TEST(ContentDigest, OfACheckpointIsThatOfItsTensors) {
  const std::string digest = digest_of("abc", "def", false);
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(digest_of("abc", "def", false), digest);  // another folder
  EXPECT_EQ(digest_of("abc", "def", true), digest);   // other files
  EXPECT_EQ(digest_of("abc", "def", true, {"b", "a"}), digest);
  EXPECT_NE(digest_of("abc", "deg", false), digest);
  EXPECT_NE(digest_of("def", "abc", false), digest);
  // A tensor that nobody reads belongs to no model.
  EXPECT_EQ(digest_of("abc", "def", false, {"a"}), digest_of("abc", "xyz", false, {"a"}));
  EXPECT_NE(digest_of("abc", "def", false, {"a"}), digest);
}

}  // namespace
}  // namespace quire::formats
