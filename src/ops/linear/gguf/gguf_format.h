#pragma once
#include <cstdint>
#include <optional>

namespace quire::ops {

// The block formats of GGUF files that Quire serves. A block is `weights` neighbouring k of one
// output row in `bytes` bytes; what they mean is gguf_reference.h. The enum's values are the type
// ids of a file; kNone stands for a weight that is in no block format (0 is F32 in a file).
enum class GgufFormat : uint8_t {
  kNone = 0,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIq4Nl = 20,
  kIq4Xs = 23,
  kMxfp4 = 39,
  kNvfp4 = 40,
};

struct GgufBlock {
  const char* name = "none";
  int64_t weights = 0, bytes = 0;
};

constexpr GgufBlock gguf_block(GgufFormat format) {
  switch (format) {
    case GgufFormat::kNone:
      break;
    case GgufFormat::kQ4_0:
      return {"q4_0", 32, 18};
    case GgufFormat::kQ4_1:
      return {"q4_1", 32, 20};
    case GgufFormat::kQ5_0:
      return {"q5_0", 32, 22};
    case GgufFormat::kQ5_1:
      return {"q5_1", 32, 24};
    case GgufFormat::kQ8_0:
      return {"q8_0", 32, 34};
    case GgufFormat::kQ2_K:
      return {"q2_k", 256, 84};
    case GgufFormat::kQ3_K:
      return {"q3_k", 256, 110};
    case GgufFormat::kQ4_K:
      return {"q4_k", 256, 144};
    case GgufFormat::kQ5_K:
      return {"q5_k", 256, 176};
    case GgufFormat::kQ6_K:
      return {"q6_k", 256, 210};
    case GgufFormat::kIq4Nl:
      return {"iq4_nl", 32, 18};
    case GgufFormat::kIq4Xs:
      return {"iq4_xs", 256, 136};
    case GgufFormat::kMxfp4:
      return {"mxfp4", 32, 17};
    case GgufFormat::kNvfp4:
      return {"nvfp4", 64, 36};
  }
  return {};
}

// Of a type id in a file: none if it is no block format (F32, F16, BF16) or one that is not served.
constexpr std::optional<GgufFormat> find_gguf_format(uint32_t type) {
  const auto format = static_cast<GgufFormat>(type);
  if (type > 255 || gguf_block(format).weights == 0) return std::nullopt;
  return format;
}

// Whether codes are e2m1: these formats are packed as block floats.
constexpr bool is_e2m1(GgufFormat format) {
  return format == GgufFormat::kMxfp4 || format == GgufFormat::kNvfp4;
}

// Of a row of k weights; k is a multiple of the block's, and kNone has no rows.
constexpr int64_t gguf_row_bytes(GgufFormat format, int64_t k) {
  return k / gguf_block(format).weights * gguf_block(format).bytes;  // NOLINT
}

// Calls `use.template operator()<kFormat>()` for a format that has a layout of its own
// (gguf_layout.h). False, and nothing called, for the others.
template <class Use>
constexpr bool with_gguf_layout(GgufFormat format, const Use& use) {
  const auto call = [&]<GgufFormat... kFormats>() {
    return ((format == kFormats && (use.template operator()<kFormats>(), true)) || ...);
  };
  using enum GgufFormat;
  return call.template
  operator()<kQ4_0, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIq4Nl, kIq4Xs>();
}

}  // namespace quire::ops
