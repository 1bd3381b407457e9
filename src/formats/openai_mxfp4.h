#pragma once
#include <string>
#include <string_view>

namespace quire::formats {

// OpenAI's own mxfp4, of which names alone say it: codes of STEM are STEM_blocks, [..., K / 32, 16]
// bytes of two codes each, and their scales STEM_scales, [..., K / 32] bytes.
inline constexpr std::string_view kOpenAiCodes = "_blocks", kOpenAiScales = "_scales";

inline bool is_openai_codes(std::string_view name) { return name.ends_with(kOpenAiCodes); }
inline bool is_openai_scales(std::string_view name) { return name.ends_with(kOpenAiScales); }

// The name of the scales that go with codes.
inline std::string openai_scales_name(std::string_view codes) {
  return std::string(codes.substr(0, codes.size() - kOpenAiCodes.size())) +
         std::string(kOpenAiScales);
}

}  // namespace quire::formats
