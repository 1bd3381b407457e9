#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <vector>

namespace quire {
namespace {

// Refuses what Boost.JSON lets through: overflowed numbers. (Duplicate keys keep the last value, as
// in Python.)
bool all_finite(const json::value& v) {
  switch (v.kind()) {
    case json::kind::double_:
      return std::isfinite(v.get_double());
    case json::kind::array:
      for (const auto& e : v.get_array())
        if (!all_finite(e)) return false;
      return true;
    case json::kind::object:
      for (const auto& e : v.get_object())
        if (!all_finite(e.value())) return false;
      return true;
    default:
      return true;
  }
}

// Whether "\ud800" to "\udbff", the first half of a surrogate pair, is spelled at text[at].
bool is_first_half(std::string_view text, size_t at) {
  const std::string_view half = text.substr(std::min(at, text.size()), 4);
  return half.size() == 4 && half.starts_with("\\u") && (half[2] | 0x20) == 'd' &&
         std::string_view("89abAB").find(half[3]) != std::string_view::npos;
}

// Whether a document that goes wrong at text[at] lacks a second half there.
bool lacks_second_half(std::string_view text, size_t at) {
  return (at >= 6 && is_first_half(text, at - 6)) ||
         (at >= 7 && text[at - 1] == '\\' && is_first_half(text, at - 7));
}

// Length of the valid UTF-8 sequence at text[i], or 0.
size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char first = byte(i);
  const size_t n = first < 0x80                    ? 1
                   : first >= 0xC2 && first < 0xE0 ? 2
                   : (first & 0xF0) == 0xE0        ? 3
                   : first >= 0xF0 && first < 0xF5 ? 4
                                                   : 0;
  if (n == 0 || i + n > text.size()) return 0;
  for (size_t k = 1; k < n; ++k)
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
  if (n == 3 && ((first == 0xE0 && byte(i + 1) < 0xA0) || (first == 0xED && byte(i + 1) >= 0xA0)))
    return 0;
  if (n == 4 && ((first == 0xF0 && byte(i + 1) < 0x90) || (first == 0xF4 && byte(i + 1) >= 0x90)))
    return 0;
  return n;
}

// The first byte that is no part of a character; the text's size if all are.
size_t first_invalid(std::string_view text) {
  size_t i = 0;
  for (size_t n = 1; i < text.size() && n > 0; i += n) n = utf8_length(text, i);
  return i;
}

// Of a document that the parser could read until text[at].
std::string describe(const boost::system::error_code& error, std::string_view text, size_t at) {
  std::string what = error.message();
  if (const size_t invalid = first_invalid(text); invalid < text.size() && invalid <= at) {
    at = invalid;
    what = "it is not UTF-8";
  } else if (error == json::error::illegal_leading_surrogate ||
             error == json::error::illegal_trailing_surrogate ||
             error == json::error::expected_utf16_escape || lacks_second_half(text, at)) {
    what = "a lone surrogate: \\ud800 to \\udfff are halves of a character and come in pairs";
  }
  return "invalid JSON at byte " + std::to_string(at) + ": " + what;
}

void append_number(std::string& out, double x) {
  if (!std::isfinite(x)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x);
  const std::string_view digits(buffer, end.ptr);
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void dump(std::string& out, const json::value& v) {
  switch (v.kind()) {
    case json::kind::null:
      out += "null";
      break;
    case json::kind::bool_:
      out += v.get_bool() ? "true" : "false";
      break;
    case json::kind::int64:
      out += std::to_string(v.get_int64());
      break;
    case json::kind::uint64:
      out += std::to_string(v.get_uint64());
      break;
    case json::kind::double_:
      append_number(out, v.get_double());
      break;
    case json::kind::string:
      append_json_string(out, {v.get_string().data(), v.get_string().size()});
      break;
    case json::kind::array: {
      out += '[';
      const char* separator = "";
      for (const auto& e : v.get_array()) {
        out += separator;
        dump(out, e);
        separator = ",";
      }
      out += ']';
      break;
    }
    case json::kind::object: {
      out += '{';
      const char* separator = "";
      for (const auto& e : v.get_object()) {
        out += separator;
        append_json_string(out, {e.key().data(), e.key().size()});
        out += ':';
        dump(out, e.value());
        separator = ",";
      }
      out += '}';
      break;
    }
  }
}

// Whether some object of the document has more than `most` members. Of what is no JSON it may say
// either.
bool has_larger_object(std::string_view text, size_t most, size_t max_depth) {
  if (static_cast<size_t>(std::ranges::count(text, ':')) <= most) return false;
  std::vector<size_t> members(1);  // so far, of each object or list that is open
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      while ((i = text.find_first_of("\"\\", i + 1)) < text.size() && text[i] == '\\') ++i;
      if (i >= text.size()) return false;
    } else if (c == '{' || c == '[') {
      if (members.size() > max_depth) return false;
      members.push_back(0);
    } else if ((c == '}' || c == ']') && members.size() > 1) {
      members.pop_back();
    } else if (c == ':' && ++members.back() > most) {
      return true;
    }
  }
  return false;
}

