#include "formats/finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "formats/safetensors.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::load_error;
using testing::TempDir;

struct Floats {
  DType dtype = DType::kF32;
  std::vector<uint32_t> numbers;  // the largest and the least of either sign among them
  std::vector<uint32_t> others;   // infinity and NaN, with one bit and with all
};

const std::vector<Floats> kFloats = {
    {DType::kF32,
     {0, 1, 0x3f800000, 0x7f7fffff, 0xff7fffff, 0x80000001},
     {0x7f800000, 0xff800000, 0x7f800001, 0xffffffff}},
    {DType::kF16, {0, 1, 0x3c00, 0x7bff, 0xfbff, 0x8001}, {0x7c00, 0xfc00, 0x7c01, 0xffff}},
    {DType::kBF16, {0, 1, 0x3f80, 0x7f7f, 0xff7f, 0x8001}, {0x7f80, 0xff80, 0x7f81, 0xffff}}};

std::string refusal(const RawTensor& tensor, const std::vector<std::byte>& bytes) {
  return load_error([&] { expect_finite(tensor, bytes); });
}

// Of 1 to 20 elements, so in whole words of eight bytes and behind them.
TEST(Finite, EveryPlaceIsLookedAt) {
  TempDir dir;
  dir.write("a.bin", "");
  for (const Floats& kind : kFloats) {
    RawTensor tensor;
    tensor.name = "w";
    tensor.stored_name = "blk.w";
    tensor.dtype = kind.dtype;
    tensor.source = DataFile::open(dir.path() + "/a.bin");
    const auto size = static_cast<size_t>(dtype_size(kind.dtype));
    for (size_t n = 0; n <= 20; ++n) {
      std::vector<std::byte> bytes(n * size);
      for (size_t i = 0; i < n; ++i)
        std::memcpy(&bytes[i * size], &kind.numbers[i % kind.numbers.size()], size);
      EXPECT_NO_THROW(expect_finite(tensor, bytes)) << n;
      for (size_t i = 0; i < n; ++i)
        for (const uint32_t other : kind.others) {
          auto damaged = bytes;
          std::memcpy(&damaged[i * size], &other, size);
          EXPECT_THAT(refusal(tensor, damaged),
                      AllOf(HasSubstr("a.bin: tensor blk.w (w)"), HasSubstr("NaN")))
              << dtype_name(kind.dtype) << " " << i << " of " << n << ": " << other;
        }
    }
  }
}

TEST(Finite, OtherDtypesAreNotLookedAt) {
  const std::vector<std::byte> bytes(16, std::byte{0xff});
  RawTensor tensor;
  for (const DType dtype : {DType::kU8, DType::kI32, DType::kF8E4M3, DType::kF64, DType::kQ4K}) {
    tensor.dtype = dtype;
    EXPECT_NO_THROW(expect_finite(tensor, bytes));
  }
}

// On all threads, in pieces: each is looked at.
TEST(Finite, ALargeReadNamesItsTensor) {
  constexpr size_t kElements = 200'000;
  TempDir dir;
  ThreadPool pool(2);
  for (const size_t at : {size_t{0}, size_t{99'999}, kElements - 1}) {
    std::string bytes = testing::safetensors_bytes(
        R"({"w":{"dtype":"BF16","shape":[200000],"data_offsets":[0,400000]}})", 0);
    bytes.append(2 * kElements, '\x38');
    const uint16_t nan = 0x7fc0;
    std::memcpy(&bytes[bytes.size() - 2 * (kElements - at)], &nan, sizeof nan);
    const auto file = SafetensorsFile::open(dir.write("m.safetensors", bytes));
    const RawTensor& tensor = file.tensors().front();
    std::vector<std::byte> out(tensor.size);
    EXPECT_THAT(load_error([&] { tensor.read_finite(0, out, pool); }),
                AllOf(HasSubstr("m.safetensors: tensor w "), HasSubstr("NaN")))
        << at;
    const size_t behind = 2 * (at + 1);
    EXPECT_NO_THROW(tensor.read_finite(behind, std::span(out).subspan(behind), pool)) << at;
    EXPECT_NO_THROW(tensor.read(0, out, pool)) << at;
  }
}

}  // namespace
}  // namespace quire::formats
