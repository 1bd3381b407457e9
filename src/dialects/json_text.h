#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/trimmed.h"
#include "dialects/tools.h"

namespace quire::dialects {

// Follows one JSON value byte by byte and finds its end, or the first byte that cannot be part of
// it. UTF-8 is not looked at.
class JsonScanner {
 public:
  enum class Status {
    kMore,
    kDone,        // this byte was the value's last
    kDoneBefore,  // the value, a number, ended before this byte
    kInvalid,
  };
  Status feed(char byte);
  // True: the value is complete if no byte follows.
  bool is_complete_at_end() const;

 private:
  enum class Expect { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd };
  Status value_starts(char byte);
  Status in_string(char byte);
  Status in_word(char byte);
  Status after_value();
  Status closes(char byte);
  bool number_byte(char byte);
  bool number_is_complete() const;

  static constexpr size_t kMaxDepth = 128;
  enum class Number { kMinus, kZero, kInteger, kPoint, kFraction, kExponent, kSign, kDigits };
  std::string open_;  // '{' and '[' around this place
  Expect expect_ = Expect::kValue;
  bool in_string_ = false, string_is_key_ = false, escaped_ = false, in_number_ = false;
  int hex_left_ = 0;
  std::string_view word_;  // rest of true, false or null
  Number number_ = Number::kMinus;
};

// Whether the text, blanks around it aside, is one JSON value.
bool is_json(std::string_view text);
// The text of a JSON string literal with its quotes; nothing if it is none.
std::optional<std::string> decode_json_string(std::string_view literal);
// Appends bytes that belong inside a JSON string, escaped as far as JSON needs it. Bytes from 0x80
// stay what they are: a character may come in pieces.
void append_escaped(std::string& out, std::string_view bytes);
std::string json_string(std::string_view text);
bool is_space(int byte);

// Raw text as a JSON value of one of the types: the first that fits of null, integer, number,
// boolean, object, array. What fits none is a string.
std::string coerce(std::string_view raw, const ValueTypes& types);
// A JSON number that means the same as a literal of Python (`007`, `+1`, `.5`), or nothing.
std::optional<std::string> json_number(std::string_view literal, bool integer_only = false);

}  // namespace quire::dialects
