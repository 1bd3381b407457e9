#include "dialects/tagged_values.h"

#include <algorithm>

#include "dialects/json_text.h"

namespace quire::dialects {
namespace {

constexpr int kMostClosers = 4;

Task<bool> comes_next(Reader& in, std::span<const std::string_view> texts) {
  const size_t begin = in.at();
  for (const std::string_view text : texts) {
    const bool found = co_await accept(in, text);
    in.rewind(begin);
    if (found) co_return true;
  }
  co_return false;
}

// A closer counts only where the structure goes on: a file that holds the same tag is a value, too.
Task<bool> closes_here(Reader& in, const ValueEnd& end) {
  const size_t begin = in.at();
  for (int i = 0; i < kMostClosers; ++i) {
    bool found;
    if (i == 0) {
      found = co_await accept(in, end.closer);
    } else {
      found = co_await accept_spaced(in, end.closer);
    }
    if (!found) break;
  }
  const bool any = in.at() > begin;
  const size_t after = in.at();
  bool closes = false;
  if (any) {
    co_await skip_space(in);
    const int following = co_await in.peek();
    closes = following == Reader::kEnd;
    if (!closes) closes = co_await comes_next(in, end.followers);
    in.rewind(closes ? after : begin);
  } else {
    closes = co_await comes_next(in, end.instead);
  }
  co_return closes;
}

// At the end of a text that was cut: what is left may be the beginning of a tag.
bool may_become_closer(std::string_view rest, const ValueEnd& end) {
  if (end.closer.starts_with(rest)) return true;
  return std::any_of(end.instead.begin(), end.instead.end(),
                     [rest](std::string_view text) { return text.starts_with(rest); });
}

// Where a value goes: to the client, or aside until its type is known.
struct Sink {
  Reader& in;
  bool direct;
  std::string text;

  void add(std::string_view piece) {
    text += piece;
    if (!direct) return;
    std::string escaped;
    append_escaped(escaped, text);
    in.arguments(escaped);
    text.clear();
  }
};

// The raw value, without the line ends that belong to the tags.
Task<> raw_value(Reader& in, const ValueEnd& end, Sink& sink) {
  std::string held;  // a line end that may belong to the closer
  bool first = true;
  for (;;) {
    int byte = co_await in.peek();
    if (byte == Reader::kEnd) co_await in.fail();
    if (byte == end.closer.front()) {
      const bool closed = co_await closes_here(in, end);
      if (closed) co_return;
      if (in.reached_end() && may_become_closer(in.rest(), end)) co_await in.fail();
    }
    byte = co_await in.next();
    in.settle();
    const char piece = static_cast<char>(byte);
    if (!end.trim_line_ends || piece != '\n') {
      held += piece;
      sink.add(held);
      held.clear();
    } else if (!first) {
      sink.add(held);
      held.assign(1, '\n');
    }
    first = false;
  }
}

}  // namespace

void TaggedArguments::open_key(std::string_view key) {
  in_.arguments(any_ ? ", " : "{");
  any_ = true;
  in_.arguments(json_string(key) + ": ");
}

void TaggedArguments::close() { in_.arguments(any_ ? "}" : "{}"); }

Task<> tagged_value(Reader& in, const ValueEnd& end, std::string_view key) {
  const auto types = in.tools().types(in.call_name(), key);
  Sink sink{in, !types || types->only_string(), {}};
  if (sink.direct) in.arguments("\"");
  co_await raw_value(in, end, sink);
  if (sink.direct) {
    in.arguments("\"");
  } else {
    in.arguments(coerce(sink.text, *types));
  }
}

Task<> tagged_json_value(Reader& in, const ValueEnd& end) {
  Sink sink{in, false, {}};
  co_await raw_value(in, end, sink);
  const std::string_view text = trimmed(sink.text);
  in.arguments(is_json(text) ? std::string(text) : json_string(sink.text));
}

}  // namespace quire::dialects
