// The `tools` of a response become those of a chat, with the functions of namespaces among them.
#include <set>

#include "server/responses/parse.h"

namespace quire::server::responses {
namespace {

using openai::Fields;

class ToolReader {
 public:
  ToolReader(const openai::ParseContext& context, openai::ChatRequest& out,
             openai::ResponsesEcho& echo)
      : context_(context), out_(out), echo_(echo) {}

  // True: it can be offered. `space`: the namespace around it, if any.
  bool tool(Fields& tool, std::string_view space);
  json::array take() { return std::move(tools_); }

 private:
  void function(Fields& tool, std::string_view space);
  bool tools_inside(Fields& tool);

  const openai::ParseContext& context_;
  openai::ChatRequest& out_;
  openai::ResponsesEcho& echo_;
  json::array tools_;
  std::set<std::string> names_;
};

bool ToolReader::tool(Fields& tool, std::string_view space) {
  const std::string type = tool.string("type").value_or("");
  if (type.empty()) tool.missing("type");
  if (!tool.ok()) return false;
  if (type == "function") {
    function(tool, space);
    return true;
  }
  if (type == "namespace" && space.empty()) return tools_inside(tool);
  out_.left_out_tools.add(type);
  return false;
}

// {"type": "function", "name", "description", "parameters", "strict"}
void ToolReader::function(Fields& tool, std::string_view space) {
  check_function(tool, "parameters");
  const std::string own_name = tool.string("name").value_or("");
  const std::string name = placed_name(space, own_name);
  json::object function{{"name", name}};
  if (const auto description = tool.string("description")) function["description"] = *description;
  if (const json::object* schema = tool.object("parameters")) function["parameters"] = *schema;
  if (tool.flag("strict", false)) function["strict"] = true;
  out_.unknown_fields.add_others(
      tool.all(), {"type", "name", "description", "parameters", "strict"}, "tools[].");
  if (!names_.insert(name).second) tool.fail("name", "is that of two tools");
  if (static_cast<int64_t>(tools_.size()) == context_.limits.max_tools)
    tool.fail("name", "is that of one more tool than the " +
                          std::to_string(context_.limits.max_tools) + " that are allowed");
  if (!tool.ok()) return;
  if (!space.empty()) echo_.placed_tools[name] = {std::string(space), own_name};
  tools_.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  out_.chat.schema_fields.push_back(tool.name("parameters"));
}

// {"type": "namespace", "name", "tools": [..]}
bool ToolReader::tools_inside(Fields& tool) {
  openai::check_tool_name(tool);
  const std::string space = tool.string("name").value_or("");
  const json::array* list = tool.array("tools", context_.limits.max_tools);
  if (list == nullptr) tool.missing("tools");
  bool any = false;
  for (size_t i = 0; tool.ok() && i < list->size(); ++i) {
    const std::string path = tool.name("tools[" + std::to_string(i) + "].");
    if (!(*list)[i].is_object()) {
      tool.mistyped("tools", "must be a list of objects");
      break;
    }
    Fields inner((*list)[i].get_object(), path);
    any = this->tool(inner, space) || any;
    if (!inner.ok()) tool.fail(inner.error());
  }
  return any;
}

}  // namespace

std::string placed_name(std::string_view space, std::string_view name) {
  std::string out(space);
  if (!out.empty() && !out.ends_with("__")) out += "__";
  return out += name;
}

json::array parse_tools(Fields& fields, const openai::ParseContext& context,
                        openai::ChatRequest& out, openai::ResponsesEcho& echo) {
  json::array offered;
  const bool shows_tools = check_tool_choice(fields);
  const json::array* list = fields.array("tools", context.limits.max_tools);
  if (list == nullptr || list->empty()) return offered;
  ToolReader reader(context, out, echo);
  for (size_t i = 0; fields.ok() && i < list->size(); ++i) {
    if (!(*list)[i].is_object()) {
      fields.mistyped("tools", "must be a list of objects");
      break;
    }
    Fields tool((*list)[i].get_object(), "tools[" + std::to_string(i) + "].");
    if (reader.tool(tool, {})) offered.push_back((*list)[i]);
    if (!tool.ok()) fields.fail(tool.error());
  }
  json::array tools = reader.take();
  if (tools.empty()) {
    fields.fail("tools", "has no functions, and other tools are not supported",
                "unsupported_value");
  } else if (shows_tools) {
    out.chat.tools = std::move(tools);
  }
  return offered;
}

}  // namespace quire::server::responses
