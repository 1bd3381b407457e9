#include "dialects/python_literal.h"

#include "dialects/json_text.h"

namespace quire::dialects {
namespace {

constexpr int kMaxDepth = 64;

bool is_name_byte(int byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_' || byte == '.' || byte >= 0x80;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 63));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 63));
    out += static_cast<char>(0x80 | (code & 63));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 63));
    out += static_cast<char>(0x80 | ((code >> 6) & 63));
    out += static_cast<char>(0x80 | (code & 63));
  }
}

Task<uint32_t> hex_digits(Reader& in, int count) {
  uint32_t code = 0;
  for (int i = 0; i < count; ++i) {
    const int byte = co_await in.next();
    const size_t digit =
        byte == Reader::kEnd
            ? std::string_view::npos
            : std::string_view("0123456789abcdef").find(static_cast<char>(byte | 32));
    if (digit == std::string_view::npos) co_await in.fail();
    code = code * 16 + static_cast<uint32_t>(digit);
  }
  co_return code;
}

bool is_half(uint32_t code) { return code >= 0xD800 && code < 0xE000; }

// After a backslash.
Task<> escape(Reader& in, std::string& out) {
  static constexpr std::string_view kNames = "abfnrtv0\\'\"";
  static constexpr std::string_view kValues("\a\b\f\n\r\t\v\0\\'\"", 11);
  const int byte = co_await in.next();
  if (byte == Reader::kEnd) co_await in.fail();
  const char name = static_cast<char>(byte);
  const int digits = name == 'x' ? 2 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
  if (digits > 0) {
    uint32_t code = co_await hex_digits(in, digits);
    if (code >= 0xD800 && code < 0xDC00) {  // half of a character, as JSON writes it
      const bool more = co_await accept(in, "\\u");
      const uint32_t low = more ? 0u : 0xFFFFu;
      uint32_t second = low;
      if (more) second = co_await hex_digits(in, 4);
      code = second >= 0xDC00 && second < 0xE000
                 ? 0x10000 + ((code - 0xD800) << 10) + second - 0xDC00
                 : 0xFFFD;
    }
    if (is_half(code) || code > 0x10FFFF) code = 0xFFFD;
    append_utf8(out, code);
  } else if (const size_t at = kNames.find(name); at != std::string_view::npos) {
    out += kValues[at];
  } else if (name != '\n') {  // a line that goes on
    out += '\\';
    out += name;
  }
}

struct StringSink {
  Reader& in;
  bool direct;
  std::string text;
  void add(std::string_view piece) {
    if (!direct) {
      text += piece;
      return;
    }
    std::string escaped;
    append_escaped(escaped, piece);
    in.arguments(escaped);
  }
};

// After the opening quotes. Line ends within are taken as they are.
Task<> string_body(Reader& in, std::string_view quotes, bool raw, StringSink& sink) {
  for (;;) {
    const bool closed = co_await accept(in, quotes);
    if (closed) co_return;
    const int byte = co_await in.next();
    if (byte == Reader::kEnd) co_await in.fail();
    in.settle();
    std::string piece;
    if (byte == '\\' && !raw) {
      co_await escape(in, piece);
    } else {
      piece += static_cast<char>(byte);
    }
    sink.add(piece);
  }
}

Task<> string_literal(Reader& in, bool raw, std::string_view type_of) {
  const int quote = co_await in.next();
  const std::string_view one = quote == '"' ? "\"" : "'";
  const std::string_view three = quote == '"' ? "\"\"\"" : "'''";
  const std::string_view two = three.substr(0, 2);
  std::string_view quotes = one;
  const bool tripled = co_await accept(in, two);
  if (tripled) quotes = three;
  bool is_empty = false;
  if (!tripled) is_empty = co_await accept(in, one);
  const auto types = type_of.empty() ? std::nullopt : in.tools().types(in.call_name(), type_of);
  const bool direct = !types || types->string;
  StringSink sink{in, direct, {}};
  if (direct) in.arguments("\"");
  if (!is_empty) co_await string_body(in, quotes, raw, sink);
  in.arguments(direct ? std::string("\"") : coerce(sink.text, *types));
}

Task<> literal(Reader& in, std::string_view type_of, int depth);

