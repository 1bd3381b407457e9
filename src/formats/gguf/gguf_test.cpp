#include "formats/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "formats/gguf/test_gguf.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::gguf_number;
using testing::gguf_string;
using testing::GgufBytes;
using ::testing::HasSubstr;
using testing::load_error;
using ::testing::Not;
using testing::TempDir;

constexpr uint32_t kF32 = 0, kQ80 = 8, kQ4K = 12;

Result<GgufHeader, GgufProblem> parse(const std::string& bytes) {
  return parse_gguf_header(bytes, bytes.size());
}

std::string problem_of(const std::string& bytes) {
  const auto header = parse(bytes);
  if (!header) return header.error().text;
  ADD_FAILURE() << "no problem";
  return "";
}

template <class T>
const T& value_of(const std::vector<GgufEntry>& metadata, const std::string& key) {
  for (const GgufEntry& entry : metadata)
    if (entry.key == key) return std::get<T>(entry.value.value);
  throw std::out_of_range(key);
}

TEST(Gguf, ReadsValuesOfEveryType) {
  GgufBytes file;
  file.value("u8", 0, "\xff").value("i8", 1, "\xff").value("u16", 2, "\xff\xff");
  file.value("i16", 3, "\xfe\xff").u32("u32", UINT32_MAX).i32("i32", -3).f32("f32", 0.5f);
  file.flag("yes", true).flag("no", false).text("text", "x\xc3\xa4").text("empty", "");
  file.value("u64", 10, gguf_number(uint64_t{1} << 62, 8));
  file.value("i64", 11, gguf_number(UINT64_MAX - 4, 8));
  file.value("f64", 12, gguf_number(std::bit_cast<uint64_t>(0.1), 8));
  file.texts("texts", {"a", "", "bc"}).i32s("i32s", {-1, 2}).f32s("f32s", {0.25f, -2.0f});
  file.value("none", 9, gguf_number(6, 4) + gguf_number(0, 8));
  file.value("bools", 9, gguf_number(7, 4) + gguf_number(2, 8) + std::string("\1\0", 2));
  for (const uint32_t version : {2u, 3u}) {
    file.version = version;
    const auto header = parse(file.bytes());
    ASSERT_TRUE(header.ok()) << header.error().text;
    EXPECT_EQ(header->version, version);
    const auto integer = [&](const char* key) { return value_of<int64_t>(header->metadata, key); };
    EXPECT_EQ(integer("u8"), 255);
    EXPECT_EQ(integer("i8"), -1);
    EXPECT_EQ(integer("u16"), 65535);
    EXPECT_EQ(integer("i16"), -2);
    EXPECT_EQ(integer("u32"), 4294967295);
    EXPECT_EQ(integer("i32"), -3);
    EXPECT_EQ(integer("yes"), 1);
    EXPECT_EQ(integer("no"), 0);
    EXPECT_EQ(integer("u64"), int64_t{1} << 62);
    EXPECT_EQ(integer("i64"), -5);
    EXPECT_EQ(value_of<double>(header->metadata, "f32"), 0.5);
    EXPECT_EQ(value_of<double>(header->metadata, "f64"), 0.1);
    EXPECT_EQ(value_of<std::string>(header->metadata, "text"), "x\xc3\xa4");
    EXPECT_EQ(value_of<std::string>(header->metadata, "empty"), "");
    EXPECT_THAT(value_of<std::vector<std::string>>(header->metadata, "texts"),
                ElementsAre("a", "", "bc"));
    EXPECT_THAT(value_of<std::vector<int64_t>>(header->metadata, "i32s"), ElementsAre(-1, 2));
    EXPECT_THAT(value_of<std::vector<double>>(header->metadata, "f32s"), ElementsAre(0.25, -2));
    EXPECT_TRUE(value_of<std::vector<double>>(header->metadata, "none").empty());
    EXPECT_THAT(value_of<std::vector<int64_t>>(header->metadata, "bools"), ElementsAre(1, 0));
  }
}

