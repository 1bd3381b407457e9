#include "bench/serve/stream_events.h"

#include <algorithm>
#include <string>

namespace quire::bench {
namespace {

// What is not counted is no input beside it.
int64_t none_if_absent(int64_t count) { return std::max<int64_t>(0, count); }

// Of /v1/messages: what was read from the cache is no input.
void read_message_usage(const json::object& usage, StreamChunk& chunk) {
  chunk.completion_tokens = count_at(usage, "output_tokens");
  const int64_t input = count_at(usage, "input_tokens");
  if (input < 0) return;
  chunk.cached_tokens = none_if_absent(count_at(usage, "cache_read_input_tokens"));
  chunk.prompt_tokens =
      input + chunk.cached_tokens + none_if_absent(count_at(usage, "cache_creation_input_tokens"));
}

bool read_message_event(std::string_view type, const json::object& event, StreamChunk& chunk) {
  StreamedAnswer& answer = chunk.answer;
  if (type == "message_start") {
    if (const auto* usage = object_at(object_at(&event, "message"), "usage"))
      read_message_usage(*usage, chunk);
  } else if (type == "content_block_start") {
    if (const json::object* block = object_at(&event, "content_block"))
      if (text_at(*block, "type") == "tool_use") append_call_name(answer, text_at(*block, "name"));
  } else if (type == "content_block_delta") {
    const json::object* delta = object_at(&event, "delta");
    if (!delta) return true;
    answer.content = text_at(*delta, "text");
    answer.reasoning = text_at(*delta, "thinking");
    answer.calls = text_at(*delta, "partial_json");
  } else if (type == "message_delta") {
    if (const json::object* delta = object_at(&event, "delta"))
      answer.finish = text_at(*delta, "stop_reason");
    if (const json::object* usage = object_at(&event, "usage")) read_message_usage(*usage, chunk);
  } else {
    return type == "message_stop" || type == "content_block_stop" || type == "ping";
  }
  return true;
}

// Of /v1/responses: the last event repeats the whole response, with its usage.
void read_response(const json::object& response, StreamChunk& chunk) {
  chunk.answer.finish = text_at(response, "status");
  if (const json::object* error = object_at(&response, "error")) chunk.error = dump_json(*error);
  const json::object* usage = object_at(&response, "usage");
  if (!usage) return;
  chunk.prompt_tokens = count_at(*usage, "input_tokens");
  chunk.completion_tokens = count_at(*usage, "output_tokens");
  if (const json::object* details = object_at(usage, "input_tokens_details"))
    chunk.cached_tokens = count_at(*details, "cached_tokens");
}

void read_response_event(std::string_view type, const json::object& event, StreamChunk& chunk) {
  StreamedAnswer& answer = chunk.answer;
  if (type == "response.output_text.delta") {
    answer.content = text_at(event, "delta");
  } else if (type == "response.reasoning_text.delta" ||
             type == "response.reasoning_summary_text.delta") {
    answer.reasoning = text_at(event, "delta");
  } else if (type == "response.function_call_arguments.delta") {
    answer.calls = text_at(event, "delta");
  } else if (type == "response.output_item.added") {
    if (const json::object* item = object_at(&event, "item"))
      if (text_at(*item, "type") == "function_call")
        append_call_name(answer, text_at(*item, "name"));
  } else if (type == "response.completed" || type == "response.incomplete" ||
             type == "response.failed") {
    if (const json::object* response = object_at(&event, "response"))
      read_response(*response, chunk);
  }
}

}  // namespace

std::string_view text_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  const json::string* text = value ? value->if_string() : nullptr;
  return text ? std::string_view(*text) : std::string_view();
}

const json::object* object_at(const json::object* object, const char* key) {
  const json::value* value = object ? object->if_contains(key) : nullptr;
  return value ? value->if_object() : nullptr;
}

int64_t count_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value && value->is_int64() ? value->get_int64() : -1;
}

void append_call_name(StreamedAnswer& answer, std::string_view name) {
  if (!name.empty()) answer.calls += "\n" + std::string(name) + " ";
}

bool read_event(const json::object& event, StreamChunk& chunk) {
  const std::string_view type = text_at(event, "type");
  if (type.starts_with("response.")) {
    read_response_event(type, event, chunk);
  } else if (type.empty() || !read_message_event(type, event, chunk)) {
    return false;
  }
  chunk.is_token = chunk.answer.has_text();
  return true;
}

}  // namespace quire::bench
