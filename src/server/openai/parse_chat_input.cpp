#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// The text of a message: a string, or a list of text parts (joined by line ends, as in vLLM).
std::string content_text(Fields& message, const std::string& path) {
  const json::value* content = message.find("content");
  if (content == nullptr) return {};
  if (content->is_string()) return std::string(as_view(content->get_string()));
  if (!content->is_array()) {
    message.fail("content", "must be a string or a list of parts");
    return {};
  }
  std::string text;
  for (size_t i = 0; i < content->get_array().size() && message.ok(); ++i) {
    const json::value& value = content->get_array()[i];
    const std::string part_path = path + "content[" + std::to_string(i) + "]";
    if (i > 0) text += '\n';
    if (value.is_string()) {
      text += as_view(value.get_string());
      continue;
    }
    if (!value.is_object()) {
      message.fail(ApiError{400, "`" + part_path + "` must be an object", part_path});
      break;
    }
    Fields part(value.get_object(), part_path + ".");
    const std::string type = part.string("type").value_or("");
    const auto body = type == "text" ? part.string("text") : std::nullopt;
    if (type != "text") {
      part.fail("type",
                "\"" + type.substr(0, 32) + "\" is not supported: this model reads text only");
    } else if (!body) {
      part.fail("text", "is required");
    }
    if (!part.ok()) message.fail(part.error());
    text += body.value_or("");
  }
  return text;
}

// Templates walk through a call's arguments; clients send them as JSON text.
void unpack_tool_calls(Fields& message, json::object& out, const ParseContext& context) {
  const json::array* calls = message.array("tool_calls", context.limits.max_tools);
  if (calls == nullptr) return;
  for (json::value& call : out["tool_calls"].as_array()) {
    json::value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object())
      return message.fail("tool_calls", "must be a list of objects with a `function`");
    json::value& arguments = function->get_object()["arguments"];
    if (!arguments.is_string()) continue;
    const std::string_view text = as_view(arguments.get_string());
    JsonLimits limits;
    limits.max_depth = context.limits.max_json_depth;
    auto parsed = parse_json(text.empty() ? std::string_view("{}") : text, limits);
    if (!parsed) return message.fail("tool_calls", "has arguments that are not JSON");
    arguments = std::move(*parsed);
  }
}

void parse_messages(Fields& fields, const ParseContext& context, ChatInput& out) {
  const json::array* messages = fields.array("messages", kAny);
  if (messages == nullptr) {
    if (!fields.has("messages")) fields.fail("messages", "is required");
    return;
  }
  if (messages->empty()) return fields.fail("messages", "must not be empty");
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    const std::string path = "messages[" + std::to_string(i) + "].";
    if (!(*messages)[i].is_object()) return fields.fail("messages", "must be a list of objects");
    const json::object& given = (*messages)[i].get_object();
    Fields message(given, path);
    if (message.string("role").value_or("").empty()) message.fail("role", "is required");
    json::object kept = given;
    kept["content"] = content_text(message, path);
    if (message.has("tool_calls")) unpack_tool_calls(message, kept, context);
    if (!message.ok()) return fields.fail(message.error());
    out.messages.push_back(std::move(kept));
  }
}

void parse_tools(Fields& fields, const ParseContext& context, ChatInput& out) {
  const json::array* tools = fields.array("tools", context.limits.max_tools);
  if (tools == nullptr || tools->empty()) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string path = "tools[" + std::to_string(i) + "]";
    if (!(*tools)[i].is_object()) return fields.fail("tools", "must be a list of objects");
    Fields tool((*tools)[i].get_object(), path + ".");
    if (tool.string("type").value_or("function") != "function")
      tool.fail("type", "must be \"function\"");
    const json::object* function = tool.object("function");
    if (function == nullptr) {
      tool.fail("function", "is required");
    } else {
      Fields inner(*function, path + ".function.");
      if (inner.string("name").value_or("").empty()) inner.fail("name", "is required");
      if (!inner.ok()) tool.fail(inner.error());
    }
    if (!tool.ok()) return fields.fail(tool.error());
  }
  out.tools = *tools;
}

void parse_template_kwargs(Fields& fields, ChatInput& out) {
  if (const auto* kwargs = fields.object("chat_template_kwargs")) out.template_kwargs = *kwargs;
  // What has a field of its own must come through that field and its checks; above all a template.
  for (const char* key : {"chat_template", "messages", "conversation", "tools", "documents",
                          "add_generation_prompt", "continue_final_message", "tokenize"}) {
    if (out.template_kwargs.contains(key))
      fields.fail("chat_template_kwargs", "must not contain `" + std::string(key) + "`");
  }
  if (auto effort = fields.string("reasoning_effort"))
    out.template_kwargs["reasoning_effort"] = *effort;
}

}  // namespace

void parse_chat_input(Fields& fields, const ParseContext& context, ChatInput& out) {
  parse_messages(fields, context, out);
  parse_tools(fields, context, out);
  if (const auto* documents = fields.array("documents", kAny)) {
    for (const auto& document : *documents)
      if (!document.is_object()) fields.fail("documents", "must be a list of objects");
    out.documents = *documents;
  }
  parse_template_kwargs(fields, out);
  out.chat_template = fields.string("chat_template");
  if (out.chat_template && !context.trust_request_chat_template) {
    fields.fail("chat_template",
                "is only accepted by servers started with --trust-request-chat-template");
  }
  out.continue_final_message = fields.flag("continue_final_message", false);
  out.add_generation_prompt = fields.flag("add_generation_prompt", !out.continue_final_message);
  if (out.continue_final_message && out.add_generation_prompt) {
    fields.fail("continue_final_message",
                "and `add_generation_prompt` cannot be true at the same time");
  }
}

}  // namespace quire::server::openai