TEST(Gguf, ReadsTensorsInTheOrderOfTheirOffsets) {
  const TempDir dir;
  GgufBytes file;
  file.alignment = 64;
  file.u32("general.alignment", 64);
  file.info("late", {3, 2}, kF32, 128).info("blocks", {64, 1, 1}, kQ80, 0);
  file.data(std::string(68, 'q') + std::string(60, '\0') + std::string(24, 'f'));
  const std::string path = dir.write("m.gguf", file.bytes());
  EXPECT_TRUE(is_gguf_file(path));
  EXPECT_FALSE(is_gguf_file(dir.path()));
  EXPECT_FALSE(is_gguf_file(dir.write("m.bin", "GGU")));
  GgufModel opened = GgufModel::open(path);
  const GgufModel model = std::move(opened);
  ASSERT_EQ(model.tensors().size(), 2u);
  const RawTensor &blocks = model.tensors()[0], &late = model.tensors()[1];
  EXPECT_EQ(blocks.name, "blocks");
  EXPECT_EQ(blocks.dtype, DType::kQ8_0);
  EXPECT_THAT(blocks.shape, ElementsAre(1, 1, 64));
  EXPECT_EQ(testing::bytes_of(blocks), std::string(68, 'q'));
  EXPECT_THAT(late.shape, ElementsAre(2, 3));
  EXPECT_EQ(testing::bytes_of(late), std::string(24, 'f'));
  EXPECT_EQ(late.file(), path);
}

TEST(Gguf, AcceptsWhatTheFormatAllows) {
  GgufBytes unpadded;
  unpadded.pad_end = false;
  unpadded.tensor("a", {1}, kF32, "1234").tensor("b", {1}, kF32, "5678");
  const std::string cases[] = {GgufBytes().bytes(), unpadded.bytes(),
                               GgufBytes().bytes() + std::string(7, '\0'),  // padded, without data
                               GgufBytes().u32("general.alignment", 1).bytes()};
  for (const std::string& bytes : cases) {
    const auto header = parse(bytes);
    EXPECT_TRUE(header.ok()) << header.error().text;
  }
}

