#include "server/anthropic/parse.h"

namespace quire::server::anthropic {
namespace {

using openai::ChatRequest;
using openai::Fields;
using openai::ParseContext;

// Models differ in what they can do of this, and agents always send it: what cannot be done is left
// out.
void parse_thinking(Fields& fields, ChatRequest& out) {
  openai::ReasoningWish& wish = out.chat.reasoning;
  wish.is_hint = true;
  const json::object* thinking = fields.object("thinking");
  if (thinking == nullptr) return;
  Fields inner(*thinking, "thinking.");
  inner.only({"type", "budget_tokens", "display"});
  const std::string type = inner.string("type").value_or("");
  const auto budget = inner.integer("budget_tokens", 1, std::numeric_limits<int32_t>::max());
  const std::string display = inner.string("display").value_or("summarized");
  if (display != "summarized" && display != "omitted")
    inner.fail("display", "must be \"summarized\" or \"omitted\"");
  if (type == "enabled") {
    if (!budget) inner.fail("budget_tokens", "is required when thinking is enabled");
    wish.thinking = true;
    wish.thinking_field = "thinking";
    out.thinking_budget = budget;
    out.thinking_budget_field = "thinking.budget_tokens";
  } else if (type == "disabled") {
    wish.thinking = false;
    wish.thinking_field = "thinking";
  } else if (type != "adaptive") {
    inner.fail("type", "must be \"enabled\", \"disabled\" or \"adaptive\"");
  }
  out.include_reasoning = type != "disabled" && display != "omitted";
  if (!inner.ok()) fields.fail(inner.error());
}

// {"type": "json_schema", "schema": {..}}
void parse_format(Fields& source, const char* key, ChatRequest& out) {
  const json::object* format = source.object(key);
  if (format == nullptr) return;
  Fields inner(*format, source.name(key) + ".");
  inner.only({"type", "schema"});
  if (inner.string("type").value_or("") != "json_schema")
    inner.fail("type", "must be \"json_schema\"");
  if (const json::object* schema = inner.object("schema")) {
    out.constraint = openai::Constraint{text::GrammarSpec::Kind::kJsonSchema, dump_json(*schema),
                                        inner.name("schema")};
  } else {
    inner.missing("schema");
  }
  if (!inner.ok()) source.fail(inner.error());
}

void parse_output(Fields& fields, ChatRequest& out) {
  parse_format(fields, "output_format", out);
  const json::object* config = fields.object("output_config");
  if (config == nullptr) return;
  Fields inner(*config, "output_config.");
  inner.only({"effort", "format"});
  const auto effort = inner.string("effort");
  if (effort && *effort != "low" && *effort != "medium" && *effort != "high" &&
      *effort != "xhigh" && *effort != "max")
    inner.fail("effort", "must be low, medium, high, xhigh or max");
  out.chat.reasoning.effort = effort;
  out.chat.reasoning.effort_field = "output_config.effort";
  parse_format(inner, "format", out);
  if (!inner.ok()) fields.fail(inner.error());
}

Result<ChatRequest, ApiError> parse(std::string_view body, const ParseContext& context,
                                    bool generates) {
  auto object = openai::parse_body(body, context);
  if (!object) return Err{std::move(object).error()};
  Fields fields(*object);
  ChatRequest out;
  out.api = openai::GenerationRequest::Api::kMessages;
  out.cuts_max_tokens = true;
  out.add_special_tokens = false;
  out.unknown_fields = check_fields(fields, openai::kMessages);
  parse_model(fields, out);
  out.stream = fields.flag("stream", false);
  parse_sampling(fields, context, out);
  parse_stops(fields, "stop_sequences", context, out);
  parse_scheduling(fields, context, out);
  out.max_tokens = fields.integer("max_tokens", 1);
  if (generates && !fields.has("max_tokens")) fields.missing("max_tokens");
  check_min_tokens(fields, out);
  parse_turns(fields, context, out);
  parse_tools(fields, context, out);
  parse_thinking(fields, out);
  parse_output(fields, out);
  // More than all that may come is no limit.
  if (out.thinking_budget && out.max_tokens && *out.thinking_budget >= *out.max_tokens)
    out.thinking_budget.reset();
  out.needs_grammar = out.constraint || out.requires_calls || out.has_strict_tools ||
                      out.thinking_budget.has_value();
  if (!fields.ok()) return Err{fields.error()};
  return out;
}

}  // namespace

Result<ChatRequest, ApiError> parse_messages(std::string_view body, const ParseContext& context) {
  return parse(body, context, true);
}

Result<ChatRequest, ApiError> parse_count_tokens(std::string_view body,
                                                 const ParseContext& context) {
  return parse(body, context, false);
}

}  // namespace quire::server::anthropic
