#include "dialects/named_calls.h"

#include "dialects/json_calls.h"
#include "dialects/json_text.h"

namespace quire::dialects {
namespace {

// f[CALL_ID]x[ARGS]{..}, f[ARGS]{..} or f{..}.
Task<> mistral_named_call(Reader& in) {
  std::string name, id;
  for (;;) {
    const bool arguments = co_await accept(in, "[ARGS]");
    if (arguments) break;
    const bool has_id = co_await accept(in, "[CALL_ID]");
    if (has_id) {
      id = co_await read_until(in, "[ARGS]");
      break;
    }
    const int byte = co_await in.peek();
    if (byte == '{') break;
    if (byte == Reader::kEnd || byte == '[' || name.size() == 256) co_await in.fail();
    name += static_cast<char>(byte);
    co_await in.next();
  }
  in.begin_call(name, trimmed(id));
  co_await json_arguments(in);
  in.end_call();
  in.commit();
}

}  // namespace

Task<> mistral_calls(Reader& in) {
  static constexpr JsonCalls kJson{};
  co_await skip_space(in);
  const int first = co_await in.peek();
  if (first == '[' || first == '{') {
    co_await json_calls(in, kJson);
  } else {
    co_await mistral_named_call(in);
  }
}

namespace {

constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>", kCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kSep = "<｜tool▁sep｜>", kCallsEnd = "<｜tool▁calls▁end｜>";

// function<sep>f, line end, a fence with JSON (V3, R1); or f<sep>{..} (V3.1). Models mix them.
Task<> deepseek_body(Reader& in) {
  std::string name = co_await read_until(in, kSep);
  const int first = co_await in.peek();
  bool fenced = false;
  if (first != '{') {
    const std::string kind = name;
    name = co_await read_until(in, "\n");
    if (trimmed(kind) != "function") co_await in.fail();
    fenced = co_await accept_spaced(in, "```");
    co_await accept_spaced(in, "json");
  }
  in.begin_call(name);
  co_await json_arguments(in);
  in.end_call();
  if (fenced) co_await accept_spaced(in, "```");
  co_await closers(in, kCallEnd);
  in.commit();
}

}  // namespace

Task<> deepseek_call(Reader& in) {
  co_await deepseek_body(in);
  for (;;) {
    const bool more = co_await accept_spaced(in, kCallBegin);
    if (!more) break;
    co_await deepseek_body(in);
  }
  co_await closers(in, kCallsEnd);
}

Task<> deepseek_calls(Reader& in) {
  co_await skip_space(in);
  co_await expect(in, kCallBegin);
  co_await deepseek_call(in);
}

namespace {

constexpr std::string_view kKimiBegin = "<|tool_call_begin|>", kKimiEnd = "<|tool_call_end|>";
constexpr std::string_view kKimiArguments = "<|tool_call_argument_begin|>";
constexpr std::string_view kKimiSectionEnd = "<|tool_calls_section_end|>";
constexpr std::string_view kKimiOtherEnd = "<|tool_call_section_end|>";

// The tool of an id: "functions.f:0", and what models make of it ("f:0", "functions.f").
std::string_view kimi_name(std::string_view id) {
  if (id.starts_with("functions.")) id.remove_prefix(10);
  const size_t colon = id.rfind(':');
  if (colon != std::string_view::npos &&
      id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos)
    id = id.substr(0, colon);
  return id;
}

Task<> kimi_body(Reader& in) {
  const std::string read = co_await read_until(in, kKimiArguments);
  const std::string_view id = trimmed(read);
  in.begin_call(kimi_name(id), id);
  co_await json_arguments(in);
  in.end_call();
  co_await closers(in, kKimiEnd);
  in.commit();
}

}  // namespace

Task<> kimi_call(Reader& in) {
  co_await kimi_body(in);
  for (;;) {
    const bool more = co_await accept_spaced(in, kKimiBegin);
    if (!more) break;
    co_await kimi_body(in);
  }
  co_await closers(in, kKimiSectionEnd, kKimiOtherEnd);
}

Task<> kimi_calls(Reader& in) {
  co_await skip_space(in);
  co_await expect(in, kKimiBegin);
  co_await kimi_call(in);
}

namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kHeaderMarks[] = {"<|start|>", "<|channel|>", "<|constrain|>"};

// The word after `key` in a header, up to a blank or a marker.
std::string_view header_word(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view word = header.substr(at + key.size());
  return word.substr(0, word.find_first_of(" \n<"));
}

// A message begins with a role, a channel or a recipient; anything else is no header.
Task<bool> begins_header(Reader& in) {
  static constexpr std::string_view kBegins[] = {"<|start|>", "<|channel|>",
                                                 " to=", "to=", "assistant"};
  const size_t begin = in.at();
  for (const std::string_view text : kBegins) {
    const bool found = co_await accept(in, text);
    in.rewind(begin);
    if (found) co_return true;
  }
  co_return false;
}

}  // namespace

Task<> harmony_message(Reader& in) {
  const bool is_header = co_await begins_header(in);
  if (!is_header) co_await in.fail();
  const std::string header = co_await read_until(in, kMessage);
  const std::string_view channel = header_word(header, kHeaderMarks[1]);
  std::string_view recipient = header_word(header, "to=");
  if (recipient.empty() || recipient == "assistant") {
    in.continue_as(channel == "analysis" ? After::kReasoning : After::kContent);
    co_return;
  }
  if (recipient.starts_with("functions.")) recipient.remove_prefix(10);
  in.begin_call(recipient);
  co_await json_arguments(in);
  in.end_call();
  in.commit();
}

}  // namespace quire::dialects
