#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::formats {

// How the name of the JSON text goes on behind that of a weight of bitsandbytes.
inline constexpr const char* kNf4State = ".quant_state.bitsandbytes__nf4";

// What it says.
struct Nf4State {
  int64_t rows = 0, columns = 0;
  // Of nested scales: how many share a number, and what is added to all; 0 if they are float32.
  int64_t nested_block = 0;
  float nested_offset = 0;
};

// Throws LoadError that begins with `where` if the text is none, or says another format than nf4
// with a scale for 64 values.
Nf4State read_nf4_state(const std::string& where, std::string_view text);

}  // namespace quire::formats
