#include <algorithm>

#include "server/openai/parse.h"
#include "server/request_size.h"

namespace quire::server::openai {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr std::string_view kPartPath = "messages[].content[].";  // of keys, for the log

// Mistral's thoughts: a list of texts.
std::string joined_chunks(Fields& part, std::string_view key, const json::array& chunks) {
  std::string text;
  for (const json::value& chunk : chunks) {
    const json::value* inner = chunk.is_object() ? chunk.get_object().if_contains("text") : nullptr;
    if (inner == nullptr || !inner->is_string()) {
      part.mistyped(key, "must be a string or a list of texts");
      break;
    }
    text += as_view(inner->get_string());
  }
  return text;
}

// The text of one part of a message's content; that of a "thinking" part goes to `reasoning`. Keys
// that nobody reads are added to `unread`.
std::string part_text(Fields& part, std::string& reasoning, UnknownFields& unread) {
  const std::string type = part.string("type").value_or("");
  const char* key = type == "text"                              ? "text"
                    : type == "refusal"                         ? "refusal"
                    : type == "thinking" || type == "reasoning" ? "thinking"
                                                                : nullptr;
  if (key == nullptr) {
    part.fail("type",
              "\"" + type.substr(0, 32) + "\" is not supported: this model reads text only");
    return {};
  }
  if (type == "reasoning") key = part.has("text") ? "text" : "reasoning";
  const json::value* value = part.find(key);
  std::string text;
  if (value != nullptr && value->is_array() && type == "thinking") {
    text = joined_chunks(part, key, value->get_array());
  } else if (auto given = part.string(key)) {
    text = std::move(*given);
  } else {
    part.missing(key);
  }
  if (type == "text" || type == "refusal") {
    unread.add_others(part.all(), {"type", key, "cache_control"}, kPartPath);
    return text;
  }
  unread.add_others(part.all(), {"type", key, "signature", "closed", "cache_control"}, kPartPath);
  reasoning += text;
  return {};
}

// The text of a message: a string, or a list of parts, of which those with text are joined by line
// ends, as in vLLM. They are kept in `parts`, too.
std::string content_text(Fields& message, const std::string& path, std::string& reasoning,
                         json::array& parts, UnknownFields& unread) {
  const json::value* content = message.find("content");
  if (content == nullptr) return {};
  if (content->is_string()) return std::string(as_view(content->get_string()));
  if (!content->is_array()) {
    message.mistyped("content", "must be a string or a list of parts");
    return {};
  }
  std::string text;
  bool any = false;
  for (size_t i = 0; i < content->get_array().size() && message.ok(); ++i) {
    const json::value& value = content->get_array()[i];
    const std::string part_path = path + "content[" + std::to_string(i) + "]";
    std::string piece;
    const size_t thought = reasoning.size();
    if (value.is_string()) {
      piece = as_view(value.get_string());
    } else if (value.is_object()) {
      Fields part(value.get_object(), part_path + ".");
      piece = part_text(part, reasoning, unread);
      if (!part.ok()) message.fail(part.error());
    } else {
      message.fail(ApiError{400, "`" + part_path + "` must be an object", part_path, kInvalidType});
    }
    if (reasoning.size() > thought) continue;
    if (std::exchange(any, true)) text += '\n';
    text += piece;
    parts.push_back(json::object{{"type", "text"}, {"text", piece}});
  }
  return text;
}

void unpack_tool_calls(Fields& message, json::object& kept, const ParseContext& context,
                       ChatInput& out) {
  const json::array* calls = message.array("tool_calls", context.limits.max_tools);
  if (calls == nullptr) return;
  for (json::value& call : kept["tool_calls"].as_array()) {
    json::value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object())
      return message.mistyped("tool_calls", "must be a list of objects with a `function`");
    out.message_keys.add_others(call.get_object(), {"id", "type", "function", "index"},
                                "tool_calls[].");
    out.message_keys.add_others(function->get_object(), {"name", "arguments"},
                                "tool_calls[].function.");
    unpack_arguments(message, function->get_object()["arguments"], context, out);
    if (!message.ok()) return;
  }
}

// What a model thought in an earlier turn, by whatever name the client sends it back. Templates
// know it as reasoning_content, a few as reasoning.
void collect_reasoning(Fields& message, std::string from_parts, json::object& kept) {
  std::string text = std::move(from_parts);
  for (const char* key : {"thinking", "reasoning", "reasoning_content"})
    if (auto given = message.string(key); given && !given->empty()) text = std::move(*given);
  kept.erase("reasoning");
  kept.erase("reasoning_content");
  if (text.empty()) return;
  kept["reasoning"] = text;
  kept["reasoning_content"] = text;
}

// Keys that are not read here stay in the message: some template may know them.
void note_keys(const json::object& message, UnknownFields& out) {
  out.add_others(message, {"role", "content", "name", "tool_calls", "tool_call_id",
                           "reasoning_content", "reasoning", "thinking", "refusal", "annotations",
                           "function_call", "audio", "images", "videos"});
}

