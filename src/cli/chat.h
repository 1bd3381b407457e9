#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quire::cli {

// How the next answers are made. Absent: as the model's generation_config.json says.
struct ChatSettings {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_tokens;
  std::optional<uint64_t> seed;
  std::optional<bool> think;  // enable_thinking of the chat template

  // Of /set NAME VALUE; "default" takes a value back. The error is a sentence.
  Result<void, std::string> set(const std::string& name, const std::string& value);
  // "temperature 0.6, seed 1": what was set; empty: nothing.
  std::string text() const;
};

// The conversation: turns of user and assistant, and a system message before them.
class Chat {
 public:
  std::string system;

  void add_user(const std::string& text);
  void add_answer(const std::string& content, const std::string& reasoning);
  // As chat templates take it.
  json::array messages() const;
  size_t turns() const;  // of the user
  bool empty() const { return turns_.empty(); }
  void clear() { turns_.clear(); }
  // Takes the last answer back, so that it can be made anew. False: there is none.
  bool take_answer_back();
  // Takes the last message of the user back, and what follows.
  void take_turn_back();
  // Leaves the oldest turn of the user and its answer out. False: it is the only one.
  bool drop_oldest();

  // For /save and /load. Throws LoadError naming the file; load() changes nothing then.
  void save(const std::string& path) const;
  void load(const std::string& path);

 private:
  json::array turns_;
};

// A line that begins with a slash, in words; nothing if it is a message. "//x" is the message "/x".
struct ChatCommand {
  std::string name, rest;
};
std::optional<ChatCommand> parse_command(std::string& line);

// The text of /help.
std::string chat_help();
// All commands' names, with their slashes.
std::vector<std::string> chat_commands();

}  // namespace quire::cli
