#include "ops/cpu/cpu_isa.h"

#include "base/error.h"
#include "ops/cpu/half.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// What every machine has; on 64-bit ARM the portable code would be compiled for NEON, too.
#ifdef __aarch64__
constexpr const char* kBaseline = "neon";
#else
constexpr const char* kBaseline = "portable";
#endif

TEST(CpuIsa, ForcesEachAndGoesBackToTheBest) {
  const auto isas = available_cpu_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.back(), kBaseline);
  for (const auto& isa : isas) {
    const ForcedIsa forced(isa);
    EXPECT_EQ(cpu_isa_name(), isa);
    // Some run Highway's code for AVX-512 or AVX2.
    const bool avx512 = isa == "amx" || isa == "avx512_bf16" || isa == "avx512_vnni";
    const bool dotprod = isa == "neon_bf16" || isa == "neon_dotprod";
    const std::string base = isa == "avx2_vnni" ? "avx2" : dotprod ? "neon" : isa;
    EXPECT_EQ(cpu_kernel_name(), "cpu_" + (avx512 ? "avx512" : base));
    EXPECT_EQ(use_amx(), isa == "amx");
    EXPECT_EQ(use_avx512_bf16(), isa == "avx512_bf16");
    EXPECT_EQ(use_avx512_vnni(), avx512);
    EXPECT_EQ(use_avx2_vnni(), isa == "avx2_vnni");
    EXPECT_EQ(use_neon_dotprod(), dotprod);
    EXPECT_EQ(use_neon_bf16(), isa == "neon_bf16");
  }
  EXPECT_EQ(cpu_isa_name(), isas.front());
}

TEST(CpuIsa, AnUnknownNameIsRefusedAndChangesNothing) {
  const ForcedIsa forced(kBaseline);
  EXPECT_THROW(force_cpu_isa("sse9"), LoadError);
  EXPECT_EQ(cpu_isa_name(), kBaseline);
  EXPECT_EQ(available_cpu_isas().back(), kBaseline);
}

TEST(CpuIsa, PortableBitsExcludeTheKernelsWithAnotherOrder) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    set_portable_bits(true);
    EXPECT_FALSE(use_avx512_bf16());
    EXPECT_FALSE(use_neon_bf16());
    EXPECT_EQ(use_amx(), isa == "amx");
    EXPECT_EQ(cpu_isa_name(), isa);
    set_portable_bits(false);
  }
}

TEST(Half, WidensEveryHalfAsMlxDoes) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const mx::array raw(bits.data(), {65536}, mx::uint16);
  const auto f16 = to_floats(mx::view(raw, mx::float16));
  const auto bf16 = to_floats(mx::view(raw, mx::bfloat16));
  for (size_t i = 0; i < bits.size(); ++i) {
    const float a = to_float(F16{bits[i]}), b = to_float(Bf16{bits[i]});
    EXPECT_TRUE(a == f16[i] || (std::isnan(a) && std::isnan(f16[i]))) << i;
    EXPECT_TRUE(b == bf16[i] || (std::isnan(b) && std::isnan(bf16[i]))) << i;
    EXPECT_TRUE(std::isnan(a) || from_float<F16>(a).bits == bits[i]) << i;
    EXPECT_TRUE(std::isnan(b) || from_float<Bf16>(b).bits == bits[i]) << i;
  }
}

// Between neighbours a < b: below the middle is a, above is b, the middle goes to the even one.
template <class T>
void expect_rounds_to_nearest_even(uint16_t infinity) {
  for (uint16_t bits = 0; bits < infinity - 1; ++bits) {
    const float a = to_float(T{bits}), b = to_float(T{static_cast<uint16_t>(bits + 1)});
    const float middle = static_cast<float>((static_cast<double>(a) + b) / 2);
    const uint16_t even = static_cast<uint16_t>(bits + (bits & 1));
    ASSERT_EQ(from_float<T>(middle).bits, even) << bits;
    ASSERT_EQ(from_float<T>(-middle).bits, even | 0x8000) << bits;
    ASSERT_EQ(from_float<T>(std::nextafter(middle, a)).bits, bits);
    ASSERT_EQ(from_float<T>(std::nextafter(middle, b)).bits, bits + 1);
  }
}

TEST(Half, RoundsToNearestEven) {
  expect_rounds_to_nearest_even<F16>(0x7C00);
  expect_rounds_to_nearest_even<Bf16>(0x7F80);
  EXPECT_EQ(from_float<F16>(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(from_float<F16>(65520.0f).bits, 0x7C00);
  EXPECT_EQ(from_float<Bf16>(3.4e38f).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(to_float(from_float<F16>(NAN))));
  EXPECT_TRUE(std::isnan(to_float(from_float<Bf16>(bits_to_float(0x7F800001u)))));
}

}  // namespace
}  // namespace quire::ops
