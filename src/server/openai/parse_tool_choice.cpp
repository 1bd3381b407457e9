// Which tools an answer may or must call, and what becomes of its calls and its reasoning.
#include <algorithm>
#include <set>

#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

using Names = std::set<std::string_view>;

Names offered_names(const ChatInput& chat) {
  Names names;
  if (!chat.tools) return names;
  for (const json::value& tool : *chat.tools)
    names.insert(as_view(tool.at("function").at("name").get_string()));
  return names;
}

// {"type": "function", "function": {"name": ..}}, also without the object around the name.
void add_callable(Fields& choice, const Names& offered, ChatRequest& out) {
  if (choice.string("type").value_or("function") != "function")
    return choice.fail("type", "must be \"function\"");
  std::optional<std::string> name;
  const char* blamed = choice.has("function") || !choice.has("name") ? "function" : "name";
  out.unknown_fields.add_others(choice.all(), {"type", "function", "name"}, choice.name(""));
  if (const json::object* function = choice.object("function")) {
    Fields inner(*function, choice.name("function."));
    out.unknown_fields.add_others(*function, {"name"}, choice.name("function."));
    name = inner.string("name");
    if (!inner.ok()) choice.fail(inner.error());
  } else {
    name = choice.string("name");
  }
  if (!name) return choice.fail("function", "with a `name` is required");
  if (!offered.contains(*name))
    return choice.fail(blamed, "names no tool of `tools`: " + name->substr(0, 64));
  out.callable.insert(std::move(*name));
}

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}, or of /v1/responses without the
// object around the two.
void parse_allowed_tools(Fields& choice, const ParseContext& context, ChatRequest& out) {
  const bool is_flat = choice.has("tools");
  const json::object* allowed = is_flat ? &choice.all() : choice.object("allowed_tools");
  if (allowed == nullptr) return choice.missing("allowed_tools");
  Fields inner(*allowed, is_flat ? choice.name("") : choice.name("allowed_tools."));
  const std::string mode = inner.string("mode").value_or("auto");
  out.unknown_fields.add_others(choice.all(), {"type", "allowed_tools", "mode", "tools"},
                                choice.name(""));
  if (!is_flat) out.unknown_fields.add_others(*allowed, {"mode", "tools"}, inner.name(""));
  if (mode != "auto" && mode != "required") inner.fail("mode", "must be \"auto\" or \"required\"");
  out.requires_calls = mode == "required";
  const json::array* tools = inner.array("tools", context.limits.max_tools);
  if (tools == nullptr) {
    inner.missing("tools");
  } else if (tools->empty()) {
    inner.empty_list("tools");
  }
  const Names offered = offered_names(out.chat);
  for (size_t i = 0; inner.ok() && i < tools->size(); ++i) {
    if (!(*tools)[i].is_object()) {
      inner.mistyped("tools", "must be a list of objects");
      break;
    }
    Fields tool((*tools)[i].get_object(), inner.name("tools[" + std::to_string(i) + "]."));
    add_callable(tool, offered, out);
    if (!tool.ok()) inner.fail(tool.error());
  }
  if (!inner.ok()) choice.fail(inner.error());
}

// parse_chat_input has looked at its type.
void parse_tool_choice(Fields& fields, const ParseContext& context, ChatRequest& out) {
  const json::value* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    out.requires_calls = *choice == "required";
  } else if (choice->is_object()) {
    Fields inner(choice->get_object(), "tool_choice.");
    if (inner.string("type").value_or("function") == "allowed_tools") {
      parse_allowed_tools(inner, context, out);
    } else {
      add_callable(inner, offered_names(out.chat), out);
      out.requires_calls = true;
    }
    if (!inner.ok()) return fields.fail(inner.error());
  }
  if (out.requires_calls && !out.chat.tools)
    fields.fail("tool_choice", "needs `tools` that can be called");
}

void note_strict_tools(Fields& fields, ChatRequest& out) {
  if (!out.chat.tools) return;
  for (const json::value& tool : *out.chat.tools) {
    const json::value* strict = tool.at("function").get_object().if_contains("strict");
    if (strict == nullptr || strict->is_null()) continue;
    if (!strict->is_bool()) return fields.fail("tools", "has a `strict` that is no boolean");
    out.has_strict_tools = out.has_strict_tools || strict->get_bool();
  }
}

// vLLM's, DashScope's and llama-server's names.
void parse_thinking_budget(Fields& fields, ChatRequest& out) {
  const auto set = [&](const std::string& key, std::optional<int64_t> budget) {
    if (!budget || *budget == -1) return;
    if (out.thinking_budget && *out.thinking_budget != *budget)
      return fields.fail(key, "contradicts `" + out.thinking_budget_field + "`");
    out.thinking_budget = budget;
    out.thinking_budget_field = key;
  };
  for (const char* key :
       {"thinking_token_budget", "thinking_budget", "thinking_budget_tokens", "reasoning_budget"})
    set(key, fields.integer(key, -1, std::numeric_limits<int32_t>::max()));
  set(out.chat.reasoning.budget_field, out.chat.reasoning.budget);
}

}  // namespace

void parse_answer_form(Fields& fields, const ParseContext& context, ChatRequest& out) {
  parse_tool_choice(fields, context, out);
  note_strict_tools(fields, out);
  parse_thinking_budget(fields, out);
  out.parses_calls = fields.flag("parse_tool_calls", true) && out.chat.tools.has_value();
  out.parallel_tool_calls = fields.flag("parallel_tool_calls", true);
  out.include_reasoning = fields.flag("include_reasoning", true) && !out.chat.reasoning.exclude;
  out.parses_reasoning = fields.flag("separate_reasoning", true);
  const std::string format = fields.string("reasoning_format").value_or("auto");
  if (format == "none") {
    out.parses_reasoning = false;
  } else if (format != "auto" && format != "deepseek") {
    fields.fail("reasoning_format", "must be none, auto or deepseek");
  }
  if (out.requires_calls || out.has_strict_tools || out.thinking_budget) out.needs_grammar = true;
}

}  // namespace quire::server::openai
