#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "dialects/reader.h"

namespace quire::dialects {

// Which ids calls get. A model's own are taken where later turns repeat them to it.
enum class CallIds {
  kRandom,
  kNineCharacters,  // letters and digits, as Mistral's templates demand
  kFromModel,       // Kimi's: functions.NAME:NUMBER
};

// How the models of a family write tool calls and reasoning: data, and parsers for what stands
// between the markers. tests/dialects has cases for each.
struct Dialect {
  struct Block {
    std::string_view opening;
    BlockParser parser;
    // No marker but the first byte of the call itself, which any text may hold: not looked for in
    // reasoning. The parser reads it again.
    bool bare = false;
  };
  struct Reasoning {
    std::string_view open, close;
  };

  // The chat templates that show this dialect to the model: those that hold every text of one of
  // the rows and none of `none`. Where several dialects fit, the lowest rank is it.
  struct Signs {
    int rank = 0;
    std::vector<std::vector<std::string_view>> rows = {};
    std::vector<std::string_view> none = {};
  };

  // How values are written where they are neither JSON nor text between tags: like JSON, with these
  // words and marks.
  struct ValueSyntax {
    std::string_view null_word = "null", true_word = "true", false_word = "false";
    // On both sides of a string, which is as it is between them. Empty: strings are those of JSON.
    std::string_view string_mark = {};
    // Between the name and the value of an argument, and of an object's member.
    std::string_view argument_colon = ":", colon = ":";
    std::string_view comma = ",";
    bool quotes_names = false;  // of members: they are JSON strings
    bool sorts_names = false;   // as the template does, capitals like small letters
    // What no name without quotes holds. Arguments' names have none.
    std::string_view not_in_names = {};
  };

  // How a call is written, for grammars that make a model write one. `[ID]` stands for an id of
  // nine characters, `[N]` for digits.
  struct Forced {
    std::string_view open = {}, close = {};  // around all calls
    std::string_view before_name = {}, before_arguments = {}, after_call = {};
    std::string_view between = {};  // calls
    bool one_call = false;          // an answer has no room for more
    // For arguments that are no JSON object: each one's name and value stand between these. Strings
    // are as they are, other values JSON.
    std::string_view before_key = {}, before_value = {}, after_value = {};
    // In place of `before_value` where a value is JSON, if that is written otherwise.
    std::string_view before_json_value = {};
    // Or the arguments are the members of an object in this syntax.
    const ValueSyntax* values = nullptr;
  };

  std::string_view name;
  std::vector<std::string_view> aliases = {};  // vLLM's names for it
  Signs signs = {};
  CallIds ids = CallIds::kRandom;
  std::vector<Reasoning> reasoning = {};
  std::vector<Block> blocks = {};
  // Left out wherever they stand in the content: frames around it.
  std::vector<std::string_view> frames = {};
  // Left out where they follow a call: closers that come twice, or without the call's own.
  std::vector<std::string_view> strays = {};
  // Left out at the end of the text: tokens that end a turn.
  std::vector<std::string_view> ends = {};
  // The text is a row of messages, each of which begins with what this reads and ends with one of
  // `message_ends`.
  BlockParser message = nullptr;
  std::vector<std::string_view> message_ends = {};
  // Other texts that the parsers look for and that a vocabulary may hold as one special token.
  std::vector<std::string_view> inner = {};
  // In one of these forms.
  std::vector<Forced> forced = {};
  // What stands around thoughts, for grammars, where that is not the first of `reasoning`.
  Reasoning thoughts = {};
  // What comes before content that has a form of its own, after the thoughts.
  std::string_view before_content = {};
};

// Every dialect, in the order of their names' list.
const std::vector<const Dialect*>& all_dialects();
// By name or alias. Null: there is none.
const Dialect* find_dialect(std::string_view name);

// What reads an answer; null: nothing does.
struct DialectChoice {
  const Dialect* calls = nullptr;
  const Dialect* reasoning = nullptr;
};
// The dialect that a chat template (its text) shows to the model.
DialectChoice detect_dialect(std::string_view chat_template);

// Every text of the choice's dialects that may be one token: what must stay in a text that is to be
// parsed, special or not.
std::vector<std::string_view> marker_texts(const DialectChoice& choice);

// Whether an answer that continues `prompt` begins inside reasoning that the prompt has opened: at
// its end, or in its last `continued` bytes, which are the beginning of the answer.
bool starts_in_reasoning(const Dialect& dialect, std::string_view prompt, size_t continued);

}  // namespace quire::dialects
