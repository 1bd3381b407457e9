#pragma once
#include <string_view>

#include "dialects/reader.h"
#include "dialects/tagged_values.h"

namespace quire::dialects {

// call:f{k:<|"|>text<|"|>,n:2,o:{..},a:[..]}: JSON without quotes around keys, and with a marker of
// the vocabulary around strings.
struct GemmaCalls {
  ValueEnd string;          // closer: the marker, which opens a string, too; followers: by the call
  std::string_view closer;  // after the call
};

// What names of tools and arguments do not hold there.
inline constexpr std::string_view kNotInGemmaNames = " \t\n\"'(),:<>[]{}";

// From the opening marker on, which is read.
Task<> gemma_call(Reader& in, const GemmaCalls& syntax);

}  // namespace quire::dialects
