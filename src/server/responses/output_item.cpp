#include "server/responses/output_item.h"

#include "server/responses/parse.h"

namespace quire::server::responses {
namespace {

void append_text(std::string& out, const char* key, std::string_view text) {
  out += ",\"";
  out += key;
  out += "\":";
  append_json_string(out, text);
}

void append_call(std::string& out, const OutputItem& item, const openai::ResponsesEcho& echo) {
  append_text(out, "call_id", item.call_id);
  const auto placed = echo.placed_tools.find(item.name);
  if (placed == echo.placed_tools.end()) {
    append_text(out, "name", item.name);
  } else {
    append_text(out, "name", placed->second.name);
    append_text(out, "namespace", placed->second.space);
  }
  append_text(out, "arguments", item.text);
}

}  // namespace

void append_part(std::string& out, const OutputItem& item) {
  const bool is_text = item.kind == OutputItem::Kind::kMessage;
  out += is_text ? R"({"type":"output_text","annotations":[],"logprobs":[])"
                 : R"({"type":"reasoning_text")";
  append_text(out, "text", item.text);
  out += '}';
}

void append_item(std::string& out, const OutputItem& item, std::string_view status,
                 const openai::ResponsesEcho& echo) {
  constexpr const char* kTypes[] = {"reasoning", "message", "function_call"};
  out += "{\"id\":";
  append_json_string(out, item.id);
  append_text(out, "type", kTypes[static_cast<size_t>(item.kind)]);
  append_text(out, "status", status);
  if (item.kind == OutputItem::Kind::kCall) {
    append_call(out, item, echo);
  } else {
    out += item.kind == OutputItem::Kind::kMessage ? R"(,"role":"assistant")" : R"(,"summary":[])";
    out += ",\"content\":[";
    if (status != "in_progress") append_part(out, item);
    out += ']';
    if (item.kind == OutputItem::Kind::kReasoning && echo.seals_reasoning)
      append_text(out, "encrypted_content", std::string(kSeal) + item.text);
  }
  out += '}';
}

void append_items(std::string& out, std::span<const OutputItem> items, std::string_view last_status,
                  const openai::ResponsesEcho& echo) {
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ',';
    append_item(out, items[i], i + 1 == items.size() ? last_status : "completed", echo);
  }
  out += ']';
}

}  // namespace quire::server::responses
