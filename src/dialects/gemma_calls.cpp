#include "dialects/gemma_calls.h"

#include "dialects/json_calls.h"
#include "dialects/json_text.h"

namespace quire::dialects {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxBare = 1 << 16;
// What may follow a string; a parenthesis only where one is open, as in f(k:v).
constexpr std::string_view kFollowers[] = {",", "}", "]"};
constexpr std::string_view kFollowersInParentheses[] = {",", "}", "]", ")"};

Task<> value(Reader& in, const GemmaCalls& syntax, std::string_view key, int depth);

// A value without a marker around it: a number, a constant, or a string whose marker is missing.
Task<> bare_value(Reader& in, const GemmaCalls& syntax, std::string_view key) {
  std::string raw;
  for (;;) {
    const int byte = co_await in.peek();
    if (byte == Reader::kEnd) co_await in.fail();
    if (byte == ',' || byte == '}' || byte == ']' || byte == ')') break;
    const bool closed = co_await accept(in, syntax.string.closer);
    if (closed) break;
    raw += static_cast<char>(byte);
    if (raw.size() > kMaxBare) co_await in.fail();
    co_await in.next();
  }
  const std::string_view text = trimmed(raw);
  if (text.empty()) co_await in.fail();
  const auto types = key.empty() ? std::nullopt : in.tools().types(in.call_name(), key);
  if (types) {
    in.arguments(coerce(text, *types));
  } else {
    in.arguments(is_json(text) ? std::string(text) : json_string(text));
  }
}

// "text" with plain quotes, in place of the marker.
Task<> quoted_value(Reader& in, const GemmaCalls& syntax, std::string_view key) {
  ValueEnd end = syntax.string;
  end.closer = "\"";
  co_await in.next();
  co_await tagged_value(in, end, key);
}

// After the opening bracket, to the one that closes; `closer` is one of `}`, `)` and `]`.
Task<> members(Reader& in, const GemmaCalls& syntax, std::string_view closer, bool is_top,
               int depth) {
  const bool keyed = closer != "]";
  in.arguments(keyed ? "{" : "[");
  for (bool first = true;; first = false) {
    co_await skip_space(in);
    bool closed = co_await accept(in, closer);
    if (!closed && !first) {
      co_await expect(in, ",");
      co_await skip_space(in);
      closed = co_await accept(in, closer);
    }
    if (closed) break;
    if (!first) in.arguments(", ");
    std::string key;
    if (keyed) {
      const bool marked = co_await accept(in, syntax.string.closer);
      key = co_await read_until(in, ":");
      std::string_view name = trimmed(key);
      if (marked && name.ends_with(syntax.string.closer))
        name.remove_suffix(syntax.string.closer.size());
      key = std::string(trimmed(name));
      if (key.size() >= 2 && key.front() == '"' && key.back() == '"')
        key = key.substr(1, key.size() - 2);
      if (key.empty() || key.find_first_of("{}[]<>,\n") != std::string::npos) co_await in.fail();
      in.arguments(json_string(key) + ": ");
      co_await skip_space(in);
    }
    co_await value(in, syntax, is_top ? std::string_view(key) : std::string_view(), depth + 1);
    in.settle();
  }
  in.arguments(keyed ? "}" : "]");
}

Task<> value(Reader& in, const GemmaCalls& syntax, std::string_view key, int depth) {
  if (depth > kMaxDepth) co_await in.fail();
  const bool marked = co_await accept(in, syntax.string.closer);
  if (marked) {
    co_await tagged_value(in, syntax.string, key);
    co_return;
  }
  const int byte = co_await in.peek();
  if (byte == '{' || byte == '[') {
    co_await in.next();
    co_await members(in, syntax, byte == '{' ? "}" : "]", false, depth);
  } else if (byte == '"') {
    co_await quoted_value(in, syntax, key);
  } else {
    co_await bare_value(in, syntax, key);
  }
}

}  // namespace

Task<> gemma_call(Reader& in, const GemmaCalls& syntax) {
  co_await skip_space(in);
  co_await accept(in, "call:");
  std::string name;
  bool parenthesis = false;
  for (;;) {
    const int byte = co_await in.next();
    parenthesis = byte == '(';
    if (byte == '{' || parenthesis) break;
    if (byte == Reader::kEnd || byte == '<' || name.size() == 256) co_await in.fail();
    name += static_cast<char>(byte);
  }
  // Some write the namespace that they know tools by.
  std::string_view called = trimmed(name);
  const size_t inner = called.find_last_of(":.");
  if (!in.tools().offers(called) && inner != std::string_view::npos)
    called.remove_prefix(inner + 1);
  in.begin_call(called);
  GemmaCalls here = syntax;
  if (parenthesis) {
    here.string.followers = kFollowersInParentheses;
  } else {
    here.string.followers = kFollowers;
  }
  co_await members(in, here, parenthesis ? ")" : "}", true, 0);
  in.end_call();
  in.commit();
  co_await closers(in, syntax.closer);
}

}  // namespace quire::dialects
