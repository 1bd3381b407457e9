#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace quire::bench {

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

// What a server said, without what differs each time (ids, times) or depends on how the text was
// cut into pieces.
struct StreamedAnswer {
  std::string content, reasoning;
  std::string calls;     // of tools: each one's name and arguments
  std::string logprobs;  // the JSON of one token after the other
  std::string finish;    // why it ended, as the API says it
  bool operator==(const StreamedAnswer&) const = default;

  bool has_text() const { return !content.empty() || !reasoning.empty() || !calls.empty(); }
  void append(const StreamedAnswer& piece);
};

// What one payload of a stream says: of completions, chats, /v1/responses or /v1/messages.
struct StreamChunk {
  bool is_token = false;  // brings text, or stands for a token without any
  bool is_done = false;   // [DONE]
  StreamedAnswer answer;  // what it adds
  std::string error;      // not empty: the request failed
  // Of the usage; -1: not in this chunk. `cached_tokens`: of the prompt, from the prefix cache.
  int64_t prompt_tokens = -1, completion_tokens = -1, cached_tokens = -1;
};

// `first`: no token has come yet. A chat stream's opening chunk (a role and no text) and the
// closing chunk (a finish_reason and no text) are no tokens.
StreamChunk parse_chunk(std::string_view payload, bool first);

}  // namespace quire::bench
