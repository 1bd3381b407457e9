// Anthropic's `tools` and `tool_choice` become those of a chat.
#include <algorithm>

#include "base/printable.h"
#include "server/anthropic/parse.h"

namespace quire::server::anthropic {
namespace {

using openai::Fields;

constexpr size_t kMaxNameBytes = 40;  // of a client's own, in an error

// Tools that Anthropic runs itself begin with these; a version follows.
constexpr std::string_view kServerTools[] = {"web_search_", "web_fetch_", "code_execution_",
                                             "tool_search_", "mcp_toolset"};

bool is_server_tool(std::string_view type) {
  return std::ranges::any_of(kServerTools,
                             [type](std::string_view prefix) { return type.starts_with(prefix); });
}

// {"name", "description", "input_schema"}. Nothing: an error was told.
std::optional<json::object> function_of(Fields& tool, openai::ChatRequest& out) {
  json::object function;
  check_function(tool, "input_schema");
  function["name"] = tool.string("name").value_or("");
  if (const auto description = tool.string("description")) function["description"] = *description;
  if (const json::object* schema = tool.object("input_schema")) {
    function["parameters"] = *schema;
  } else {
    tool.missing("input_schema");
  }
  if (tool.flag("strict", false)) function["strict"] = out.has_strict_tools = true;
  out.unknown_fields.add_others(
      tool.all(), {"type", "name", "description", "input_schema", "strict", "cache_control"},
      "tools[].");
  if (!tool.ok()) return std::nullopt;
  return function;
}

// The tools that the client runs.
json::array client_tools(Fields& fields, const json::array& list, openai::ChatRequest& out) {
  json::array tools;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) {
      fields.mistyped("tools", "must be a list of objects");
      return tools;
    }
    Fields tool(list[i].get_object(), "tools[" + std::to_string(i) + "].");
    const std::string type = tool.string("type").value_or("custom");
    if (is_server_tool(type)) {
      out.left_out_tools.add(type);
      continue;
    }
    if (type != "custom")
      tool.fail("type",
                "\"" + printable(type, kMaxNameBytes) +
                    "\" is not supported: only Anthropic's models know such a tool",
                "unsupported_value");
    auto function = function_of(tool, out);
    if (!function) {
      fields.fail(tool.error());
      return tools;
    }
    tools.push_back(json::object{{"type", "function"}, {"function", std::move(*function)}});
    out.chat.schema_fields.push_back(tool.name("input_schema"));
  }
  if (tools.empty() && !list.empty() && fields.ok())
    fields.fail("tools", "has only tools that this server would have to run itself",
                "unsupported_value");
  return tools;
}

bool is_offered(const openai::ChatRequest& request, std::string_view name) {
  return request.chat.tools && std::ranges::any_of(*request.chat.tools, [&](const auto& tool) {
           return openai::as_view(tool.at("function").at("name").get_string()) == name;
         });
}

// {"type": "auto" | "any" | "tool" | "none", "name", "disable_parallel_tool_use"}
void parse_choice(Fields& fields, openai::ChatRequest& out) {
  const json::object* choice = fields.object("tool_choice");
  if (choice == nullptr) return;
  Fields inner(*choice, "tool_choice.");
  inner.only({"type", "name", "disable_parallel_tool_use"});
  const std::string type = inner.string("type").value_or("");
  out.parallel_tool_calls = !inner.flag("disable_parallel_tool_use", false);
  out.requires_calls = type == "any" || type == "tool";
  if (type != "tool" && inner.has("name")) inner.fail("name", "needs `type` to be \"tool\"");
  if (type == "tool") {
    const auto name = inner.string("name");
    if (!name) inner.missing("name");
    if (name && !is_offered(out, *name))
      inner.fail("name", "names no tool of `tools`: " + printable(*name, kMaxNameBytes));
    out.callable.insert(name.value_or(""));
  } else if (type == "none") {
    out.chat.tools.reset();
    out.has_strict_tools = false;
  } else if (type != "auto" && type != "any") {
    inner.fail("type", "must be \"auto\", \"any\", \"tool\" or \"none\"");
  }
  if (out.requires_calls && !out.chat.tools) inner.fail("type", "needs `tools` that can be called");
  if (!inner.ok()) fields.fail(inner.error());
}

}  // namespace

void parse_tools(Fields& fields, const openai::ParseContext& context, openai::ChatRequest& out) {
  const json::array* list = fields.array("tools", context.limits.max_tools);
  if (list != nullptr && !list->empty()) {
    json::array tools = client_tools(fields, *list, out);
    if (!tools.empty()) out.chat.tools = std::move(tools);
  }
  parse_choice(fields, out);
  out.parses_calls = out.chat.tools.has_value();
}

}  // namespace quire::server::anthropic
