#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "server/options.h"

namespace quire::server::openai {

// What the answer must look like, as the client wrote it.
struct Constraint {
  text::GrammarSpec::Kind kind;
  std::string source;
  std::string param;  // the field it came from, for errors
};

// What completions and chat completions have in common.
struct GenerationRequest {
  std::string model;       // empty: not given
  std::string request_id;  // empty: not given

  // Complete but for max_tokens and each choice's seed.
  engine::SamplingParams sampling;
  std::optional<int64_t> max_tokens;
  int64_t n = 1;
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  std::optional<Constraint> constraint;
  std::string cache_salt;
  int32_t priority = 0;

  std::optional<int64_t> truncate_prompt_tokens;  // -1: to the model's length
  bool truncate_left = true;                      // what is cut off
  bool add_special_tokens = true;
  bool echo = false;

  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest : GenerationRequest {
  std::vector<Prompt> prompts;
};

// What a chat template makes a prompt of.
struct ChatInput {
  json::array messages;  // contents are strings
  std::optional<json::array> tools;
  std::optional<json::array> documents;
  json::object template_kwargs;
  std::optional<std::string> chat_template;  // the client's own
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

struct ChatRequest : GenerationRequest {
  ChatInput chat;
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatInput> input;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};

}  // namespace quire::server::openai
