#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::dialects {

// What a model's text turns into, in order. The arguments of one call are JSON text in pieces.
struct Event {
  enum class Kind {
    kContent,
    kReasoning,
    kCallBegin,  // text: the tool's name
    kArguments,  // text: a piece of the open call's JSON
    kCallEnd,
    kCallCut,   // the text ended inside the call: its arguments are the beginning of JSON
    kSettled,   // the calls so far stay, whatever follows
    kWithdraw,  // the last `count` calls were none; what they were made of follows as text
  };
  Kind kind;
  std::string text;
  std::string id;  // of kCallBegin, where the model wrote one
  size_t count = 0;
};

// Neighbouring pieces of one kind are joined: a byte more costs no event more.
class Events {
 public:
  void add(Event::Kind kind, std::string_view text) {
    if (!list_.empty() && list_.back().kind == kind && is_text(kind)) {
      list_.back().text += text;
    } else {
      list_.push_back({kind, std::string(text), {}, 0});
    }
  }
  void add(Event&& event) {
    if (is_text(event.kind)) return add(event.kind, event.text);
    list_.push_back(std::move(event));
  }
  void append(Events&& other) {
    for (Event& event : other.list_) add(std::move(event));
    other.list_.clear();
  }
  const std::vector<Event>& list() const { return list_; }
  bool empty() const { return list_.empty(); }
  size_t size() const { return list_.size(); }
  void truncate(size_t size) { list_.resize(size, {Event::Kind::kContent, {}, {}, 0}); }

 private:
  static bool is_text(Event::Kind kind) {
    return kind == Event::Kind::kContent || kind == Event::Kind::kReasoning ||
           kind == Event::Kind::kArguments;
  }
  std::vector<Event> list_;
};

}  // namespace quire::dialects
