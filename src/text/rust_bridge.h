#pragma once
// The generated side of rust/quire-text and the glue around it; not for other rooms.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "formats/model_files.h"
#include "quire-text/src/lib.rs.h"
#include "rust/cxx.h"

namespace quire::text {

inline rust::Slice<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

inline rs::ModelFiles bridge_files(const formats::ModelFiles& files) {
  return {.origin = as_bytes(files.origin),
          .are_made = files.are_made,
          .tokenizer_json = as_bytes(files.tokenizer_json),
          .tokenizer_config_json = as_bytes(files.tokenizer_config_json)};
}

inline std::string to_string(const rust::Vec<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Calls into Rust; its errors arrive as exceptions and leave as values.
template <class F>
auto bridged(F&& call) -> Result<decltype(call()), std::string> {
  try {
    return call();
  } catch (const rust::Error& e) {
    return Err{std::string(e.what())};
  }
}

}  // namespace quire::text
