#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/errors.h"
#include "server/openai/logprobs.h"
#include "server/session.h"

namespace quire::server {

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  std::optional<int64_t> reasoning_tokens;  // of completion_tokens
};

// A JSON string, or null if there is no text.
std::string json_or_null(std::string_view text);

// The JSON of a whole answer, written in pieces.
class AnswerBody {
 public:
  using Step = std::function<void(std::string& out, openai::JsonList& list)>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  // A step for every few elements of the open list.
  template <class Element, class Append>
  void add_items(std::span<const Element> elements, Append append) {
    elements_ += elements.size();
    for (size_t i = 0; i < elements.size(); i += kElementsOfStep) {
      const auto part = elements.subspan(i, std::min(kElementsOfStep, elements.size() - i));
      add([part, append](std::string& out, openai::JsonList& list) { append(out, list, part); });
    }
  }
  template <class Element, class Append>
  void add_list(std::span<const Element> elements, Append append) {
    add([](std::string& out, openai::JsonList& list) { list.open(out); });
    add_items(elements, append);
    add([](std::string& out, openai::JsonList&) { out += ']'; });
  }

  // Counts what single steps write as so many elements.
  void weigh(size_t elements) { elements_ += elements; }

  // More than should be written at once between other connections' work.
  bool is_large() const { return elements_ > kElementsOfLarge; }
  // Appends the next 64 KiB or so. False: the answer is complete.
  bool next(std::string& out);

 private:
  static constexpr size_t kElementsOfStep = 64;
  static constexpr size_t kElementsOfLarge = 2048;

  std::deque<Step> steps_;
  size_t elements_ = 0;
  openai::JsonList list_;
};

// How an API writes the answer to one request: as one body, or as the events of a stream. Either
// way it is made from the deltas of the request's sessions.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // Of an answer with status 200.
  virtual void add_headers(http::Response&) const {}
  // Whether there is an answer to a request that was aborted: what was written until then.
  virtual bool takes_aborted() const { return true; }
  // Whether the answer says more about tokens than their text.
  virtual bool writes_tokens() const { return false; }
  // One delta a choice, each complete. What it is made of must outlive the body.
  virtual AnswerBody body(const std::vector<std::unique_ptr<Session>>& sessions,
                          const std::vector<TextDelta>& choices, const Usage& usage) const = 0;

  // What a stream begins with, before the engine has said anything.
  virtual std::string first_events() { return {}; }
  // The events about what is new in a choice, perhaps none. `usage`: the choice's so far.
  virtual std::string events(int64_t index, const Session& session, const TextDelta& delta,
                             const Usage& usage) = 0;
  // The end of the stream, when all choices have ended.
  virtual std::string last_events(const Usage& usage) = 0;
  // The same for an answer that cannot be completed.
  virtual std::string error_events(const ApiError& error) = 0;
};

}  // namespace quire::server
