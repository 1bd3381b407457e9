#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"
#include "dialects/events.h"
#include "dialects/tools.h"

namespace quire::dialects {

// Parses one answer as it comes. The events are the same however the text is cut into pieces, up to
// where their texts are cut. Time and memory are linear in the text. Not thread-safe.
//
// White space between text and a marker belongs to neither. Reasoning has none at its ends.
class OutputParser {
 public:
  struct Options {
    const Dialect* calls = nullptr;      // null: calls are text
    const Dialect* reasoning = nullptr;  // null: reasoning is text
    bool starts_in_reasoning = false;    // the prompt has opened the block
  };
  // The tools must outlive the parser.
  OutputParser(const Options& options, const ToolSet& tools);

  void push(std::string_view text, Events& out);
  // No text follows. `cut`: because there was no room for more, so that what is open was not ended
  // by the model: a call becomes a partial one.
  void finish(bool cut, Events& out);

  // After finish: whether the text was not cut inside a call or the reasoning.
  bool complete() const { return complete_; }
  bool in_reasoning() const { return in_reasoning_; }

 private:
  enum class Action {
    kOpenReasoning,
    kCloseReasoning,
    kSwallow,
    kStray,
    kEnd,
    kMessageEnd,
    kBlock
  };
  struct Marker {
    std::string_view text;
    Action action;
    const Dialect::Block* block = nullptr;
  };
  // One of the two texts: white space waits until it is known what it belongs to.
  struct TextOut {
    std::string space;
    bool begun = false;
    bool trim_end = false;
  };

  void add_markers(const Dialect& dialect, bool calls, bool reasoning);
  void run(bool final, bool cut);
  bool step_block(bool final, bool cut);
  bool scan(bool final, bool cut);
  bool fits(const Marker& marker) const;
  static bool begins_as_tag(const Marker& marker, std::string_view text);
  bool handle(const Marker& marker);
  void begin_block(BlockParser parser, std::string opening);
  void end_block();
  void apply(Events&& events);
  void text(std::string_view text);
  void plain_text(std::string_view text);
  void note_structure();
  void leave_reasoning();
  void separate(TextOut& out);

  const ToolSet& tools_;
  std::vector<Marker> content_markers_, reasoning_markers_;
  BlockParser message_ = nullptr;
  Events* out_ = nullptr;
  std::string buffer_;     // not looked at yet, or the beginning of a marker
  std::string held_ends_;  // tokens that end a turn, if nothing follows
  std::unique_ptr<Reader> reader_;
  TextOut content_, reasoning_;
  bool in_reasoning_;
  bool structured_ = false;  // there was a marker
  bool fresh_ = true;        // no text since the last marker, or at all
  bool message_starts_ = false;
  bool complete_ = true;
};

// A whole answer.
struct ParsedOutput {
  struct Call {
    std::string name, id, arguments;
    bool complete = false;
  };
  std::string content, reasoning;
  std::vector<Call> calls;

  void add(const Events& events);
};

}  // namespace quire::dialects
