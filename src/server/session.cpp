#include "server/session.h"

#include <algorithm>

namespace quire::server {
namespace {

// As many tokens of the prompt as a decoder may look back at.
constexpr size_t kPrimingTokens = 8;

int64_t count_characters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

void TextDelta::append(TextDelta&& next) {
  text += next.text;
  std::move(next.tokens.begin(), next.tokens.end(), std::back_inserter(tokens));
  if (next.finish) finish = std::move(next.finish);
}

Session::Session(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<int32_t> prompt,
                 SessionOptions options)
    : tokenizer_(std::move(tokenizer)),
      prompt_(std::move(prompt)),
      options_(std::move(options)),
      detokenizer_(tokenizer_, options_.skip_special_tokens),
      stop_strings_(std::make_shared<const text::StopSet>(options_.stop),
                    options_.include_stop_str_in_output) {
  prime();
}

// The answer continues the prompt: SentencePiece decoders drop the space before the first word of
// a text, which the answer's first word is not.
void Session::prime() {
  text::Detokenizer primed = detokenizer_;
  const size_t first = prompt_.size() - std::min(prompt_.size(), kPrimingTokens);
  for (size_t i = first; i < prompt_.size(); ++i) primed.push(prompt_[i]);
  // A prompt that ends inside a character or a run of byte tokens would spill into the answer.
  if (text::Detokenizer(primed).flush().empty()) detokenizer_ = std::move(primed);
}

bool Session::is_stop_token(int32_t id) const {
  const auto in = [id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return in(options_.stop_token_ids) || in(options_.eos_token_ids);
}

TextDelta Session::push(engine::TokenEvent&& event) {
  TextDelta delta;
  stats_ = event.stats;
  if (finished_) return delta;
  if (!event.prompt_logprobs.empty()) prompt_logprobs_ = std::move(event.prompt_logprobs);
  if (!std::exchange(begun_, true) && options_.echo_text) echo_prompt(delta);

  for (size_t i = 0; i < event.tokens.size() && !finished_ && !options_.only_echo; ++i) {
    std::optional<engine::TokenLogprob> logprob;
    if (i < event.logprobs.size()) logprob = std::move(event.logprobs[i]);
    const bool last = i + 1 == event.tokens.size();
    const bool ends = last && event.finish == engine::FinishReason::kStop;
    push_token(event.tokens[i], std::move(logprob), ends, delta);
  }
  if (event.finish && !finished_) finish(event, delta);
  return delta;
}

void Session::echo_prompt(TextDelta& delta) {
  delta.text += *options_.echo_text;
  text_length_ = count_characters(*options_.echo_text);
  if (!options_.echo_tokens) return;
  text::Detokenizer detokenizer(tokenizer_, options_.skip_special_tokens);
  int64_t offset = 0;
  for (size_t i = 0; i < prompt_.size(); ++i) {
    SessionToken token{prompt_[i], offset, std::nullopt, true};
    // Entry k of the log-probabilities is about token k + 1: nothing predicts the first.
    if (i > 0 && i - 1 < prompt_logprobs_.size()) token.logprob = prompt_logprobs_[i - 1];
    delta.tokens.push_back(std::move(token));
    offset += count_characters(detokenizer.push(prompt_[i]));
  }
}

void Session::push_token(int32_t id, std::optional<engine::TokenLogprob> logprob, bool ends,
                         TextDelta& delta) {
  ++num_output_;
  delta.tokens.push_back({id, text_length_, std::move(logprob), false});
  // The token that ends an answer is no part of its text, unless that was asked for.
  if (ends && is_stop_token(id) && !options_.include_stop_str_in_output) return;
  const std::string text = detokenizer_.push(id);
  text_length_ += count_characters(text);
  add_text(text, num_output_ > options_.min_tokens, delta);
}

void Session::add_text(std::string_view text, bool check_stops, TextDelta& delta) {
  if (!check_stops) {
    delta.text += text;
    return;
  }
  auto [certain, matched] = stop_strings_.push(text);
  delta.text += certain;
  if (!matched) return;
  finished_ = true;
  delta.finish = Finish{engine::FinishReason::kStop, options_.stop.at(*matched), {}};
}

void Session::finish(engine::TokenEvent& event, TextDelta& delta) {
  add_text(detokenizer_.flush(), num_output_ > options_.min_tokens, delta);
  if (finished_) return;  // the last characters completed a stop string
  finished_ = true;
  delta.text += stop_strings_.flush();
  delta.finish = Finish{*event.finish, {}, std::move(event.error)};
  if (event.stop_token) delta.finish->stop_reason = *event.stop_token;
  if (options_.only_echo && *event.finish == engine::FinishReason::kStop)
    delta.finish->reason = engine::FinishReason::kLength;
}

}  // namespace quire::server
