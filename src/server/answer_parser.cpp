#include "server/answer_parser.h"

#include <algorithm>
#include <random>

namespace quire::server {
namespace {

using dialects::Event;

std::string random_characters(size_t count) {
  static constexpr std::string_view kCharacters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 random(std::random_device{}());
  std::uniform_int_distribution<size_t> any(0, kCharacters.size() - 1);
  std::string text(count, ' ');
  for (char& c : text) c = kCharacters[any(random)];
  return text;
}

bool is_alphanumeric(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  });
}

// functions.NAME:NUMBER, which is all that tells Kimi's template the tool of a result.
bool is_kimi_id(std::string_view id) {
  const size_t colon = id.rfind(':');
  if (!id.starts_with("functions.") || colon == std::string_view::npos) return false;
  const std::string_view number = id.substr(colon + 1);
  return !number.empty() && number.size() < 8 && is_alphanumeric(id.substr(colon + 1)) &&
         std::ranges::all_of(id, [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

AnswerParser::AnswerParser(std::shared_ptr<const ParsingOptions> options)
    : options_(std::move(options)),
      parser_({options_->dialect.calls, options_->dialect.reasoning, options_->starts_in_reasoning},
              options_->tools) {}

std::string AnswerParser::choose_id(const std::string& from_model) const {
  const dialects::CallIds ids = options_->dialect.calls->ids;
  if (ids == dialects::CallIds::kFromModel && is_kimi_id(from_model)) return from_model;
  if (ids != dialects::CallIds::kNineCharacters) return "call_" + random_characters(24);
  if (from_model.size() == 9 && is_alphanumeric(from_model)) return from_model;
  return random_characters(9);
}

void AnswerParser::push(std::string_view text, ParsedDelta& out) {
  if (done_) return;
  dialects::Events events;
  parser_.push(text, events);
  take(events, out);
}

void AnswerParser::finish(bool cut, ParsedDelta& out) {
  if (done_) return;
  dialects::Events events;
  parser_.finish(cut, events);
  take(events, out);
}

void AnswerParser::take(const dialects::Events& events, ParsedDelta& out) {
  for (const Event& event : events.list()) {
    take_event(event, out);
    if (done_) return;
  }
}

void AnswerParser::take_event(const Event& event, ParsedDelta& out) {
  switch (event.kind) {
    case Event::Kind::kContent:
      out.content += event.text;
      return;
    case Event::Kind::kReasoning:
      if (options_->include_reasoning) out.reasoning += event.text;
      return;
    case Event::Kind::kCallBegin:
      open_is_sent_ = false;
      held_.push_back({event.text, choose_id(event.id), {}});
      if (options_->calls_are_certain) send_held(out);
      return;
    case Event::Kind::kArguments:
      if (open_is_sent_) {
        out.calls.push_back({num_sent_ - 1, {}, {}, event.text});
        return;
      }
      if (held_.empty()) return;  // of a call that one_call leaves out
      held_.back().arguments += event.text;
      held_bytes_ += event.text.size();
      if (held_bytes_ > kHeldBytes) send_held(out);
      return;
    case Event::Kind::kCallEnd:
      call_ended_ = true;
      return;
    case Event::Kind::kCallCut:
      return;
    case Event::Kind::kSettled:
      send_held(out);
      done_ = options_->one_call && call_ended_ && num_sent_ > 0;
      return;
    case Event::Kind::kWithdraw:
      held_.resize(held_.size() - std::min(event.count, held_.size()));
      call_ended_ = false;
      held_bytes_ = 0;
      for (const Held& call : held_) held_bytes_ += call.arguments.size();
      return;
  }
}

void AnswerParser::send_held(ParsedDelta& out) {
  for (Held& call : held_) {
    open_is_sent_ = !options_->one_call || num_sent_ == 0;
    if (!open_is_sent_) break;
    out.calls.push_back(
        {num_sent_++, std::move(call.id), std::move(call.name), std::move(call.arguments)});
  }
  held_.clear();
  held_bytes_ = 0;
}

}  // namespace quire::server
