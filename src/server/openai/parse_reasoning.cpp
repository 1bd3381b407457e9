// How clients ask for thinking: OpenAI's and OpenRouter's effort, vLLM's and DashScope's
// enable_thinking, Ollama's think, DeepSeek's thinking.
#include <algorithm>

#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max"};

// `source` holds the field; errors go to it.
class ReasoningParser {
 public:
  ReasoningParser(Fields& source, ReasoningWish& out) : source_(source), out_(out) {}

  void thinking(std::string_view key) {
    if (const auto wanted = source_.boolean(key)) set_thinking(key, *wanted);
  }

  void effort(std::string_view key) {
    const auto wanted = source_.string(key);
    if (!wanted) return;
    if (std::find(std::begin(kEfforts), std::end(kEfforts), *wanted) == std::end(kEfforts))
      return source_.fail(key, "must be none, minimal, low, medium, high, xhigh or max");
    if (out_.effort && *out_.effort != *wanted)
      return source_.fail(key, "contradicts `" + out_.effort_field + "`");
    out_.effort = *wanted;
    out_.effort_field = source_.name(key);
  }

  void thinking_or_effort(std::string_view key) {
    const json::value* value = source_.find(key);
    if (value != nullptr && value->is_string()) return effort(key);
    thinking(key);
  }

  // {"type": "enabled"}
  void thinking_type() {
    const std::string type = source_.string("type").value_or("");
    if (type != "enabled" && type != "disabled")
      return source_.fail("type", "must be \"enabled\" or \"disabled\"");
    set_thinking("type", type == "enabled");
  }

  void budget(std::string_view key) {
    const auto wanted = source_.integer(key, 0, std::numeric_limits<int32_t>::max());
    if (!wanted) return;
    if (out_.budget && *out_.budget != *wanted)
      return source_.fail(key, "contradicts `" + out_.budget_field + "`");
    out_.budget = *wanted;
    out_.budget_field = source_.name(key);
  }

 private:
  void set_thinking(std::string_view key, bool wanted) {
    if (out_.thinking && *out_.thinking != wanted)
      return source_.fail(key, "contradicts `" + out_.thinking_field + "`");
    out_.thinking = wanted;
    out_.thinking_field = source_.name(key);
  }

  Fields& source_;
  ReasoningWish& out_;
};

}  // namespace

void parse_effort(Fields& fields, std::string_view key, ReasoningWish& out) {
  ReasoningParser(fields, out).effort(key);
}

void parse_reasoning(Fields& fields, ReasoningWish& out) {
  ReasoningParser top(fields, out);
  top.effort("reasoning_effort");
  top.thinking("enable_thinking");
  top.thinking_or_effort("think");
  if (const json::object* thinking = fields.object("thinking")) {
    Fields inner(*thinking, "thinking.");
    ReasoningParser parser(inner, out);
    parser.thinking_type();
    parser.budget("budget_tokens");
    inner.only({"type", "budget_tokens"});
    if (!inner.ok()) fields.fail(inner.error());
  }
  if (const json::object* reasoning = fields.object("reasoning")) {
    Fields inner(*reasoning, "reasoning.");
    ReasoningParser parser(inner, out);
    parser.effort("effort");
    parser.thinking("enabled");
    parser.budget("max_tokens");
    for (const char* key : {"summary", "generate_summary"}) inner.unsupported(key);
    out.exclude = inner.flag("exclude", false);
    inner.only({"effort", "enabled", "max_tokens", "summary", "generate_summary", "exclude"});
    if (!inner.ok()) fields.fail(inner.error());
  }
}

}  // namespace quire::server::openai
