#pragma once
// What the sources of this room know about a tokenizer; not for other rooms.
#include <unordered_map>

#include "text/rust_bridge.h"
#include "text/tokenizer.h"

namespace quire::text {

// How pieces become text; the values are those of pieces.rs.
enum class JoinRule : uint8_t { kBytes = 0, kByteRuns = 1, kOpaque = 2 };

// Strings packed end to end.
struct StringTable {
  std::string bytes;
  std::vector<uint64_t> ends;

  std::string_view at(size_t i) const {
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(bytes).substr(begin, ends[i] - begin);
  }
};

struct Tokenizer::Impl {
  enum Flag : uint8_t { kPresent = 1, kSpecial = 2, kByte = 4 };

  rust::Box<rs::TextTokenizer> rust;
  JoinRule rule = JoinRule::kOpaque;
  // Up to strip_left copies of strip_char are dropped from the front of the whole text.
  uint32_t strip_left = 0;
  std::string strip_char;
  StringTable tokens;
  StringTable pieces;
  std::vector<uint8_t> flags;
  // Pieces that differ when they open the text (Metaspace drops the first space).
  std::unordered_map<int32_t, std::string> first_pieces;

  bool has(int32_t id, uint8_t wanted) const {
    return id >= 0 && static_cast<size_t>(id) < flags.size() && (flags[id] & wanted) == wanted;
  }
};

}  // namespace quire::text
