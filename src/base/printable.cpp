#include "base/printable.h"

#include <cstdint>
#include <cstdio>

namespace quire {
namespace {

// The bytes of the UTF-8 character that `text` starts with; 0 if these bytes are none.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80           ? 1
                        : (byte(0) >> 5) == 0x6  ? 2
                        : (byte(0) >> 4) == 0xe  ? 3
                        : (byte(0) >> 3) == 0x1e ? 4
                                                 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) >> 6) != 0x2) return 0;
  return length;
}

uint32_t code_point(std::string_view character) {
  if (character.size() == 1) return static_cast<unsigned char>(character[0]);
  uint32_t code = static_cast<unsigned char>(character[0]) & (0xffu >> (character.size() + 1));
  for (const char c : character.substr(1))
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  return code;
}

bool is_valid(uint32_t code, size_t length) {
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter forms exist below
  return code >= kSmallest[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

bool is_plain(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;  // C0, DEL, C1
  // Line and paragraph separators, and what changes the direction of the text around it.
  const bool separates = code == 0x2028 || code == 0x2029;
  const bool reorders = code == 0x61c || code == 0x200e || code == 0x200f ||
                        (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return !separates && !reorders;
}

void append_escape(std::string& out, const char* format, unsigned value) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, format, value);
  out += buffer;
}

void append_escaped(std::string& out, uint32_t code) {
  if (code == '\n') {
    out += "\\n";
  } else if (code == '\r') {
    out += "\\r";
  } else if (code == '\t') {
    out += "\\t";
  } else {
    append_escape(out, code < 0x80 ? "\\x%02x" : "\\u%04x", code);
  }
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = character_length(text.substr(i));
    if (i + (length > 0 ? length : 1) > max_bytes) return out + "...";
    const std::string_view character = text.substr(i, length);
    const uint32_t code = length > 0 ? code_point(character) : 0;
    if (length == 0 || !is_valid(code, length)) {
      append_escape(out, "\\x%02x", static_cast<unsigned char>(text[i]));
      ++i;
      continue;
    }
    if (is_plain(code)) {
      out += character;
    } else {
      append_escaped(out, code);
    }
    i += length;
  }
  return out;
}

}  // namespace quire
