#include "dialects/reader.h"

#include "dialects/json_text.h"

namespace quire::dialects {

Reader::Reader(const ToolSet& tools, std::string opening, bool hold)
    : tools_(tools), hold_(hold), text_(std::move(opening)), at_(text_.size()) {}

void Reader::start(Task<> parser) {
  parser_ = std::move(parser);
  parser_.start();
}

int Reader::look(bool consume) {
  if (at_ == text_.size()) {
    saw_end_ = true;
    return kEnd;
  }
  const int byte = static_cast<unsigned char>(text_[at_]);
  if (consume) ++at_;
  return byte;
}

void Reader::begin_call(std::string_view name, std::string_view id) {
  if (released_) return;
  name = trimmed(name);
  if (!tools_.offers(name)) return release();
  name_ = name;
  in_call_ = true;
  ++begun_;
  Event event{Event::Kind::kCallBegin, name_, std::string(id), 0};
  events_.add(std::move(event));
}

void Reader::arguments(std::string_view piece) {
  if (!released_ && in_call_ && !piece.empty()) events_.add(Event::Kind::kArguments, piece);
}

void Reader::end_call() {
  if (released_ || !in_call_) return;
  in_call_ = false;
  events_.add(Event::Kind::kCallEnd, {});
}

void Reader::commit() {
  if (released_) return put_text_back(at_);
  if (begun_ > 0) {
    has_calls_ = true;
    events_.add(Event::Kind::kSettled, {});
  }
  begun_ = 0;
  handled_ = at_;
  committed_events_ = events_.size();
}

void Reader::release() {
  if (released_) return;
  released_ = true;
  take_calls_back();
}

void Reader::take_calls_back() {
  in_call_ = false;
  if (begun_ == 0) return;
  if (hold_) {
    events_.truncate(committed_events_);
  } else {
    events_.add({Event::Kind::kWithdraw, {}, {}, begun_});
  }
  begun_ = 0;
}

void Reader::put_text_back(size_t end) {
  if (end <= handled_) return;
  events_.add(Event::Kind::kContent, slice(handled_, end));
  handled_ = end;
}

void Reader::end(bool cut) {
  ended_ = true;
  cut_ = cut;
}

Reader::State Reader::run() {
  if (waiting_ && at_ == text_.size() && !ended_) return State::kReading;
  waiting_ = false;
  const bool done = stack_.run([this] { return waiting_ || failed_; });
  if (done || failed_) return finish();
  if (released_) put_text_back(settled_);
  return State::kReading;
}

Reader::State Reader::finish() {
  done_ = true;
  // Whatever is open when there is no room for more was cut off.
  is_cut_ = cut_ && saw_end_ && (failed_ || in_call_);
  if (is_cut_ && !released_ && !hold_ && (begun_ > 0 || has_calls_)) {
    if (in_call_) events_.add(Event::Kind::kCallCut, {});
    events_.add(Event::Kind::kSettled, {});
    at_ = text_.size();
    return State::kDone;
  }
  if (!failed_ && !released_) {
    if (begun_ > 0) events_.add(Event::Kind::kSettled, {});
    return State::kDone;
  }
  take_calls_back();
  put_text_back(at_);
  return State::kNone;
}

Events Reader::take_events() {
  if (hold_ && !done_ && !released_) return {};
  return std::exchange(events_, {});
}

std::string Reader::take_rest() { return text_.substr(at_); }

Task<> skip_space(Reader& in) {
  for (;;) {
    const int byte = co_await in.peek();
    if (!is_space(byte)) co_return;
    co_await in.next();
  }
}

Task<bool> accept(Reader& in, std::string_view text) {
  const size_t begin = in.at();
  for (const char wanted : text) {
    const int byte = co_await in.next();
    if (byte == static_cast<unsigned char>(wanted)) continue;
    in.rewind(begin);
    co_return false;
  }
  co_return true;
}

Task<bool> accept_spaced(Reader& in, std::string_view text) {
  const size_t begin = in.at();
  co_await skip_space(in);
  const bool found = co_await accept(in, text);
  if (!found) in.rewind(begin);
  co_return found;
}

Task<bool> follows(Reader& in, std::string_view text) {
  const size_t begin = in.at();
  const bool found = co_await accept_spaced(in, text);
  in.rewind(begin);
  co_return found;
}

Task<bool> follows_end(Reader& in) {
  const size_t begin = in.at();
  co_await skip_space(in);
  const int byte = co_await in.peek();
  in.rewind(begin);
  co_return byte == Reader::kEnd;
}

Task<> expect(Reader& in, std::string_view text) {
  const bool found = co_await accept(in, text);
  if (!found) co_await in.fail();
}

Task<std::string> read_until(Reader& in, std::string_view terminator, size_t limit) {
  std::string out;
  for (;;) {
    const bool found = co_await accept(in, terminator);
    if (found) co_return out;
    const int byte = co_await in.next();
    if (byte == Reader::kEnd || out.size() == limit) co_await in.fail();
    out += static_cast<char>(byte);
  }
}

}  // namespace quire::dialects
