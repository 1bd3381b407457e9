#include "cli/bench_stream.h"

#include <array>

#include "base/json.h"

namespace quire::cli {
namespace {

std::string_view text_of(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  const json::string* text = value ? value->if_string() : nullptr;
  return text ? std::string_view(*text) : std::string_view();
}

int64_t count_of(const json::object& usage, const char* key) {
  const json::value* value = usage.if_contains(key);
  return value && value->is_int64() ? value->get_int64() : -1;
}

void read_choice(const json::object& choice, bool first, StreamChunk& chunk) {
  const json::value* delta = choice.if_contains("delta");
  const json::object* message = delta ? delta->if_object() : nullptr;
  if (message) {
    chunk.text = text_of(*message, "content");
    chunk.text += text_of(*message, "reasoning_content");
    chunk.text += text_of(*message, "reasoning");
  } else {
    chunk.text = text_of(choice, "text");
  }
  const bool opening = message && first && !text_of(*message, "role").empty();
  const bool closing = !text_of(choice, "finish_reason").empty();
  chunk.is_token = !chunk.text.empty() || (!opening && !closing);
}

}  // namespace

void SseReader::feed(std::string_view bytes) {
  for (size_t end; (end = bytes.find('\n')) != bytes.npos; bytes.remove_prefix(end + 1)) {
    if (rest_.empty()) {
      take_line(bytes.substr(0, end));
    } else {
      rest_ += bytes.substr(0, end);
      take_line(rest_);
      rest_.clear();
    }
  }
  rest_ += bytes;
}

void SseReader::take_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (!line.starts_with("data:")) return;
  line.remove_prefix(5);
  if (line.starts_with(' ')) line.remove_prefix(1);
  on_data_(line);
}

StreamChunk parse_chunk(std::string_view payload, bool first) {
  StreamChunk chunk;
  if (payload == "[DONE]") {
    chunk.is_done = true;
    return chunk;
  }
  // One chunk fits this buffer, so that no memory is asked for.
  std::array<unsigned char, 4096> buffer;
  json::monotonic_resource memory(buffer.data(), buffer.size());
  boost::system::error_code code;
  const json::value value = json::parse(payload, code, &memory);
  const json::object* object = value.if_object();
  if (code || !object) {
    chunk.error = "not JSON in the stream: " + std::string(payload.substr(0, 200));
    return chunk;
  }
  if (const json::value* error = object->if_contains("error"); error && !error->is_null()) {
    chunk.error = dump_json(*error);
    return chunk;
  }
  if (const json::value* usage = object->if_contains("usage"); usage && usage->is_object()) {
    chunk.prompt_tokens = count_of(usage->get_object(), "prompt_tokens");
    chunk.completion_tokens = count_of(usage->get_object(), "completion_tokens");
  }
  const json::value* choices = object->if_contains("choices");
  if (choices && choices->is_array() && !choices->get_array().empty())
    if (const json::object* choice = choices->get_array()[0].if_object())
      read_choice(*choice, first, chunk);
  return chunk;
}

}  // namespace quire::cli
