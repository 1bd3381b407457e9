#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/work_budget.h"
#include "formats/model_files.h"

namespace quire::text {

// A wall-clock time without a zone, as `strftime_now` shows it.
struct LocalTime {
  int year = 1970, month = 1, day = 1;  // month and day count from 1
  int hour = 0, minute = 0, second = 0;

  static LocalTime now();
};

// Bounds of one rendering; a template that exceeds one fails with an error. The defaults admit any
// template in use on conversations of tens of megabytes.
struct ChatTemplateLimits {
  // Bytes and values read or made by operations; 64 times the input's size is added.
  uint64_t work = 64u << 20;
  uint64_t output_bytes = 64u << 20;  // rendered text, captured blocks included
  uint64_t fuel = 10'000'000;         // template instructions
  int64_t milliseconds = 5'000;       // of processor time
};

// JSON texts; an empty one means "not given" (None in the template).
struct ChatTemplateInput {
  std::string_view messages = {};   // list of objects
  std::string_view tools = {};      // list of objects
  std::string_view documents = {};  // list of objects
  std::string_view kwargs = {};     // object: enable_thinking and whatever else the template reads
  bool add_generation_prompt = true;
  // The rendering stops where the final message's text stops.
  bool continue_final_message = false;
  std::optional<LocalTime> now = {};  // default: the clock
  ChatTemplateLimits limits = {};
  WorkBudget* budget = nullptr;  // null: no limit
};

// A model's chat template, rendered as transformers' apply_chat_template renders it. Immutable and
// thread-safe; neither a hostile template nor hostile input can hang or kill the process.
class ChatTemplate {
 public:
  // From chat_template.jinja, chat_template.json or tokenizer_config.json, in this order; with
  // several named templates the one called "tool_use" serves requests with tools. The special
  // tokens of the model are visible under their names (bos_token, ...). nullptr: the model has
  // none. Throws LoadError naming the file and the reason.
  static std::shared_ptr<const ChatTemplate> load(const std::filesystem::path& model_dir);
  // The same from the files that a model's checkpoint names.
  static std::shared_ptr<const ChatTemplate> load(const formats::ModelFiles& files);

  // From template text. `special_tokens` is a JSON object of names and texts, or empty.
  static Result<std::shared_ptr<const ChatTemplate>, std::string> parse(
      std::string_view source, std::string_view special_tokens);

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // Error: bad JSON, a limit, or what the template itself objects to (the text it gave to
  // raise_exception, word for word).
  Result<std::string, std::string> render(const ChatTemplateInput& input) const;

  // Whether a template of this model looks `variable` up: one that no rendering can depend on is
  // not worth setting. A name in a comment does not count.
  bool reads(std::string_view variable) const;

  // The template's text; of several, one after the other.
  std::string source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace quire::text