// Each file is refused, with a message that says what is wrong and where.
TEST(Gguf, RefusesBadHeaders) {
  struct Bad {
    std::string bytes;
    std::vector<std::string> message;
  };
  const auto with_version = [](uint32_t version) {
    GgufBytes file;
    file.version = version;
    return file.bytes();
  };
  const auto counts = [](uint64_t tensors, uint64_t keys) {
    return "GGUF" + gguf_number(3, 4) + gguf_number(tensors, 8) + gguf_number(keys, 8);
  };
  const auto array = [](uint32_t type, uint64_t count, const std::string& data) {
    return GgufBytes().value("k", 9, gguf_number(type, 4) + gguf_number(count, 8) + data).bytes();
  };
  const auto tensor = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset,
                         size_t size) {
    return GgufBytes().info("w", dims, type, offset).data(std::string(size, 'x')).bytes();
  };
  const auto two = [](uint64_t first, uint64_t second) {
    GgufBytes file;
    file.info("a", {8}, kF32, first).info("b", {8}, kF32, second);
    return file.data(std::string(128, 'x')).bytes();
  };
  constexpr uint64_t kHuge = uint64_t{1} << 40;
  const Bad cases[] = {
      {"", {"ends within it"}},
      {"GGU", {"ends within it"}},
      {"GGML" + gguf_number(3, 4), {"does not begin with GGUF"}},
      {with_version(1), {"version 1", "supported are 2 and 3"}},
      {with_version(4), {"version 4"}},
      {with_version(3u << 24), {"big-endian"}},
      // counts
      {counts(0, UINT64_MAX), {"cannot hold 18446744073709551615 keys"}},
      {counts(UINT64_MAX, 0), {"cannot hold 18446744073709551615 tensors"}},
      {counts(1, 0), {"cannot hold 1 tensors"}},
      {counts(0, 1) + std::string(12, '\0'), {"cannot hold 1 keys"}},
      // keys and values
      {GgufBytes().u32("k", 1).u32("k", 1).bytes(), {"key \"k\"", "appears twice"}},
      {GgufBytes().value("k", 13, "12345678").bytes(), {"key \"k\"", "type 13 is unknown"}},
      {GgufBytes().value("k", UINT32_MAX, "12345678").bytes(), {"type 4294967295 is unknown"}},
      {GgufBytes().value("k", 7, "\2").bytes(), {"key \"k\"", "neither 0 nor 1"}},
      {GgufBytes().value("k", 10, gguf_number(UINT64_MAX, 8)).bytes(), {"over the limit"}},
      {GgufBytes().value("k", 8, gguf_number(UINT64_MAX, 8)).bytes(), {"ends within it"}},
      {GgufBytes().value("k", 12, "1234").bytes(), {"key \"k\"", "ends within it"}},
      {GgufBytes().u32(std::string(65'536, 'k'), 1).bytes(), {"key 0", "over the limit of 65535"}},
      {GgufBytes().u32("a", 1).u32(std::string(65'536, 'k'), 1).bytes(), {"key 1, behind \"a\": "}},
      {array(9, 1, gguf_number(4, 4) + gguf_number(0, 8)), {"array of arrays"}},
      {array(4, kHuge, "12345678"), {"key \"k\"", "1099511627776 elements ends behind the file"}},
      {array(8, 2, gguf_string("a")), {"key \"k\"", "ends behind"}},
      {array(8, 1, gguf_number(1, 8)), {"key \"k\"", "ends within it"}},
      {array(8, UINT64_MAX, ""), {"ends behind"}},
      {array(0, (uint64_t{1} << 23) + 1, std::string((1 << 23) + 1, 'x')),
       {"key \"k\"", "more than 8388608 elements"}},
      {GgufBytes().u32("general.alignment", 0).bytes(), {"general.alignment", "power of two"}},
      {GgufBytes().u32("general.alignment", 48).bytes(), {"power of two"}},
      {GgufBytes().u32("general.alignment", 1u << 31).bytes(), {"power of two"}},
      {GgufBytes().text("general.alignment", "32").bytes(), {"general.alignment", "u32"}},
      // tensors
      {GgufBytes().info("w", {1}, kF32, 0).info("w", {1}, kF32, 32).data("1234").bytes(),
       {"tensor \"w\"", "appears twice"}},
      {tensor({}, kF32, 0, 4), {"tensor \"w\"", "0 dims"}},
      {tensor({1, 1, 1, 1, 1}, kF32, 0, 4), {"5 dims"}},
      {tensor({0}, kF32, 0, 4), {"a dim is 0"}},
      {tensor({uint64_t{1} << 31}, kF32, 0, 4), {"a dim is 2147483648"}},
      {tensor({UINT64_MAX}, kF32, 0, 4), {"a dim is 18446744073709551615"}},
      {tensor({2147483647, 2147483647, 2147483647}, kF32, 0, 4), {"dims overflows"}},
      {tensor({1}, 4, 0, 4), {"tensor \"w\"", "type 4 is unknown"}},
      {tensor({256}, 16, 0, 66), {"type IQ2_XXS is not supported"}},
      {tensor({48}, kQ80, 0, 51), {"tensor \"w\"", "rows of 48", "blocks of 32", "Q8_0"}},
      {tensor({64, 256}, kQ4K, 0, 9216), {"rows of 64", "blocks of 256", "Q4_K"}},
      {tensor({8}, kF32, 0, 31), {}},  // padded to 32: the next shows that one byte counts
      {tensor({9}, kF32, 0, 32), {"tensor \"w\"", "36 bytes from byte 0", "end behind the 32"}},
      {tensor({1}, kF32, 4, 32), {"byte 4", "alignment of 32 does not divide"}},
      {tensor({1}, kF32, UINT64_MAX - 31, 32), {"end behind"}},
      {tensor({1}, kF32, 32, 64), {"behind a hole from byte 0"}},
      {two(0, 0), {"tensor \"b\"", "overlaps that of tensor \"a\""}},
      {two(0, 64), {"tensor \"b\"", "behind a hole from byte 32"}},
      {two(0, 32), {"64 bytes at the end", "belong to no tensor"}},
  };
  for (const Bad& bad : cases) {
    if (bad.message.empty()) continue;
    const std::string problem = problem_of(bad.bytes);
    for (const std::string& part : bad.message) EXPECT_THAT(problem, HasSubstr(part));
  }
}

// Whoever has such a file would download it again for nothing.
TEST(Gguf, WhatIsNotSupportedIsNotCalledDamaged) {
  const TempDir dir;
  const auto message = [&](const std::string& bytes) {
    const std::string path = dir.write("m.gguf", bytes);
    return load_error([&] { GgufModel::open(path); });
  };
  const auto with_version = [](uint32_t version) {
    GgufBytes file;
    file.version = version;
    return file.bytes();
  };
  const auto tensor = [](uint32_t type) {
    return GgufBytes().info("w", {256}, type, 0).data(std::string(98, 'x')).bytes();
  };
  const std::string nested = gguf_number(9, 4) + gguf_number(1, 8) + gguf_number(4, 4);
  const std::pair<const char*, std::string> kUnsupported[] = {
      {"its type IQ3_XXS is not supported", tensor(18)},
      {"its type Q4_0_4_4 is not supported", tensor(31)},
      {"big-endian", with_version(3u << 24)},
      {"it has version 1", with_version(1)},
      {"an array of arrays is not supported",
       GgufBytes().value("k", 9, nested + gguf_number(0, 8)).bytes()},
      {"over the limit of 2^63 - 1", GgufBytes().value("k", 10, gguf_number(~0ull, 8)).bytes()}};
  for (const auto& [part, bytes] : kUnsupported)
    EXPECT_THAT(message(bytes), AllOf(HasSubstr(part), Not(HasSubstr("download it again"))));
  const std::pair<const char*, std::string> kDamaged[] = {
      {"its type 41 is unknown", tensor(41)},
      {"cannot hold 1 tensors", tensor(18).substr(0, 40)},
      {"type 13 is unknown", GgufBytes().value("k", 13, "12345678").bytes()}};
  for (const auto& [part, bytes] : kDamaged)
    EXPECT_THAT(message(bytes), AllOf(HasSubstr(part), HasSubstr("download it again")));
}

// A file that is cut anywhere is refused, and so is one with a byte more than its padding.
TEST(Gguf, RefusesEveryCutFile) {
  GgufBytes file;
  file.text("general.architecture", "llama").texts("t", {"a", "bc"}).f32s("s", {1, 2});
  file.tensor("a", {4}, kF32, std::string(16, 'a')).tensor("b", {32}, kQ80, std::string(34, 'b'));
  const std::string whole = file.bytes();
  ASSERT_TRUE(parse(whole).ok());
  const size_t padding = 64 - 34;
  for (size_t size = 0; size + padding < whole.size(); ++size)
    EXPECT_FALSE(parse(whole.substr(0, size)).ok()) << size;
  EXPECT_FALSE(parse(whole + "x").ok());
}

// Only a header that is longer than what was read of the file may be in order.
TEST(Gguf, SaysWhetherMoreOfTheFileIsNeeded) {
  const std::string whole =
      GgufBytes().texts("t", {"a", "bc"}).tensor("a", {1}, kF32, "1234").bytes();
  const std::string header = GgufBytes().texts("t", {"a", "bc"}).info("a", {1}, kF32, 0).header();
  for (size_t size = 0; size < header.size(); ++size) {
    const auto parsed = parse_gguf_header(whole.substr(0, size), whole.size());
    ASSERT_FALSE(parsed.ok()) << size;
    EXPECT_TRUE(parsed.error().is_short) << size << ": " << parsed.error().text;
    EXPECT_FALSE(parse(whole.substr(0, size)).error().is_short) << size;
  }
  EXPECT_TRUE(parse_gguf_header(header, whole.size()).ok());
}

TEST(Gguf, ReadsHeadersThatAreLong) {
  const TempDir dir;
  std::vector<std::string> tokens(200'000, "a token of the vocabulary");
  GgufBytes file;
  file.texts("tokens", tokens).tensor("w", {1}, kF32, "abcd");
  const GgufModel model = GgufModel::open(dir.write("m.gguf", file.bytes()));
  EXPECT_EQ(value_of<std::vector<std::string>>(model.metadata(), "tokens"), tokens);
  EXPECT_EQ(testing::bytes_of(model.tensors().at(0)), "abcd");
}

// A model of three parts in a folder of its own.
class GgufParts : public ::testing::Test {
 protected:
  GgufParts() {
    for (int i = 0; i < 3; ++i) parts_[i] = part(i, 3, "t" + std::to_string(i));
  }
  static GgufBytes part(int index, int count, const std::string& tensor) {
    GgufBytes file;
    file.u16("split.no", static_cast<uint16_t>(index));
    file.u16("split.count", static_cast<uint16_t>(count));
    file.i32("split.tensors.count", 3);
    file.tensor(tensor, {1}, kF32, "abc" + std::to_string(index));
    return file;
  }
  std::string write() {
    for (const auto& [index, file] : parts_) {
      const std::string name = "m-0000" + std::to_string(index + 1) + "-of-00003.gguf";
      paths_[index] = dir_.write(name, file.bytes());
    }
    return paths_[0];
  }
  std::string error() {
    const std::string path = write();
    return load_error([&] { GgufModel::open(path); });
  }

  TempDir dir_;
  std::map<int, GgufBytes> parts_;
  std::map<int, std::string> paths_;
};

TEST_F(GgufParts, AreOneModel) {
  const GgufModel model = GgufModel::open(write());
  ASSERT_EQ(model.tensors().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(model.tensors()[i].name, "t" + std::to_string(i));
    EXPECT_EQ(model.tensors()[i].file(), paths_[i]);
    EXPECT_EQ(testing::bytes_of(model.tensors()[i]), "abc" + std::to_string(i));
  }
  EXPECT_EQ(model.files().size(), 3u);
}

// llama-gguf-split --merge leaves the first part's keys, and a count of 0.
TEST_F(GgufParts, MayHaveBeenMerged) {
  GgufBytes merged = part(0, 0, "t0");
  for (int i = 1; i < 3; ++i) merged.tensor("t" + std::to_string(i), {1}, kF32, "abcd");
  const GgufModel model = GgufModel::open(dir_.write("merged.gguf", merged.bytes()));
  EXPECT_EQ(model.tensors().size(), 3u);
  EXPECT_EQ(model.files().size(), 1u);
}

TEST_F(GgufParts, MustBeAllThere) {
  parts_.erase(2);
  EXPECT_THAT(error(), AllOf(HasSubstr("m-00003-of-00003.gguf"), HasSubstr("is missing")));
}

TEST_F(GgufParts, BeginWithTheFirst) {
  write();
  EXPECT_THAT(load_error([&] { GgufModel::open(paths_[1]); }),
              AllOf(HasSubstr("part 2 of 3"), HasSubstr("-00001-of-00003.gguf")));
  const std::string renamed = dir_.write("renamed.gguf", parts_[0].bytes());
  EXPECT_THAT(load_error([&] { GgufModel::open(renamed); }), HasSubstr("first of 3 files"));
}

TEST_F(GgufParts, MustBeOfOneModel) {
  parts_[1] = part(2, 3, "t1");
  EXPECT_THAT(error(), AllOf(HasSubstr("m-00002-of-00003.gguf"), HasSubstr("\"split.no\" is 2")));
  parts_[1] = part(1, 4, "t1");
  EXPECT_THAT(error(), HasSubstr("\"split.count\" is 4, not 3"));
  parts_[1] = GgufBytes();
  EXPECT_THAT(error(), HasSubstr("\"split.no\" is missing"));
  parts_[1] = part(1, 3, "t0");
  EXPECT_THAT(error(), AllOf(HasSubstr("tensor \"t0\" is in two files"), HasSubstr(paths_[1])));
  parts_[1] = part(1, 3, "t1").tensor("t4", {1}, kF32, "abcd");
  EXPECT_THAT(error(), HasSubstr("\"split.tensors.count\" is 3, but all parts have 4"));
}

}  // namespace
}  // namespace quire::formats
