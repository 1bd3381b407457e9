#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "server/answer_parser.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace quire::server {

// A token of the answer, or of the echoed prompt.
struct SessionToken {
  int32_t id = 0;
  int64_t text_offset = 0;                      // characters of the choice's text before it
  std::optional<engine::TokenLogprob> logprob;  // absent also for a prompt's first token
  bool from_prompt = false;
};

// How a generation ended.
struct Finish {
  engine::FinishReason reason = engine::FinishReason::kStop;
  // The stop token or stop string of the request that ended it.
  std::variant<std::monostate, int32_t, std::string> stop_reason;
  std::string error;         // with kError, kRefused and kOverloaded
  bool calls_tools = false;  // with kStop: the client is to run the answer's tool calls
};

// What is new in the answer.
struct TextDelta {
  std::string text;  // of a parsed answer its content
  std::string reasoning;
  std::vector<CallDelta> calls;
  std::vector<SessionToken> tokens;
  std::optional<Finish> finish;

  void append(TextDelta&& next);
};

struct SessionOptions {
  std::shared_ptr<const text::StopSet> stop;  // null: no stop strings
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  int64_t min_tokens = 0;  // stop strings do not end an answer before that
  std::vector<int32_t> stop_token_ids;
  std::vector<int32_t> eos_token_ids;
  // Echo: the answer's text begins with this, and (a completion's) tokens with the prompt's.
  std::optional<std::string> echo_text;
  bool echo_tokens = false;
  bool only_echo = false;  // the produced token is not wanted (max_tokens 0)
  // Null: the answer's text is its content as it is.
  std::shared_ptr<const ParsingOptions> parsing;
};

// Turns one generation's tokens into text, the same way for every endpoint: detokenising, stop
// strings, special tokens, the place of each token in the text; and the text, where that is wanted,
// into content, reasoning and tool calls. The deltas together are the answer, whether they are
// streamed or collected. Not thread-safe.
class Session {
 public:
  Session(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<int32_t> prompt,
          SessionOptions options);

  // After a delta with `finish` only the events' statistics are looked at.
  TextDelta push(engine::TokenEvent&& event);

  bool finished() const { return finished_; }
  int64_t num_output_tokens() const { return num_output_; }
  // Of those: tokens between the markers of reasoning. Nothing if the answer is not parsed for it.
  std::optional<int64_t> num_reasoning_tokens() const;
  const std::vector<int32_t>& prompt() const { return prompt_; }
  const std::vector<engine::TokenLogprob>& prompt_logprobs() const { return prompt_logprobs_; }
  const std::vector<float>& pooled() const { return pooled_; }  // of a request that pools
  const engine::RequestStats& stats() const { return stats_; }

 private:
  void prime();
  void echo_prompt(TextDelta& delta);
  void push_token(int32_t id, std::optional<engine::TokenLogprob> logprob, bool ends,
                  TextDelta& delta);
  void add_text(std::string_view text, bool check_stops, TextDelta& delta);
  void hand_on(std::string_view text, TextDelta& delta);
  static void take(ParsedDelta&& parsed, TextDelta& delta);
  void end(Finish finish, TextDelta& delta);
  void finish(engine::TokenEvent& event, TextDelta& delta);
  bool is_stop_token(int32_t id) const;

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int32_t> prompt_;
  SessionOptions options_;
  text::Detokenizer detokenizer_;
  text::StopStrings stop_strings_;
  std::optional<AnswerParser> parser_;
  std::vector<engine::TokenLogprob> prompt_logprobs_;
  std::vector<float> pooled_;
  engine::RequestStats stats_;
  int64_t num_output_ = 0, num_reasoning_ = 0;
  int64_t text_length_ = 0;  // characters detokenised so far
  bool begun_ = false, finished_ = false;
};

}  // namespace quire::server