// Whether another item follows; the closer or end of the items is read.
Task<bool> item_follows(Reader& in, std::string_view closer, bool first) {
  co_await skip_space(in);
  bool closed = co_await accept(in, closer);
  if (closed) co_return false;
  if (first) co_return true;
  co_await expect(in, ",");
  co_await skip_space(in);
  closed = co_await accept(in, closer);
  co_return !closed;
}

Task<> list_literal(Reader& in, std::string_view closer, int depth) {
  co_await in.next();
  in.arguments("[");
  for (bool first = true;; first = false) {
    const bool more = co_await item_follows(in, closer, first);
    if (!more) break;
    if (!first) in.arguments(", ");
    co_await literal(in, {}, depth + 1);
  }
  in.arguments("]");
}

// A dictionary, or a set (as a list): known after the first item.
Task<> braces_literal(Reader& in, int depth) {
  const size_t begin = in.at();
  co_await in.next();
  co_await skip_space(in);
  const int first_byte = co_await in.peek();
  if (first_byte != '"' && first_byte != '\'' && first_byte != '}') {
    in.rewind(begin);
    co_await list_literal(in, "}", depth);
    co_return;
  }
  in.arguments("{");
  for (bool first = true;; first = false) {
    const bool more = co_await item_follows(in, "}", first);
    if (!more) break;
    if (!first) in.arguments(", ");
    const int quote = co_await in.peek();
    if (quote != '"' && quote != '\'') co_await in.fail();
    co_await string_literal(in, false, {});
    co_await skip_space(in);
    co_await expect(in, ":");
    in.arguments(": ");
    co_await skip_space(in);
    co_await literal(in, {}, depth + 1);
  }
  in.arguments("}");
}

// A word: a constant, or the prefix of a string.
Task<> word_literal(Reader& in, std::string_view type_of) {
  const std::string word = co_await python_name(in);
  const int following = co_await in.peek();
  const bool quoted = following == '"' || following == '\'';
  if (quoted && (word == "r" || word == "R" || word == "f" || word == "u")) {
    co_await string_literal(in, word == "r" || word == "R", type_of);
  } else if (word == "True" || word == "true") {
    in.arguments("true");
  } else if (word == "False" || word == "false") {
    in.arguments("false");
  } else if (word == "None" || word == "null") {
    in.arguments("null");
  } else {
    co_await in.fail();
  }
}

Task<> number_literal(Reader& in) {
  std::string text;
  for (;;) {
    const int byte = co_await in.peek();
    if (byte == Reader::kEnd ||
        std::string_view("0123456789.eE+-_").find(static_cast<char>(byte)) ==
            std::string_view::npos)
      break;
    if (byte != '_') text += static_cast<char>(byte);
    if (text.size() > 400) co_await in.fail();
    co_await in.next();
  }
  const auto number = json_number(text);
  if (!number) co_await in.fail();
  in.arguments(*number);
}

Task<> literal(Reader& in, std::string_view type_of, int depth) {
  if (depth > kMaxDepth) co_await in.fail();
  const int byte = co_await in.peek();
  if (byte == '"' || byte == '\'') {
    co_await string_literal(in, false, type_of);
  } else if (byte == '[') {
    co_await list_literal(in, "]", depth);
  } else if (byte == '(') {
    co_await list_literal(in, ")", depth);
  } else if (byte == '{') {
    co_await braces_literal(in, depth);
  } else if (byte == '-' || byte == '+' || byte == '.' || (byte >= '0' && byte <= '9')) {
    co_await number_literal(in);
  } else {
    co_await word_literal(in, type_of);
  }
}

}  // namespace

namespace {

Task<std::string> name_of(Reader& in, bool of_tool) {
  std::string name;
  for (;;) {
    const int byte = co_await in.peek();
    const bool digit_first = name.empty() && ((byte >= '0' && byte <= '9') || byte == '.');
    const bool belongs = is_name_byte(byte) ? of_tool || !digit_first : of_tool && byte == '-';
    if (!belongs) co_return name;
    if (name.size() == 256) co_await in.fail();
    name += static_cast<char>(byte);
    co_await in.next();
  }
}

}  // namespace

Task<std::string> python_name(Reader& in) { return name_of(in, false); }
Task<std::string> python_tool_name(Reader& in) { return name_of(in, true); }

Task<> python_literal(Reader& in, std::string_view type_of) { return literal(in, type_of, 0); }

}  // namespace quire::dialects
