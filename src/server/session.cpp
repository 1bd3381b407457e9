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
  reasoning += next.reasoning;
  for (CallDelta& call : next.calls) {
    if (calls.empty() || calls.back().index != call.index) {
      calls.push_back(std::move(call));
    } else {
      calls.back().arguments += call.arguments;
    }
  }
  std::move(next.tokens.begin(), next.tokens.end(), std::back_inserter(tokens));
  if (next.finish) finish = std::move(next.finish);
}

Session::Session(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<int32_t> prompt,
                 SessionOptions options)
    : tokenizer_(std::move(tokenizer)),
      prompt_(std::move(prompt)),
      options_(std::move(options)),
      detokenizer_(tokenizer_, options_.skip_special_tokens,
                   options_.parsing ? options_.parsing->kept_ids : std::vector<int32_t>()),
      stop_strings_(options_.stop, options_.include_stop_str_in_output) {
  if (options_.parsing) parser_.emplace(options_.parsing);
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
  if (!event.pooled.empty()) pooled_ = std::move(event.pooled);
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
  const bool was_reasoning = parser_ && parser_->in_reasoning();
  add_text(text, num_output_ > options_.min_tokens, delta);
  if (was_reasoning && parser_->in_reasoning()) ++num_reasoning_;
}

std::optional<int64_t> Session::num_reasoning_tokens() const {
  if (!options_.parsing || options_.parsing->dialect.reasoning == nullptr) return std::nullopt;
  return num_reasoning_;
}

// Stop strings see the text as the model wrote it.
void Session::add_text(std::string_view text, bool check_stops, TextDelta& delta) {
  if (!check_stops) return hand_on(text, delta);
  auto [certain, matched] = stop_strings_.push(text);
  hand_on(certain, delta);
  if (!matched || finished_) return;
  end(Finish{engine::FinishReason::kStop, options_.stop->strings().at(*matched), {}, false}, delta);
}

void Session::hand_on(std::string_view text, TextDelta& delta) {
  if (!parser_) {
    delta.text += text;
    return;
  }
  ParsedDelta parsed;
  parser_->push(text, parsed);
  take(std::move(parsed), delta);
  if (parser_->is_done() && !finished_)
    end(Finish{engine::FinishReason::kStop, {}, {}, false}, delta);
}

void Session::take(ParsedDelta&& parsed, TextDelta& delta) {
  TextDelta next;
  next.text = std::move(parsed.content);
  next.reasoning = std::move(parsed.reasoning);
  next.calls = std::move(parsed.calls);
  delta.append(std::move(next));
}

void Session::end(Finish finish, TextDelta& delta) {
  finished_ = true;
  if (parser_) {
    ParsedDelta parsed;
    parser_->finish(finish.reason != engine::FinishReason::kStop, parsed);
    take(std::move(parsed), delta);
    finish.calls_tools = finish.reason == engine::FinishReason::kStop && parser_->has_calls();
  }
  delta.finish = std::move(finish);
}

void Session::finish(engine::TokenEvent& event, TextDelta& delta) {
  add_text(detokenizer_.flush(), num_output_ > options_.min_tokens, delta);
  if (finished_) return;  // the last characters completed a stop string or the one call
  hand_on(stop_strings_.flush(), delta);
  if (finished_) return;
  Finish finish{*event.finish, {}, std::move(event.error), false};
  if (event.stop_token) finish.stop_reason = *event.stop_token;
  if (options_.only_echo && *event.finish == engine::FinishReason::kStop)
    finish.reason = engine::FinishReason::kLength;
  end(std::move(finish), delta);
}

}  // namespace quire::server
