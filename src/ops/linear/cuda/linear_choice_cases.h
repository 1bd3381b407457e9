#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "ops/linear/cuda/linear_cuda_choice.h"
#include "ops/linear/pack/cuda_blocks.h"

// Which kernel takes which product on Hopper and on other GPUs: tests of the choice read it on the
// host, and tests/cuda runs the kernels.
namespace quire::ops::testing {

struct LinearChoiceCase {
  std::string name;
  CudaWeightLayout layout;
  int64_t rows;
  LinearCudaKernel hopper, plain;
};

struct NamedLayout {
  std::string name;
  CudaWeightLayout layout;
};

// A size that all formats can have.
inline CudaWeightLayout sized(CudaWeightLayout layout, int64_t n, int64_t k) {
  layout.n = n;
  layout.k = k;
  return layout;
}

inline CudaWeightLayout in_blocks(QuantisedLayout layout, FloatType type) {
  layout.n = layout.k = 1024;
  return cuda_block_layout(layout, type);
}

// Every kind of quantised weight, for activations of `type`.
inline std::vector<NamedLayout> quantised_layouts(FloatType type) {
  std::vector<NamedLayout> all;
  for (const int bits : {4, 8})
    all.push_back(
        {"affine " + std::to_string(bits),
         {.n = 1024, .k = 1024, .type = type, .bits = bits, .group_size = 64, .scale_type = type}});
  const auto add = [&](const char* name, const QuantisedLayout& layout) {
    all.push_back({name, in_blocks(layout, type)});
  };
  const std::pair<const char*, GgufFormat> kinds[] = {
      {"q4_0", GgufFormat::kQ4_0},    {"q5_0", GgufFormat::kQ5_0},   {"q5_1", GgufFormat::kQ5_1},
      {"q8_0", GgufFormat::kQ8_0},    {"q2_k", GgufFormat::kQ2_K},   {"q3_k", GgufFormat::kQ3_K},
      {"q4_k", GgufFormat::kQ4_K},    {"q5_k", GgufFormat::kQ5_K},   {"q6_k", GgufFormat::kQ6_K},
      {"iq4_nl", GgufFormat::kIq4Nl}, {"iq4_xs", GgufFormat::kIq4Xs}};
  for (const auto& [name, kind] : kinds)
    add(name,
        {.bits = gguf_layout(kind).bits, .group_size = gguf_layout(kind).group, .gguf = kind});
  const std::pair<const char*, BlockFloat> floats[] = {{"fp8", BlockFloat::kFloat8},
                                                       {"mxfp8", BlockFloat::kMxfp8},
                                                       {"mxfp4", BlockFloat::kMxfp4},
                                                       {"nvfp4", BlockFloat::kNvfp4},
                                                       {"nf4", BlockFloat::kNf4}};
  for (const auto& [name, format] : floats)
    add(name, {.bits = block_float_format(format).bits,
               .group_size = block_float_format(format).group_size,
               .block_float = format});
  add("awq",
      {.bits = 4, .group_size = 128, .scale_type = FloatType::kF16, .zeros = ZeroPoints::kBytes});
  add("gptq, symmetric", {.bits = 8,
                          .group_size = 128,
                          .scale_type = FloatType::kF16,
                          .zeros = ZeroPoints::kSame,
                          .least_zero = 128});
  return all;
}

inline std::vector<LinearChoiceCase> dense_choices(FloatType type) {
  using enum LinearCudaKernel;
  const CudaWeightLayout dense = {.type = type};
  struct Row {
    const char* name;
    int64_t n, k, rows;
    LinearCudaKernel hopper, plain;
  };
  const Row rows[] = {{"nothing", 128, 256, 0, kNone, kNone},
                      {"a row", 128, 256, 1, kFewRows, kFewRows},
                      {"few rows", 128, 256, 8, kFewRows, kFewRows},
                      {"more rows", 128, 256, 9, kWgmma, kFewRows},
                      {"the most for few", 128, 256, 64, kWgmma, kFewRows},
                      {"many rows", 128, 256, 65, kWgmma, kManyRows},
                      {"rows of an odd length", 128, 252, 70, kManyRows, kManyRows},
                      {"a row of many columns", 8192, 256, 1, kFewRows, kFewRows},
                      {"two rows of many columns", 8192, 256, 2, kFewRows, kFewRows},
                      {"three rows of many columns", 8192, 256, 3, kWgmma, kFewRows},
                      {"four long rows of many columns", 4096, 8192, 4, kFewRows, kFewRows},
                      {"five long rows of many columns", 4096, 8192, 5, kWgmma, kFewRows},
                      {"few rows of many columns", 8192, 256, 8, kWgmma, kFewRows},
                      {"fewer columns than that", 4080, 256, 8, kFewRows, kFewRows},
                      {"16 rows of most columns", 12288, 256, 16, kWgmma, kFewRows},
                      {"17 rows of most columns", 12288, 256, 17, kWgmma, kManyRows},
                      {"17 rows of a panel less", 12272, 256, 17, kWgmma, kFewRows}};
  std::vector<LinearChoiceCase> cases;
  for (const Row& r : rows)
    cases.push_back({r.name, sized(dense, r.n, r.k), r.rows, r.hopper, r.plain});
  return cases;
}

inline std::vector<LinearChoiceCase> quantised_choices(FloatType type) {
  using enum LinearCudaKernel;
  std::vector<LinearChoiceCase> cases;
  for (const auto& [name, layout] : quantised_layouts(type)) {
    const LinearCudaKernel nine = is_in_blocks(layout.block_source) ? kManyRows : kFewRows;
    cases.push_back({name + ", a row", layout, 1, kFewRows, kFewRows});
    cases.push_back({name + ", few rows", layout, 8, kFewRows, kFewRows});
    cases.push_back({name + ", more rows", layout, 9, kWgmma, nine});
    cases.push_back({name + ", many rows", layout, 65, kWgmma, kManyRows});
    const CudaWeightLayout wide = sized(layout, 4096, 1024);
    cases.push_back({name + ", a row of many columns", wide, 1, kWgmma, kFewRows});
  }
  return cases;
}

inline std::vector<LinearChoiceCase> linear_choices() {
  std::vector<LinearChoiceCase> all;
  for (const FloatType type : {FloatType::kBf16, FloatType::kF16})
    for (const std::vector<LinearChoiceCase>& cases :
         {dense_choices(type), quantised_choices(type)})
      for (LinearChoiceCase c : cases) {
        c.name = (type == FloatType::kBf16 ? "bf16, " : "f16, ") + c.name;
        all.push_back(c);
      }
  for (const int64_t rows : {1, 70})
    all.push_back({"f32",
                   {.n = 128, .k = 256, .type = FloatType::kF32},
                   rows,
                   LinearCudaKernel::kPlain,
                   LinearCudaKernel::kPlain});
  return all;
}

}  // namespace quire::ops::testing