// Where the piece that begins at `begin` ends: never inside a character or an escape. Boost.JSON
// (1.81 at least) makes room for no more than is left of what it goes on with, and writes up to
// three bytes beyond its buffer on the stack when a long text follows. Nor inside a number: read in
// two parts, its last bit may be another one.
size_t piece_end(std::string_view text, size_t begin) {
  constexpr size_t kPiece = 64u << 10, kLongestNumber = 1024;
  if (text.size() - begin <= kPiece) return text.size();
  size_t end = begin + kPiece;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80 && end > begin + kPiece - 3) --end;
  const auto in_number = [&](size_t at) {
    return std::string_view("0123456789+-.eE").find(text[at]) != std::string_view::npos;
  };
  while (in_number(end) && in_number(end - 1) && end > begin + kPiece - kLongestNumber) --end;
  const std::string_view piece = text.substr(begin, end - begin);
  for (size_t at = piece.find('\\'); at < piece.size();) {
    const size_t behind = at + (text[begin + at + 1] == 'u' ? 6 : 2);
    if (behind > piece.size()) return begin + at;
    at = piece.find('\\', behind);
  }
  return end;
}

// Hands the document over piece by piece, as long as the budget lasts.
Result<void, std::string> feed(json::stream_parser& parser, std::string_view text,
                               WorkBudget* budget) {
  BudgetStage stage(budget);
  boost::system::error_code error;
  size_t consumed = 0;
  while (consumed < text.size() && !error) {
    const std::string_view piece = text.substr(consumed, piece_end(text, consumed) - consumed);
    const size_t taken = parser.write_some(piece.data(), piece.size(), error);
    consumed += taken;
    if (!error && taken < piece.size()) error = json::error::extra_data;
    if (!stage.may_go_on())
      return Err{"reading the JSON takes more than " +
                 std::to_string(budget->limit_ns / 1'000'000) +
                 " ms of processor time, which is the limit for one request"};
  }
  if (!error) parser.finish(error);
  if (error) return Err{describe(error, text, consumed)};
  return {};
}

}  // namespace

Result<json::value, std::string> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Err{"JSON document of " + std::to_string(text.size()) + " bytes is over the limit of " +
               std::to_string(limits.max_bytes)};
  }
  json::parse_options options;
  options.max_depth = limits.max_depth;
  if (has_larger_object(text, limits.max_members, limits.max_depth))
    return Err{"a JSON object has more than " + std::to_string(limits.max_members) + " members"};
  json::stream_parser parser({}, options);
  if (auto fed = feed(parser, text, limits.budget); !fed) return Err{std::move(fed).error()};
  json::value value = parser.release();
  if (!all_finite(value)) return Err{std::string("invalid JSON: a number is too large")};
  return value;
}

std::string dump_json(const json::value& value) {
  std::string out;
  dump(out, value);
  return out;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i++];
    } else if (c < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", c);
      const char* shorthand = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : buffer;
      out += shorthand;
      ++i;
    } else if (const size_t n = utf8_length(text, i); n > 0) {
      out.append(text, i, n);
      i += n;
    } else {
      out += "\xEF\xBF\xBD";
      ++i;
    }
  }
  out += '"';
}

}  // namespace quire
