#include "bench/serve/stream.h"

#include <algorithm>
#include <array>

#include "bench/serve/stream_events.h"

namespace quire::bench {
namespace {

void read_calls(const json::object& message, StreamedAnswer& answer) {
  const json::value* calls = message.if_contains("tool_calls");
  if (!calls || !calls->is_array()) return;
  for (const json::value& call : calls->get_array())
    if (const json::object* function = object_at(call.if_object(), "function")) {
      append_call_name(answer, text_at(*function, "name"));
      answer.calls += text_at(*function, "arguments");
    }
}

const json::array* list_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value ? value->if_array() : nullptr;
}

// Of a chat: a list of tokens; of a completion: a list of texts and one of numbers.
void read_logprobs(const json::object& choice, StreamedAnswer& answer) {
  const json::object* logprobs = object_at(&choice, "logprobs");
  if (!logprobs) return;
  if (const json::array* tokens = list_at(*logprobs, "content"))
    for (const json::value& token : *tokens) answer.logprobs += dump_json(token) + "\n";
  const json::array* texts = list_at(*logprobs, "tokens");
  const json::array* numbers = list_at(*logprobs, "token_logprobs");
  if (!texts || !numbers) return;
  for (size_t i = 0; i < std::min(texts->size(), numbers->size()); ++i)
    answer.logprobs += dump_json((*texts)[i]) + dump_json((*numbers)[i]) + "\n";
}

void read_choice(const json::object& choice, bool first, StreamChunk& chunk) {
  StreamedAnswer& answer = chunk.answer;
  const json::object* message = object_at(&choice, "delta");
  if (message) {
    answer.content = text_at(*message, "content");
    // Two names of the same.
    answer.reasoning = text_at(*message, "reasoning_content");
    if (answer.reasoning.empty()) answer.reasoning = text_at(*message, "reasoning");
    read_calls(*message, answer);
  } else {
    answer.content = text_at(choice, "text");
  }
  read_logprobs(choice, answer);
  answer.finish = text_at(choice, "finish_reason");
  const bool opening = message && first && !text_at(*message, "role").empty();
  chunk.is_token = answer.has_text() || (!opening && answer.finish.empty());
}

void read_usage(const json::object& usage, StreamChunk& chunk) {
  chunk.prompt_tokens = count_at(usage, "prompt_tokens");
  chunk.completion_tokens = count_at(usage, "completion_tokens");
  if (const json::object* details = object_at(&usage, "prompt_tokens_details"))
    chunk.cached_tokens = count_at(*details, "cached_tokens");
}

}  // namespace

void StreamedAnswer::append(const StreamedAnswer& piece) {
  content += piece.content;
  reasoning += piece.reasoning;
  calls += piece.calls;
  logprobs += piece.logprobs;
  finish += piece.finish;
}

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
  if (read_event(*object, chunk)) return chunk;
  if (const json::object* usage = object_at(object, "usage")) read_usage(*usage, chunk);
  const json::value* choices = object->if_contains("choices");
  if (choices && choices->is_array() && !choices->get_array().empty())
    if (const json::object* choice = choices->get_array()[0].if_object())
      read_choice(*choice, first, chunk);
  return chunk;
}

}  // namespace quire::bench
