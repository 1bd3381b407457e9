#include "dialects/json_text.h"

#include <charconv>
#include <cmath>

namespace quire::dialects {
namespace {

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

bool is_hex(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != lower[i]) return false;
  }
  return true;
}

bool is_finite(std::string_view number) {
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc() && std::isfinite(value);
}

}  // namespace

bool is_space(int byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }

JsonScanner::Status JsonScanner::feed(char byte) {
  if (in_string_) return in_string(byte);
  if (!word_.empty()) return in_word(byte);
  if (in_number_) {
    if (number_byte(byte)) return Status::kMore;
    if (!number_is_complete()) return Status::kInvalid;
    in_number_ = false;
    if (open_.empty()) return Status::kDoneBefore;
    expect_ = Expect::kCommaOrEnd;
  }
  if (is_space(byte)) return Status::kMore;
  switch (expect_) {
    case Expect::kValueOrEnd:
      if (byte == ']') return closes(byte);
      [[fallthrough]];
    case Expect::kValue:
      return value_starts(byte);
    case Expect::kKeyOrEnd:
      if (byte == '}') return closes(byte);
      [[fallthrough]];
    case Expect::kKey:
      if (byte != '"') return Status::kInvalid;
      in_string_ = string_is_key_ = true;
      return Status::kMore;
    case Expect::kColon:
      if (byte != ':') return Status::kInvalid;
      expect_ = Expect::kValue;
      return Status::kMore;
    case Expect::kCommaOrEnd:
      if (byte == ']' || byte == '}') return closes(byte);
      if (byte != ',') return Status::kInvalid;
      expect_ = open_.back() == '{' ? Expect::kKey : Expect::kValue;
      return Status::kMore;
  }
  return Status::kInvalid;
}

JsonScanner::Status JsonScanner::value_starts(char byte) {
  if (byte == '{' || byte == '[') {
    if (open_.size() == kMaxDepth) return Status::kInvalid;
    open_ += byte;
    expect_ = byte == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
  } else if (byte == '"') {
    in_string_ = true;
    string_is_key_ = false;
  } else if (byte == 't') {
    word_ = "rue";
  } else if (byte == 'f') {
    word_ = "alse";
  } else if (byte == 'n') {
    word_ = "ull";
  } else if (byte == '-' || is_digit(byte)) {
    in_number_ = true;
    number_ = byte == '-' ? Number::kMinus : byte == '0' ? Number::kZero : Number::kInteger;
  } else {
    return Status::kInvalid;
  }
  return Status::kMore;
}

JsonScanner::Status JsonScanner::in_string(char byte) {
  if (hex_left_ > 0) {
    --hex_left_;
    return is_hex(byte) ? Status::kMore : Status::kInvalid;
  }
  if (escaped_) {
    escaped_ = false;
    if (byte == 'u') hex_left_ = 4;
    return std::string_view("\"\\/bfnrtu").find(byte) == std::string_view::npos ? Status::kInvalid
                                                                                : Status::kMore;
  }
  if (static_cast<unsigned char>(byte) < 0x20) return Status::kInvalid;
  if (byte == '\\') escaped_ = true;
  if (byte != '"') return Status::kMore;
  in_string_ = false;
  if (!string_is_key_) return after_value();
  expect_ = Expect::kColon;
  return Status::kMore;
}

JsonScanner::Status JsonScanner::in_word(char byte) {
  if (byte != word_.front()) return Status::kInvalid;
  word_.remove_prefix(1);
  return word_.empty() ? after_value() : Status::kMore;
}

JsonScanner::Status JsonScanner::after_value() {
  expect_ = Expect::kCommaOrEnd;
  return open_.empty() ? Status::kDone : Status::kMore;
}

JsonScanner::Status JsonScanner::closes(char byte) {
  if (open_.back() != (byte == ']' ? '[' : '{')) return Status::kInvalid;
  open_.pop_back();
  return after_value();
}

