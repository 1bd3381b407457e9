#pragma once
#include <string_view>

namespace quire::ops::testing {

// The first row of small matrices as other programs store them, in hexadecimal digits of the files'
// bytes, with the float32 values that these programs dequantise them to. Made with
// compressed-tensors 0.20.0 (whose values are bfloat16), nvidia-modelopt 0.47.0 (NVFP4QTensor) and
// bitsandbytes 0.50.2 (on a CPU).
struct Float4Vector {
  std::string_view codes, scales, of_matrix, values;
};

constexpr Float4Vector kCompressedNvfp4 = {
    "ca8ee6350c1eb767c14bcde920725e0758acd4ac6b76900bdf12448945c55a4c", "73797b77", "d62c1b47",
    "000091bb000011bc000091bc000000800000913c000091bc00005a3c0000da3b000011bc00000000000091bc"
    "0000113b0000da3c0000dabb0000da3c0000913c00006e3b00006ebc000032bc00006e3c0000b2bc00006ebc"
    "00006ebb0000eebc000000000000ee3b0000ee3b0000323d0000eebc0000b23c0000323d0000000000000080"
    "0000da3c000091bc000011bc0000913c0000dabc000091bc000011bc00005abc0000113d0000113d00005a3d"
    "00000000000091bb00005abc00000000000014bd000094bc0000c63b0000463b0000463c0000463c000046bb"
    "000000800000943c0000463c0000943c000046bc0000c6bb0000943c000046bc0000463c"};
constexpr Float4Vector kModeloptNvfp4 = {
    "25436f41d55cf24a15e3ad0be701f64a", "7e79", "696ea637",
    "ea70da3c9ca0113cea705a3c9ca0913cea705abd9ca0113d9ca0913b9ca0913cea70da3cea70dabc9ca091bc"
    "ea70da3c9ca0113cea705abd9ca011bc9ca0913c286d8c3c363c3b3b286d0c3c363cbbbc286d8cbc363cbbbb"
    "286d0cbc00000000286d0c3d363cbbbc363c3b3b00000000363cbb3c286d0cbd363cbbbb363c3b3c"};
constexpr Float4Vector kBitsandbytesNf4 = {
    "6c857623593453d81b930383c3737667985ab4687584465cdd674ac297435269", "7b408e3d", "",
    "8d3bcfbb67c4fa3c8d20b53b624652bc000000008d3bcfbba06215bd05b6e0bc624652bc1824373c05b6e0bc"
    "6bd9a1bc624652bc05b6e0bc1011203d8d20b53bc81146bdbc46c03c1824373c05b6e0bc7b408ebd05b6e0bc"
    "8d20b53b05b6e0bc67c4fa3c05b6e0bc0000000005b6e0bc000000008d3bcfbb8d3bcfbb000000001824373c"
    "8d20b53b624652bc2d0a8c3cbc46c03c6bd9a1bc8d3bcfbb8d20b53b00000000624652bc8d20b53b6bd9a1bc"
    "6bd9a1bc8d3bcfbb624652bc67c4fa3c1011203d1011203d8d3bcfbb000000006bd9a1bc2d0a8c3c67c4fa3c"
    "a06215bd1824373c000000006bd9a1bc05b6e0bc624652bca06215bd8d3bcfbb1824373c"};

}  // namespace quire::ops::testing
