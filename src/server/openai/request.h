#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "server/openai/known_fields.h"
#include "server/options.h"

namespace quire::server::openai {

// What the answer must look like, as the client wrote it.
struct Constraint {
  text::GrammarSpec::Kind kind;
  std::string source;
  std::string param;  // the field it came from, for errors
};

// A tool inside a namespace, which has one name for the model.
struct PlacedTool {
  std::string space, name;
};

// What the answer to a request of /v1/responses has from the request.
struct ResponsesEcho {
  std::string members;                                          // of a JSON object
  std::map<std::string, PlacedTool, std::less<>> placed_tools;  // by the name for the model
  bool seals_reasoning = false;                                 // see responses/parse.h
};

// What all generations have in common.
struct GenerationRequest {
  enum class Api { kOpenAi, kMessages, kResponses };
  Api api = Api::kOpenAi;  // whose form the answer has
  std::string model;       // empty: not given
  std::string request_id;  // empty: not given

  // Complete but for max_tokens and each choice's seed.
  engine::SamplingParams sampling;
  std::optional<int64_t> max_tokens;
  const char* max_tokens_field = "max_tokens";  // the name it was sent by
  bool cuts_max_tokens = false;  // to what the context leaves; else more than that is an error
  int64_t n = 1;
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  std::vector<std::string> bad_words;  // without white space before them
  bool skip_special_tokens = true;
  std::optional<Constraint> constraint;
  bool needs_grammar = false;  // for that, or for calls or thinking
  std::string cache_salt;
  int32_t priority = 0;

  std::optional<int64_t> truncate_prompt_tokens;  // -1: to the model's length
  bool truncate_left = true;                      // what is cut off
  bool add_special_tokens = true;
  bool leaves_room = true;  // in the context for an answer
  bool echo = false;

  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;

  UnknownFields unknown_fields;
  UnknownFields left_out_tools;          // the kinds of those that cannot be offered here
  bool left_out_billing_header = false;  // see anthropic/parse.h
  std::shared_ptr<const ResponsesEcho> responses = {};  // with kResponses
};

// Whether and how much the model is to think, by whatever name the client asked for it.
struct ReasoningWish {
  std::optional<bool> thinking;
  std::optional<std::string> effort;                       // "none" to "max"
  std::optional<int64_t> budget;                           // tokens of thinking
  std::string thinking_field, effort_field, budget_field;  // the names, for errors
  bool exclude = false;  // what it thinks is left out of the answer
  bool is_hint = false;  // left out where the model's template or dialect has no way to do it
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest : GenerationRequest {
  std::vector<Prompt> prompts;
};

// What a chat template makes a prompt of.
struct ChatInput {
  const char* field = "messages";  // of the request, for errors
  json::array messages;            // contents are strings
  // Of messages that came with a list of text parts, by their index: that list.
  std::vector<std::pair<size_t, json::array>> parts;
  UnknownFields message_keys;  // of messages and calls in them, that only a chat template may read
  UnknownFields unread_keys;   // of contents and items, which nothing reads
  bool has_text_arguments = false;  // calls in them with arguments that are no JSON object
  std::optional<json::array> tools;
  std::vector<std::string> schema_fields;  // of the tools; empty: where a chat has them
  std::optional<json::array> documents;
  json::object template_kwargs;
  ReasoningWish reasoning;
  std::optional<std::string> chat_template;  // the client's own
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

struct ChatRequest : GenerationRequest {
  ChatInput chat;
  bool parses_calls = false;      // tools are offered, and calls may be made
  bool parses_reasoning = true;   // else it is content
  bool include_reasoning = true;  // else it is left out
  bool parallel_tool_calls = true;
  // An answer that consists of calls, to any of `callable`.
  bool requires_calls = false;
  std::set<std::string, std::less<>> callable;  // empty: every tool
  bool may_call(std::string_view tool) const { return callable.empty() || callable.contains(tool); }
  bool has_strict_tools = false;
  std::optional<int64_t> thinking_budget;  // tokens
  std::string thinking_budget_field;       // its name, for errors
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatInput> input;
  bool add_special_tokens = true;
  bool return_token_strs = false;
  UnknownFields unused_fields;  // of a generation
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
  UnknownFields unused_fields;  // of a generation
};

}  // namespace quire::server::openai
