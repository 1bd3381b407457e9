#include "dialects/output_parser.h"

#include "dialects/json_text.h"

namespace quire::dialects {

OutputParser::OutputParser(const Options& options, const ToolSet& tools)
    : tools_(tools), in_reasoning_(options.starts_in_reasoning) {
  if (options.calls != nullptr)
    add_markers(*options.calls, true, options.calls == options.reasoning);
  if (options.reasoning != nullptr && options.reasoning != options.calls)
    add_markers(*options.reasoning, false, true);
  message_starts_ = message_ != nullptr && !in_reasoning_;
  structured_ = in_reasoning_;
}

void OutputParser::add_markers(const Dialect& dialect, bool calls, bool reasoning) {
  const auto both = [this](std::string_view text, Action action) {
    content_markers_.push_back({text, action});
    reasoning_markers_.push_back({text, action});
  };
  if (reasoning) {
    for (const auto& [open, close] : dialect.reasoning) {
      both(open, Action::kOpenReasoning);
      both(close, Action::kCloseReasoning);
    }
  }
  if (calls) {
    for (const Dialect::Block& block : dialect.blocks) {
      content_markers_.push_back({block.opening, Action::kBlock, &block});
      if (!block.bare) reasoning_markers_.push_back({block.opening, Action::kBlock, &block});
    }
    for (const std::string_view stray : dialect.strays)
      content_markers_.push_back({stray, Action::kStray});
  }
  for (const std::string_view frame : dialect.frames)
    content_markers_.push_back({frame, Action::kSwallow});
  for (const std::string_view end : dialect.ends) both(end, Action::kEnd);
  for (const std::string_view end : dialect.message_ends) both(end, Action::kMessageEnd);
  if (dialect.message != nullptr) message_ = dialect.message;
}

void OutputParser::push(std::string_view text, Events& out) {
  out_ = &out;
  buffer_ += text;
  run(false, false);
}

void OutputParser::finish(bool cut, Events& out) {
  out_ = &out;
  run(true, cut);
  TextOut& content = content_;
  if (!content.trim_end && !content.space.empty()) out_->add(Event::Kind::kContent, content.space);
  if (cut && in_reasoning_) complete_ = false;
}

void OutputParser::run(bool final, bool cut) {
  for (;;) {
    if (reader_) {
      if (!step_block(final, cut)) return;
    } else if (message_starts_ && !buffer_.empty()) {
      message_starts_ = false;
      begin_block(message_, {});
    } else if (!scan(final, cut)) {
      return;
    }
  }
}

// True: the block has ended.
bool OutputParser::step_block(bool final, bool cut) {
  reader_->append(buffer_);
  buffer_.clear();
  if (final) reader_->end(cut);
  const auto state = reader_->run();
  apply(reader_->take_events());
  if (state == Reader::State::kReading) return false;
  buffer_ = reader_->take_rest();
  if (reader_->is_cut()) complete_ = false;
  if (state == Reader::State::kDone) end_block();
  reader_.reset();
  return true;
}

// A parser must read something of a block that begins with no marker, or it would begin again.
void OutputParser::begin_block(BlockParser parser, std::string opening) {
  reader_ = std::make_unique<Reader>(tools_, std::move(opening), in_reasoning_);
  reader_->start(parser(*reader_));
}

void OutputParser::end_block() {
  note_structure();
  const After after = reader_->after();
  if (in_reasoning_ && after != After::kReasoning) leave_reasoning();
  if (after == After::kSame) return;
  in_reasoning_ = after == After::kReasoning;
  separate(in_reasoning_ ? reasoning_ : content_);
}

// A message after one of the same kind begins on a line of its own.
void OutputParser::separate(TextOut& out) {
  if (out.begun) out.space = "\n";
}

void OutputParser::note_structure() {
  structured_ = fresh_ = true;
  content_.trim_end = true;
}

void OutputParser::leave_reasoning() {
  in_reasoning_ = false;
  reasoning_.space.clear();
}

// True: a block begins, or a message.
bool OutputParser::scan(bool final, bool cut) {
  size_t at = 0;
  while (at < buffer_.size()) {
    const auto& markers = in_reasoning_ ? reasoning_markers_ : content_markers_;
    const std::string_view rest = std::string_view(buffer_).substr(at);
    const Marker* found = nullptr;
    bool maybe = false, closes = false, is_tag = false;
    for (const Marker& marker : markers) {
      if (rest.front() != marker.text.front() || !fits(marker)) continue;
      if (rest.starts_with(marker.text)) {
        found = &marker;
        break;
      }
      if (!marker.text.starts_with(rest)) continue;
      maybe = true;
      closes = closes || marker.action == Action::kStray || marker.action == Action::kEnd;
      is_tag = is_tag || begins_as_tag(marker, rest);
    }
    // There was no room for the rest of what ends a call, or of another tag, which is no text.
    const bool is_cut_off = is_tag || (closes && structured_ && fresh_);
    if (found == nullptr && final && cut && is_cut_off) {
      content_.trim_end = true;
      break;
    }
    if (found == nullptr && maybe && !final) {
      buffer_.erase(0, at);
      return false;
    }
    if (found == nullptr) {
      // Up to the next byte that a marker may begin with.
      const auto begins = [&](char byte) {
        for (const Marker& marker : markers)
          if (marker.text.front() == byte) return true;
        return false;
      };
      size_t end = 1;
      while (end < rest.size() && !begins(rest[end])) ++end;
      text(rest.substr(0, end));
      at += end;
      continue;
    }
    const Marker marker = *found;
    if (marker.block == nullptr || !marker.block->bare) at += marker.text.size();
    if (handle(marker)) {
      buffer_.erase(0, at);
      return true;
    }
  }
  buffer_.clear();
  return false;
}

// One character is more often text.
bool OutputParser::begins_as_tag(const Marker& marker, std::string_view text) {
  const bool is_bare = marker.block != nullptr && marker.block->bare;
  return !is_bare && text.size() > 1 && (text.front() == '<' || text.front() == '[');
}

bool OutputParser::fits(const Marker& marker) const {
  switch (marker.action) {
    case Action::kOpenReasoning:
      // Later on it is something that the text is about.
      return in_reasoning_ ? !reasoning_.begun : !content_.begun;
    case Action::kCloseReasoning:
      return in_reasoning_ || (structured_ && fresh_);
    case Action::kStray:
      return structured_ && fresh_;
    default:
      return true;
  }
}

bool OutputParser::handle(const Marker& marker) {
  if (marker.action == Action::kEnd) {
    held_ends_ += marker.text;
    return false;
  }
  if (!held_ends_.empty()) plain_text(std::exchange(held_ends_, {}));
  if (marker.action == Action::kBlock) {
    begin_block(marker.block->parser,
                marker.block->bare ? std::string() : std::string(marker.text));
    return true;
  }
  note_structure();
  if (marker.action == Action::kOpenReasoning) in_reasoning_ = true;
  if (marker.action == Action::kCloseReasoning || marker.action == Action::kMessageEnd)
    leave_reasoning();
  message_starts_ = marker.action == Action::kMessageEnd && message_ != nullptr;
  return message_starts_;
}

void OutputParser::apply(Events&& events) {
  for (const Event& event : events.list()) {
    if (event.kind == Event::Kind::kContent) {
      plain_text(event.text);
      continue;
    }
    if (event.kind == Event::Kind::kCallBegin) {
      note_structure();
      if (in_reasoning_) leave_reasoning();
    }
    Event copy = event;
    out_->add(std::move(copy));
  }
}

void OutputParser::text(std::string_view text) {
  if (!held_ends_.empty()) {
    if (trimmed(text).empty()) {
      held_ends_ += text;
      return;
    }
    plain_text(std::exchange(held_ends_, {}));
  }
  plain_text(text);
}

void OutputParser::plain_text(std::string_view text) {
  TextOut& out = in_reasoning_ ? reasoning_ : content_;
  const size_t last = text.find_last_not_of(" \n\t\r");
  if (last == std::string_view::npos) {
    out.space += text;
    return;
  }
  out.space += text.substr(0, last + 1);
  std::string_view piece = out.space;
  if (!out.begun && structured_) piece.remove_prefix(piece.find_first_not_of(" \n\t\r"));
  out_->add(in_reasoning_ ? Event::Kind::kReasoning : Event::Kind::kContent, piece);
  out.space = text.substr(last + 1);
  out.begun = true;
  out.trim_end = false;
  if (!in_reasoning_) fresh_ = false;
}

void ParsedOutput::add(const Events& events) {
  for (const Event& event : events.list()) {
    switch (event.kind) {
      case Event::Kind::kContent:
        content += event.text;
        break;
      case Event::Kind::kReasoning:
        reasoning += event.text;
        break;
      case Event::Kind::kCallBegin:
        calls.push_back({event.text, event.id, {}, false});
        break;
      case Event::Kind::kArguments:
        calls.back().arguments += event.text;
        break;
      case Event::Kind::kCallEnd:
        calls.back().complete = true;
        break;
      case Event::Kind::kCallCut:
      case Event::Kind::kSettled:
        break;
      case Event::Kind::kWithdraw:
        calls.resize(calls.size() - event.count);
        break;
    }
  }
}

}  // namespace quire::dialects