bool JsonScanner::number_byte(char byte) {
  const bool digit = is_digit(byte), exponent = byte == 'e' || byte == 'E';
  switch (number_) {
    case Number::kMinus:
      if (digit) number_ = byte == '0' ? Number::kZero : Number::kInteger;
      return digit;
    case Number::kInteger:
      if (digit) return true;
      [[fallthrough]];
    case Number::kZero:
      number_ = byte == '.' ? Number::kPoint : exponent ? Number::kExponent : number_;
      return byte == '.' || exponent;
    case Number::kPoint:
      if (digit) number_ = Number::kFraction;
      return digit;
    case Number::kFraction:
      if (exponent) number_ = Number::kExponent;
      return digit || exponent;
    case Number::kExponent:
      number_ = digit ? Number::kDigits : Number::kSign;
      return digit || byte == '+' || byte == '-';
    case Number::kSign:
      if (digit) number_ = Number::kDigits;
      return digit;
    case Number::kDigits:
      return digit;
  }
  return false;
}

bool JsonScanner::number_is_complete() const {
  return number_ == Number::kZero || number_ == Number::kInteger || number_ == Number::kFraction ||
         number_ == Number::kDigits;
}

bool JsonScanner::is_complete_at_end() const {
  return open_.empty() && in_number_ && number_is_complete();
}

bool is_json(std::string_view text) {
  text = trimmed(text);
  JsonScanner scanner;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto status = scanner.feed(text[i]);
    if (status == JsonScanner::Status::kMore) continue;
    return status == JsonScanner::Status::kDone && i + 1 == text.size();
  }
  return scanner.is_complete_at_end();
}

std::optional<std::string> decode_json_string(std::string_view literal) {
  boost::system::error_code error;
  json::parse_options options;
  options.allow_invalid_utf8 = true;  // a character may come in pieces
  const json::value value =
      json::parse(json::string_view(literal.data(), literal.size()), error, {}, options);
  if (error || !value.is_string()) return std::nullopt;
  return std::string(value.get_string().data(), value.get_string().size());
}

void append_escaped(std::string& out, std::string_view bytes) {
  constexpr const char* kHex = "0123456789abcdef";
  for (const char byte : bytes) {
    switch (byte) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(byte) >= 0x20) {
          out += byte;
        } else {
          out += "\\u00";
          out += kHex[byte >> 4];
          out += kHex[byte & 15];
        }
    }
  }
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  append_escaped(out, text);
  return out + '"';
}

std::optional<std::string> json_number(std::string_view literal, bool integer_only) {
  std::string out;
  if (literal.starts_with('-')) out = "-";
  if (literal.starts_with('-') || literal.starts_with('+')) literal.remove_prefix(1);
  if (literal.empty() || literal.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return std::nullopt;
  const bool is_integer = literal.find_first_not_of("0123456789") == std::string_view::npos;
  if (integer_only && !is_integer) return std::nullopt;
  while (literal.size() > 1 && literal[0] == '0' && is_digit(literal[1])) literal.remove_prefix(1);
  if (literal.starts_with('.')) out += '0';
  out += literal;
  // Python's `1.` is 1.0.
  if (const size_t point = out.find('.'); point != std::string::npos) {
    if (point + 1 == out.size() || !is_digit(out[point + 1])) out.insert(point + 1, "0");
  }
  if (!is_json(out) || (!is_integer && !is_finite(out))) return std::nullopt;
  return out;
}

std::string coerce(std::string_view raw, const ValueTypes& types) {
  const std::string_view text = trimmed(raw);
  if (types.null && equals_ignoring_case(text, "null")) return "null";
  if (types.integer || types.number) {
    if (auto number = json_number(text, !types.number)) return *number;
  }
  if (types.boolean) {
    if (equals_ignoring_case(text, "true") || text == "1") return "true";
    if (equals_ignoring_case(text, "false") || text == "0") return "false";
  }
  const bool is_container =
      (types.object && text.starts_with('{')) || (types.array && text.starts_with('['));
  if (is_container && is_json(text)) return std::string(text);
  return json_string(raw);
}

}  // namespace quire::dialects
