#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::load_error;
using testing::safetensors_bytes;
using testing::TempDir;

Result<SafetensorsHeader, std::string> parse(const std::string& header, size_t data_size) {
  const std::string bytes = safetensors_bytes(header, data_size);
  return parse_safetensors_header(bytes, bytes.size());
}

TEST(Safetensors, ReadsTensorsInOffsetOrder) {
  TempDir dir;
  const std::string path = dir.write(
      "m.safetensors",
      safetensors_bytes(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
                        R"("__metadata__":{"format":"pt","k":""},)"
                        R"("a":{"data_offsets":[0,4],"shape":[2,1],"dtype":"BF16"}}     )",
                        7));
  SafetensorsFile opened = SafetensorsFile::open(path);
  const SafetensorsFile file = std::move(opened);
  ASSERT_EQ(file.tensors().size(), 2u);
  const RawTensor& a = file.tensors()[0];
  const RawTensor& b = file.tensors()[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::kBF16);
  EXPECT_THAT(a.shape, ElementsAre(2, 1));
  EXPECT_EQ(a.file(), path);
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(testing::bytes_of(b), "\4\5\6");
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  struct Good {
    const char* why;
    std::string header;
    size_t data_size;
    size_t tensors;
  };
  const Good cases[] = {
      {"no tensors", "{}", 0, 0},
      {"scalar", R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4, 1},
      {"empty tensors share an offset",
       R"({"e":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},)"
       R"("f":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
       5, 4},
      {"4-bit", R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3, 1},
      {"same key in two objects",
       R"({"__metadata__":{"a":"x"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, 1},
  };
  for (const Good& good : cases) {
    const auto header = parse(good.header, good.data_size);
    ASSERT_TRUE(header.ok()) << good.why << ": " << header.error();
    EXPECT_EQ(header->entries.size(), good.tensors) << good.why;
  }
}

// Each file is refused, with a message that says what is wrong and where.
TEST(Safetensors, RefusesBadHeaders) {
  struct Bad {
    std::string header;
    size_t data_size;
    std::vector<std::string> message;
  };
  const auto one = [](const std::string& entry) { return R"({"w":{)" + entry + "}}"; };
  const auto shaped = [&](const std::string& shape, size_t end) {
    return one(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,)" +
               std::to_string(end) + "]");
  };
  const auto placed = [&](const std::string& offsets) {
    return one(R"("dtype":"F32","shape":[1],"data_offsets":)" + offsets);
  };
  const std::string deep = shaped(std::string(100'000, '['), 4);
  const Bad cases[] = {
      // the document
      {"", 0, {"does not start with '{'"}},
      {R"( {"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, {"start with '{'"}},
      {"[]", 0, {"start with '{'"}},
      {"{", 0, {"not valid JSON"}},
      {"{} x", 0, {"not valid JSON", "extra data"}},
      {"{}{}", 0, {"not valid JSON"}},
      {std::string("{}\0", 3), 0, {"not valid JSON"}},
      {"{\"w\xff\":1}", 0, {"not valid JSON"}},
      {"{\"w\xc0\xaf\":1}", 0, {"not valid JSON"}},
      {R"({"w":1})", 0, {R"(tensor "w")", "must be an object"}},
      {R"({"w":null})", 0, {R"(tensor "w")", "must be an object"}},
      {deep, 4, {R"(tensor "w")", "shape must be"}},
      // two meanings
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2,
       {R"(tensor "w" appears twice)"}},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("\u0077":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2,
       {R"(tensor "w" appears twice)"}},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, {"__metadata__", "appears twice"}},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, {"__metadata__", R"("k" appears twice)"}},
      {one(R"("dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1])"),
       1,
       {R"(tensor "w")", R"("shape" appears twice)"}},
      {one(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])"),
       1,
       {R"(tensor "w")", R"("dtype" appears twice)"}},
      // metadata
      {R"({"__metadata__":{"k":1}})", 0, {"__metadata__: must be an object of strings"}},
      {R"({"__metadata__":{"k":{}}})", 0, {"__metadata__: must be an object of strings"}},
      {R"({"__metadata__":"k"})", 0, {"__metadata__: must be an object of strings"}},
      // entries
      {one(R"("dtype":"F32","shape":[1])"), 4, {R"(tensor "w")", "needs dtype, shape and"}},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1])"),
       4,
       {R"(tensor "w")", R"(unknown key "strides")"}},
      {one(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"),
       4,
       {R"(tensor "w")", R"(unknown dtype "F31")"}},
      {one(R"("dtype":7,"shape":[1],"data_offsets":[0,4])"), 4, {R"(tensor "w")", "dtype must be"}},
      // shapes
      {shaped("[-1]", 4), 4, {R"(tensor "w")", "shape must be"}},
      {shaped("[1.0]", 4), 4, {R"(tensor "w")", "shape must be"}},
      {shaped("[true]", 4), 4, {R"(tensor "w")", "shape must be"}},
      {shaped("[[1]]", 4), 4, {R"(tensor "w")", "shape must be"}},
      {shaped("1", 4), 4, {R"(tensor "w")", "shape must be"}},
      {shaped("{}", 4), 4, {R"(tensor "w")", "shape must be"}},
      {shaped("[2147483648]", 4), 4, {R"(tensor "w")", "shape must be"}},
      {shaped("[18446744073709551616]", 4), 4, {R"(tensor "w")", "shape must be"}},
      {shaped("[2147483647,2147483647,2]", 4), 4, {R"(tensor "w")", "overflows"}},
      // 2^63 elements of 4 bytes: 0 bytes if the product wraps
      {shaped("[1073741824,1073741824,8]", 0), 0, {R"(tensor "w")", "overflows"}},
      {shaped("[0,2147483647,2147483647,2]", 0), 0, {R"(tensor "w")", "overflows"}},
      {shaped("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 4), 4, {R"(tensor "w")", "dimensions"}},
      {shaped("[2]", 4), 4, {R"(tensor "w")", "need 8 bytes but data_offsets give 4"}},
      {shaped("[1]", 8), 8, {R"(tensor "w")", "need 4 bytes but data_offsets give 8"}},
      {shaped("[0]", 4), 4, {R"(tensor "w")", "need 0 bytes but data_offsets give 4"}},
      {one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"),
       2,
       {R"(tensor "w")", "whole bytes"}},
      // offsets
      {placed("[0]"), 4, {R"(tensor "w")", "list of two"}},
      {placed("[0,4,4]"), 4, {R"(tensor "w")", "list of two"}},
      {placed("[-4,0]"), 4, {R"(tensor "w")", "list of two"}},
      {placed("[4,0]"), 4, {R"(tensor "w")", "end before they begin"}},
      {placed("[0,4]"), 3, {R"(tensor "w")", "ends at byte 4", "only 3 bytes"}},
      {placed("[18446744073709551612,18446744073709551615]"), 4, {R"(tensor "w")", "only 4 bytes"}},
      {placed("[4,8]"), 8, {R"(tensor "w")", "behind a hole from byte 0"}},
      {placed("[0,4]"), 5, {"1 bytes at the end", R"("w")"}},
      {"{}", 1, {"1 bytes at the end"}},
      {R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("v":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3,
       {R"(tensor "v")", R"(overlaps that of tensor "w")"}},
      {R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2,
       {"overlaps that of tensor"}},
      {R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("v":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
       4,
       {R"(tensor "v")", "hole from byte 2"}},
      {R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("z":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
       2,
       {R"(tensor "z")", "overlaps"}},
  };
  for (const Bad& bad : cases) {
    const auto header = parse(bad.header, bad.data_size);
    ASSERT_FALSE(header.ok()) << bad.header.substr(0, 200);
    for (const std::string& part : bad.message)
      EXPECT_THAT(header.error(), HasSubstr(part)) << bad.header.substr(0, 200);
  }
}

TEST(Safetensors, RefusesHeaderLengthsThatLie) {
  const auto error = [](const std::string& prefix, uint64_t file_size) {
    const auto header = parse_safetensors_header(prefix, file_size);
    return header.ok() ? "accepted" : header.error();
  };
  const std::string huge(8, '\xff');
  const std::string at_limit = {'\0', '\xe1', '\xf5', '\5', '\0', '\0', '\0', '\0'};  // 100,000,000
  const std::string over_limit = {'\1', '\xe1', '\xf5', '\5', '\0', '\0', '\0', '\0'};
  EXPECT_THAT(error("", 0), HasSubstr("shorter than 8 bytes"));
  EXPECT_THAT(error(std::string(7, '\0'), 7), HasSubstr("shorter than 8 bytes"));
  EXPECT_THAT(error(huge + "{}", 10), HasSubstr("over the limit"));
  EXPECT_THAT(error(over_limit + "{}", 200'000'000), HasSubstr("over the limit"));
  EXPECT_THAT(error(at_limit + "{}", 10), HasSubstr("ends behind the file"));
  EXPECT_THAT(error(at_limit + "{}", 200'000'000), HasSubstr("ends behind"));  // short prefix
  EXPECT_THAT(error(safetensors_bytes("{}", 0).substr(0, 9), 9), HasSubstr("ends behind the file"));
}

TEST(Safetensors, EveryTruncationIsRefused) {
  TempDir dir;
  const std::string whole =
      safetensors_bytes(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string path = dir.write("m.safetensors", whole.substr(0, size));
    const std::string message = load_error([&] { SafetensorsFile::open(path); });
    EXPECT_THAT(message, HasSubstr(path));
    EXPECT_THAT(message, HasSubstr("download it again"));
  }
  EXPECT_NO_THROW(SafetensorsFile::open(dir.write("m.safetensors", whole)));
}

TEST(Safetensors, NamesInMessagesAreEscapedAndCut) {
  const std::string name = "\\u001b[31m" + std::string(5000, 'x');
  const auto header = parse(R"({")" + name + R"(":1})", 0);
  ASSERT_FALSE(header.ok());
  EXPECT_THAT(header.error(), HasSubstr("\\u001b[31mxxx"));
  EXPECT_LT(header.error().size(), 300u);
}

TEST(Safetensors, APathThatIsNoFileIsRefused) {
  TempDir dir;
  EXPECT_THAT(load_error([&] { SafetensorsFile::open(dir.path() + "/none"); }),
              HasSubstr("/none: cannot open the file"));
  EXPECT_THAT(load_error([&] { SafetensorsFile::open(dir.path()); }),
              HasSubstr(dir.path() + ": not a regular file"));
  const std::string pipe = dir.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(load_error([&] { SafetensorsFile::open(pipe); }),  // and does not wait for a writer
              HasSubstr(pipe + ": not a regular file"));
}

TEST(DTypes, NamesAndSizes) {
  for (const char* name : {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F4",
                           "F8_E4M3", "F8_E5M2", "F8_E8M0", "F16", "BF16", "F32", "F64"}) {
    const auto dtype = dtype_from_name(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(dtype_name(*dtype), name);
  }
  EXPECT_FALSE(dtype_from_name("f32").has_value());
  EXPECT_EQ(dtype_size(DType::kBF16), 2);
  EXPECT_EQ(dtype_size(DType::kI64), 8);
  EXPECT_EQ(dtype_bits(DType::kF4), 4);
  EXPECT_DEATH(dtype_size(DType::kF4), "no whole number of bytes");
}

}  // namespace
}  // namespace quire::formats
