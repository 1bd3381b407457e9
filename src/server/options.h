#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http/options.h"
#include "text/chat_template.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace quire::server {

// Bounds of one request. All are checked before anything is allocated for what they bound.
struct RequestLimits {
  int64_t max_n = 64;
  int64_t max_generations = 1024;  // prompts times n
  int64_t max_stops = 16;
  int64_t max_stop_bytes = 4096;  // of one stop string
  int64_t max_stop_token_ids = 1024;
  int64_t max_logit_bias = 1024;
  int64_t max_logprobs = 20;
  int64_t max_tools = 1024;
  size_t max_json_depth = 128;
};

struct ServerOptions {
  http::HttpOptions http;
  RequestLimits limits;
  std::vector<std::string> api_keys;            // empty: open to everybody
  std::vector<std::string> served_model_names;  // the first is the one in answers
  std::string root_path;                        // in front of every path: "/quire"
  bool trust_request_chat_template = false;     // whether requests may bring a chat_template
  bool access_log = true;
};

// What generation_config.json says where a request is silent; OpenAI's defaults where it is too.
struct SamplingDefaults {
  float temperature = 1.0f, top_p = 1.0f, min_p = 0.0f, repetition_penalty = 1.0f;
  int32_t top_k = 0;
  std::optional<int64_t> max_new_tokens;
};

// The text side of the served model.
struct ModelText {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null: chat is refused
  std::shared_ptr<const text::GrammarFactory> grammars;     // null: constraints are refused
  std::vector<int32_t> eos_token_ids;
  SamplingDefaults defaults;
};

}  // namespace quire::server
