#include "dialects/json_calls.h"

#include "dialects/json_text.h"

namespace quire::dialects {
namespace {

// What is known of a call whose name has not come yet.
struct Parts {
  std::string name, id, arguments;
  bool has_name = false, begun = false, has_arguments = false;
};

// One JSON value, as text in `out` or, if it is null, as the open call's arguments.
Task<> json_value(Reader& in, std::string* out) {
  JsonScanner scanner;
  for (;;) {
    const int byte = co_await in.peek();
    if (byte == Reader::kEnd) {
      if (!scanner.is_complete_at_end()) co_await in.fail();
      co_return;
    }
    const char piece = static_cast<char>(byte);
    const auto status = scanner.feed(piece);
    if (status == JsonScanner::Status::kInvalid) co_await in.fail();
    if (status == JsonScanner::Status::kDoneBefore) co_return;
    co_await in.next();
    if (out != nullptr) *out += piece;
    if (out == nullptr) in.arguments({&piece, 1});
    in.settle();
    if (status == JsonScanner::Status::kDone) co_return;
  }
}

Task<std::string> json_string_value(Reader& in) {
  std::string literal;
  co_await json_value(in, &literal);
  auto text = decode_json_string(trimmed(literal));
  if (!text) co_await in.fail();
  co_return std::move(*text);
}

// The object in a string or in a value that is no object; released if it cannot be one.
std::string unpacked(Reader& in, const std::string& value) {
  std::string text = value;
  if (const auto inner = decode_json_string(trimmed(value))) text = *inner;
  const std::string_view bare = trimmed(text);
  if (bare.empty() || bare == "null") return "{}";
  if (!bare.starts_with('{') || !is_json(bare)) in.release();
  return std::string(bare);
}

bool is_name(std::string_view key) { return key == "name" || key == "tool_name"; }
bool is_arguments(std::string_view key) { return key == "arguments" || key == "parameters"; }
bool is_id(std::string_view key) { return key == "id" || key == "tool_call_id"; }

void begin(Reader& in, Parts& call, const JsonCalls& syntax) {
  call.begun = true;
  if (!syntax.pseudo_tool.empty() && call.name == syntax.pseudo_tool) return;
  in.begin_call(call.name, call.id);
}

Task<> arguments_member(Reader& in, Parts& call) {
  if (call.has_arguments) co_await in.fail();
  call.has_arguments = true;
  const int first = co_await in.peek();
  if (first == '{' && call.begun) {
    co_await json_value(in, nullptr);
    co_return;
  }
  co_await json_value(in, &call.arguments);
  call.arguments = unpacked(in, call.arguments);
  if (!call.begun) co_return;
  in.arguments(call.arguments);
  call.arguments.clear();
}

Task<> call_object(Reader& in, const JsonCalls& syntax, Parts& call, int depth);

Task<> call_member(Reader& in, const JsonCalls& syntax, Parts& call, const std::string& key,
                   int depth) {
  const int first = co_await in.peek();
  const bool wraps = key == "function" && depth == 0;
  if (is_arguments(key)) {
    co_await arguments_member(in, call);
  } else if ((is_name(key) || wraps) && first == '"' && !call.has_name) {
    call.name = co_await json_string_value(in);
    call.has_name = true;
    begin(in, call, syntax);
  } else if (wraps && first == '{') {
    co_await call_object(in, syntax, call, depth + 1);
  } else {
    std::string value;
    const bool known = is_id(key) || key == "type" || key == "index";
    if (is_name(key) || (syntax.bare && !known)) in.release();
    co_await json_value(in, &value);
    if (is_id(key)) {
      const auto text = decode_json_string(trimmed(value));
      call.id = text ? *text : value;
    }
  }
}

Task<> call_object(Reader& in, const JsonCalls& syntax, Parts& call, int depth) {
  co_await expect(in, "{");
  bool first = true;
  for (;;) {
    co_await skip_space(in);
    const int byte = co_await in.peek();
    if (byte == '}' && first) break;
    first = false;
    if (byte != '"') co_await in.fail();
    const std::string key = co_await json_string_value(in);
    co_await skip_space(in);
    co_await expect(in, ":");
    co_await skip_space(in);
    co_await call_member(in, syntax, call, key, depth);
    co_await skip_space(in);
    const bool more = co_await accept(in, ",");
    if (!more) break;
  }
  co_await expect(in, "}");
  in.settle();
}

Task<> one_call(Reader& in, const JsonCalls& syntax) {
  Parts call;
  co_await call_object(in, syntax, call, 0);
  if (!call.has_name || (syntax.bare && !call.has_arguments)) in.release();
  if (!call.has_arguments) call.arguments = "{}";
  in.arguments(call.arguments);
  in.end_call();
}

Task<> call_list(Reader& in, const JsonCalls& syntax) {
  co_await expect(in, "[");
  bool any = false;
  for (;;) {
    co_await skip_space(in);
    const bool closed = co_await accept(in, "]");
    if (closed && !any) co_await in.fail();  // a turn must not end up empty
    if (closed) co_return;
    if (any) {
      co_await expect(in, ",");
      co_await skip_space(in);
    }
    co_await one_call(in, syntax);
    any = true;
  }
}

}  // namespace

Task<> closers(Reader& in, std::string_view closer, std::string_view other) {
  for (;;) {
    bool found = false;
    if (!closer.empty()) found = co_await accept_spaced(in, closer);
    if (!found && !other.empty()) found = co_await accept_spaced(in, other);
    if (!found) co_return;
  }
}

Task<> json_calls(Reader& in, const JsonCalls& syntax) {
  co_await skip_space(in);
  for (;;) {
    const int first = co_await in.peek();
    if (first == '[') {
      co_await call_list(in, syntax);
    } else {
      co_await one_call(in, syntax);
    }
    in.commit();
    // Several calls: `; ` or a comma between them, or (within one pair of markers) nothing.
    const size_t end = in.at();
    bool separated = co_await accept_spaced(in, ";");
    if (!separated) separated = co_await accept_spaced(in, ",");
    co_await skip_space(in);
    const int following = co_await in.peek();
    const bool more = following == '{' && (separated || !syntax.bare);
    if (!more) in.rewind(end);
    if (!more) break;
  }
  co_await closers(in, syntax.closer, syntax.other_closer);
}

Task<> fenced_json_calls(Reader& in) {
  static constexpr JsonCalls kBare{.bare = true};
  std::string language = co_await read_until(in, "\n", 16);
  co_await json_calls(in, kBare);
  co_await accept_spaced(in, "```");
}

Task<> json_arguments(Reader& in) {
  co_await skip_space(in);
  const int first = co_await in.peek();
  if (first == '{') {
    co_await json_value(in, nullptr);
  } else if (first == '"' || first == 'n') {
    std::string value;
    co_await json_value(in, &value);
    value = unpacked(in, value);
    in.arguments(value);
  } else if (first == '<' || first == '`' || (first == Reader::kEnd && !in.cut())) {
    in.arguments("{}");  // a tag follows, or nothing
  } else {
    co_await in.fail();
  }
}

}  // namespace quire::dialects
