#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace quire::cli {

// Cuts a server-sent event stream into the payloads of its `data:` lines, however it arrives.
class SseReader {
 public:
  using OnData = std::function<void(std::string_view payload)>;
  explicit SseReader(OnData on_data) : on_data_(std::move(on_data)) {}
  void feed(std::string_view bytes);

 private:
  void take_line(std::string_view line);
  OnData on_data_;
  std::string rest_;  // of a line that has not ended
};

// What one payload of an OpenAI stream says, of completions and of chat.
struct StreamChunk {
  bool is_token = false;  // brings text, or stands for a token without any
  bool is_done = false;   // [DONE]
  std::string text;       // content and reasoning
  std::string error;      // not empty: the request failed
  int64_t prompt_tokens = -1, completion_tokens = -1;  // of `usage`; -1: not in this chunk
};

// `first`: no token has come yet. A chat stream's opening chunk (a role and no text) and the
// closing chunk (a finish_reason and no text) are no tokens.
StreamChunk parse_chunk(std::string_view payload, bool first);

}  // namespace quire::cli
