#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "dialects/events.h"
#include "dialects/task.h"
#include "dialects/tools.h"

namespace quire::dialects {

// Where the text goes on after a block.
enum class After { kSame, kContent, kReasoning };

// The text from an opening marker on, as the parser of a block reads it, and the calls that it
// finds there. What it takes for calls is taken back when the block turns out to be none; the
// block's text is then text like any other.
class Reader {
 public:
  // `text`: what is known of the block; it grows. `hold`: no event leaves before the block has
  // ended (in reasoning, which a model must not leave by mistake).
  Reader(const ToolSet& tools, std::string opening, bool hold);

  // --- for parsers ---
  struct Suspend {
    Reader& in;
    bool consume;
    bool await_ready() const { return in.at_ < in.text_.size() || in.ended_; }
    void await_suspend(std::coroutine_handle<>) const { in.waiting_ = true; }
    int await_resume() const { return in.look(consume); }
  };
  struct Never {
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<>) const {}
    void await_resume() const {}
  };
  // The next byte, or kEnd. peek() leaves it there.
  Suspend next() { return {*this, true}; }
  Suspend peek() { return {*this, false}; }
  // The block is none; nothing after this runs.
  Never fail() {
    failed_ = true;
    return {};
  }
  static constexpr int kEnd = -1;

  size_t at() const { return at_; }
  void rewind(size_t at) { at_ = at; }
  std::string_view slice(size_t begin, size_t end) const {
    return std::string_view(text_).substr(begin, end - begin);
  }
  // What is there from here on; all that will be, once next() has said kEnd.
  std::string_view rest() const { return std::string_view(text_).substr(at_); }

  // A call begins; one that no offered tool answers to releases the block. The name is without
  // blanks around it.
  void begin_call(std::string_view name, std::string_view id = {});
  void arguments(std::string_view piece);
  void end_call();
  const std::string& call_name() const { return name_; }
  bool in_call() const { return in_call_; }
  // The parser has seen the end of the text.
  bool reached_end() const { return saw_end_; }
  // What is read up to here is settled, whatever follows.
  void commit();
  // The block is none, but its end is not found yet. Its calls are taken back, and what is read up
  // to each settle() goes on as text.
  void release();
  bool released() const { return released_; }
  void settle() { settled_ = at_; }
  // What the text after the block is.
  void continue_as(After after) { after_ = after; }
  // At the end of the text: there was no room for more.
  bool cut() const { return cut_; }
  const ToolSet& tools() const { return tools_; }
  TaskStack& stack() { return stack_; }

  // --- for the driver ---
  void append(std::string_view text) { text_ += text; }
  // No text follows; `cut`: because there was no room for it.
  void end(bool cut);
  enum class State { kReading, kDone, kNone };
  // Runs the parser as far as the text goes.
  State run();
  // What may be handed on so far. Text of the block is in kContent events.
  Events take_events();
  After after() const { return after_; }
  // What is left of the text after the block.
  std::string take_rest();
  // The text ended inside the block for want of room, and calls of it stay.
  bool is_cut() const { return is_cut_; }

  void start(Task<> parser);

 private:
  int look(bool consume);
  void put_text_back(size_t end);
  void take_calls_back();
  State finish();

  const ToolSet& tools_;
  const bool hold_;
  std::string text_;
  size_t at_ = 0;
  size_t handled_ = 0;  // what is before it became calls or text for good
  size_t settled_ = 0;
  bool ended_ = false, saw_end_ = false, cut_ = false, waiting_ = false, failed_ = false;
  bool released_ = false, in_call_ = false, is_cut_ = false, done_ = false;
  size_t begun_ = 0;             // calls that are not committed
  size_t committed_events_ = 0;  // of events_, with hold
  bool has_calls_ = false;
  std::string name_;
  After after_ = After::kSame;
  Events events_;
  TaskStack stack_;
  Task<> parser_{nullptr};
};

using BlockParser = Task<> (*)(Reader&);

// Skips blanks and line ends.
Task<> skip_space(Reader& in);
// Takes the text if it comes next. If it does not, nothing is read.
Task<bool> accept(Reader& in, std::string_view text);
// Takes blanks and then the text, or nothing.
Task<bool> accept_spaced(Reader& in, std::string_view text);
// Whether the text, or the end, comes after blanks. Nothing is read.
Task<bool> follows(Reader& in, std::string_view text);
Task<bool> follows_end(Reader& in);
// The text must come next.
Task<> expect(Reader& in, std::string_view text);
// What comes before the terminator, which is taken, too. At most `limit` bytes, else the block
// fails.
Task<std::string> read_until(Reader& in, std::string_view terminator, size_t limit = 512);

}  // namespace quire::dialects