void parse_messages(Fields& fields, const ParseContext& context, ChatInput& out) {
  const json::array* messages = fields.array("messages", kAny);
  if (messages == nullptr) {
    if (!fields.has("messages")) fields.missing("messages");
    return;
  }
  if (messages->empty()) return fields.empty_list("messages");
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    const std::string path = "messages[" + std::to_string(i) + "].";
    if (!(*messages)[i].is_object())
      return fields.mistyped("messages", "must be a list of objects");
    const json::object& given = (*messages)[i].get_object();
    Fields message(given, path);
    if (message.string("role").value_or("").empty()) message.missing("role");
    message.unsupported("function_call");  // `tool_calls` is what templates read
    message.unsupported("audio");
    for (const char* key : {"images", "videos"})  // Ollama's
      message.unsupported_unless(key, json::array());
    note_keys(given, out.message_keys);
    json::object kept = given;
    std::string reasoning;
    json::array parts;
    kept["content"] = content_text(message, path, reasoning, parts, out.unread_keys);
    if (!parts.empty()) out.parts.emplace_back(i, std::move(parts));
    if (message.has("tool_calls")) unpack_tool_calls(message, kept, context, out);
    collect_reasoning(message, std::move(reasoning), kept);
    if (!message.ok()) return fields.fail(message.error());
    out.messages.push_back(std::move(kept));
  }
}

void parse_tools(Fields& fields, const ParseContext& context, ChatInput& out) {
  const json::array* tools = fields.array("tools", context.limits.max_tools);
  const bool shows_tools = check_tool_choice(fields);
  if (tools == nullptr || tools->empty()) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string path = "tools[" + std::to_string(i) + "]";
    if (!(*tools)[i].is_object()) return fields.mistyped("tools", "must be a list of objects");
    Fields tool((*tools)[i].get_object(), path + ".");
    if (tool.string("type").value_or("function") != "function")
      tool.fail("type", "must be \"function\"");
    const json::object* function = tool.object("function");
    if (function == nullptr) {
      tool.missing("function");
    } else {
      Fields inner(*function, path + ".function.");
      check_function(inner, "parameters");
      if (!inner.ok()) tool.fail(inner.error());
    }
    if (!tool.ok()) return fields.fail(tool.error());
  }
  if (shows_tools) out.tools = *tools;
}

void parse_template_kwargs(Fields& fields, ChatInput& out) {
  if (const auto* kwargs = fields.object("chat_template_kwargs")) out.template_kwargs = *kwargs;
  // What has a field of its own must come through that field and its checks; above all a template.
  for (const char* key : {"chat_template", "messages", "conversation", "tools", "documents",
                          "add_generation_prompt", "continue_final_message", "tokenize"}) {
    if (out.template_kwargs.contains(key))
      fields.fail("chat_template_kwargs", "must not contain `" + std::string(key) + "`");
  }
}

}  // namespace

void unpack_arguments(Fields& owner, json::value& arguments, const ParseContext& context,
                      ChatInput& out) {
  if (arguments.is_null()) arguments = json::object();
  if (!arguments.is_string()) return;
  const std::string_view text = as_view(arguments.get_string());
  JsonLimits limits;
  limits.max_depth = context.limits.max_json_depth;
  limits.max_members = context.limits.max_json_members;
  limits.budget = context.budget;
  if (context.charge_parsing)
    if (auto refused = context.charge_parsing(text)) return owner.fail(std::move(*refused));
  auto parsed = parse_json(text.empty() ? std::string_view("{}") : text, limits);
  if (parsed && parsed->is_object()) {
    arguments = std::move(*parsed);
  } else {
    out.has_text_arguments = true;
  }
}

bool check_tool_choice(Fields& fields) {
  const json::value* choice = fields.find("tool_choice");
  if (choice == nullptr) return true;
  if (!choice->is_object() && *choice != "auto" && *choice != "none" && *choice != "required") {
    fields.fail("tool_choice",
                "must be \"auto\", \"none\", \"required\", a tool or `allowed_tools`");
  }
  return *choice != "none";
}

void check_tool_name(Fields& owner) {
  constexpr size_t kLongestName = 256;
  const std::string name = owner.string("name").value_or("");
  if (name.empty()) return owner.missing("name");
  if (name.size() > kLongestName)
    return owner.fail("name", "is longer than " + std::to_string(kLongestName) + " bytes",
                      "string_above_max_length");
  const auto needs_escape = [](unsigned char c) {
    return c < 0x20 || c == 0x7F || c == '"' || c == '\\' || c == '<' || c == '>';
  };
  if (std::ranges::any_of(name, needs_escape))
    owner.fail("name", "must not have control characters, quotes, \\, < or >");
}

void check_function(Fields& function, std::string_view schema) {
  check_tool_name(function);
  if (!function.ok()) return;
  const json::object* parameters = function.object(schema);
  if (parameters == nullptr) return;
  const json::value* type = parameters->if_contains("type");
  const bool admits_object =
      type == nullptr || *type == "object" ||
      (type->is_array() &&
       std::ranges::find(type->get_array(), json::value("object")) != type->get_array().end());
  if (!admits_object) function.fail(schema, "must be a schema of type \"object\"");
}

void parse_chat_input(Fields& fields, const ParseContext& context, ChatInput& out) {
  parse_messages(fields, context, out);
  parse_tools(fields, context, out);
  if (const auto* documents = fields.array("documents", kAny)) {
    for (const auto& document : *documents)
      if (!document.is_object()) fields.mistyped("documents", "must be a list of objects");
    out.documents = *documents;
  }
  parse_template_kwargs(fields, out);
  parse_reasoning(fields, out.reasoning);
  out.chat_template = fields.string("chat_template");
  if (out.chat_template && !context.trust_request_chat_template) {
    fields.fail("chat_template",
                "is only accepted by servers started with --trust-request-chat-template",
                "unsupported_parameter");
  }
  out.continue_final_message = fields.flag("continue_final_message", false);
  out.add_generation_prompt = fields.flag("add_generation_prompt", !out.continue_final_message);
  if (out.continue_final_message && out.add_generation_prompt) {
    fields.fail("continue_final_message",
                "and `add_generation_prompt` cannot be true at the same time");
  }
}

}  // namespace quire::server::openai
