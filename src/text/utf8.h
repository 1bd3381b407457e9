#pragma once
#include <string>
#include <string_view>

namespace quire::text {

// How far `bytes` can be decoded now. The sequence rules are those of Unicode's table 3-7.
struct Utf8Scan {
  size_t valid = 0;  // length of the valid prefix
  size_t bad = 0;    // after it: length of a maximal invalid part (one U+FFFD), 0 if there is none
  bool cut = false;  // the rest begins a character that more bytes may complete
};
Utf8Scan scan_utf8(std::string_view bytes);

inline bool is_valid_utf8(std::string_view bytes) { return scan_utf8(bytes).valid == bytes.size(); }

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Turns a stream of bytes into a stream of whole characters, invalid ones replaced. The outputs
// together equal the lossy decoding of all the bytes at once.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  // What is left of an unfinished character becomes one U+FFFD.
  void flush(std::string& out);

 private:
  std::string pending_;  // at most 3 bytes between calls
};

}  // namespace quire::text
