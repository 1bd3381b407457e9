#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dialects/dialect.h"
#include "engine/request.h"
#include "server/http/options.h"
#include "text/chat_template.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace quire::server {

// Bounds of one request. All are checked before anything is allocated for what they bound.
struct RequestLimits {
  int64_t max_n = 64;
  int64_t max_generations = 1024;   // prompts times n
  int64_t max_pooled_texts = 2048;  // of a request for embeddings or scores; OpenAI's
  int64_t max_stops = 16;
  int64_t max_stop_bytes = 4096;  // of one stop string
  int64_t max_stop_token_ids = 1024;
  int64_t max_logit_bias = 1024;
  int64_t max_bad_words = 1024;
  int64_t max_bad_word_bytes = 256;  // of one of them
  int64_t max_logprobs = 20;
  int64_t max_tools = 1024;
  size_t max_json_depth = 128;
  size_t max_json_members = 16384;       // of one object; if all collide, reading it takes a second
  size_t max_tokenize_bytes = 4u << 20;  // of a text for /tokenize
  size_t max_detokenize_ids = 1u << 20;
  int32_t min_priority = std::numeric_limits<int32_t>::min();  // lower runs earlier
};

// What one client may have at work at a time. A client is an API key, or an address if there are
// not several keys.
struct ClientLimits {
  int64_t max_requests = 0;     // 0: no limit
  int64_t max_generations = 0;  // prompts times n of all its requests; 0: no limit
};

// A name that requests may ask for beside the model's own: the model with an adapter (LoRA).
struct ServedAdapter {
  std::string name;
  std::string path;         // as it was given; for clients
  std::string fingerprint;  // `system_fingerprint` of its answers; empty: null
};

// What a server does with its model: all, or only what vLLM's --runner of that name does.
enum class Runner { kAuto, kGenerate, kPooling };

struct ServerOptions {
  http::HttpOptions http;
  RequestLimits limits;
  ClientLimits client_limits;
  std::vector<std::string> api_keys;            // empty: open to everybody
  std::vector<std::string> allowed_origins;     // of parse_allowed_origins()
  bool share_prefix_cache = false;              // between the keys
  std::vector<std::string> served_model_names;  // the first is the one in answers
  std::string fingerprint;                      // `system_fingerprint` of answers; empty: null
  std::vector<ServedAdapter> adapters;          // by the engine's index
  int64_t max_adapters = 0;                     // SchedulerOptions::max_adapters, for monitors
  Runner runner = Runner::kAuto;
  std::string root_path;                     // in front of every path: "/quire"
  bool trust_request_chat_template = false;  // whether requests may bring a chat_template
  bool keep_billing_header = false;          // see anthropic/parse.h
  bool cache_doctor = true;                  // see cache_doctor.h
  bool page = true;                          // whether GET / is the chat page
  bool access_log = true;
  std::vector<std::string> silent_paths;  // without lines in the access log: "/health"
};

// What generation_config.json says where a request is silent; OpenAI's defaults where it is too.
struct SamplingDefaults {
  float temperature = 1.0f, top_p = 1.0f, min_p = 0.0f, repetition_penalty = 1.0f;
  int32_t top_k = 0;
  std::optional<int64_t> max_new_tokens;
};

// Which dialects read the answers of chats. Nothing: what the chat template shows; null: none.
struct ParserChoice {
  std::optional<const dialects::Dialect*> calls, reasoning;
};

// How states become embeddings where a request does not say.
struct PoolingDefaults {
  engine::Pooling::Kind kind = engine::Pooling::Kind::kLast;
};

// How a reranker is asked; see pooling/pair_prompt.h.
struct RerankOptions {
  std::shared_ptr<const text::ChatTemplate> chat_template = nullptr;  // null: Qwen3-Reranker's
  std::vector<std::string> tokens = {"no", "yes"};
  bool has_head = true;  // the model: without one no token has a likelihood
};

// The text side of the served model.
struct ModelText {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null: chat is refused
  std::shared_ptr<const text::GrammarFactory> grammars;     // null: constraints are refused
  std::vector<int32_t> eos_token_ids;
  SamplingDefaults defaults;
  ParserChoice parsers = {};
  PoolingDefaults pooling = {};
  RerankOptions rerank = {};
};

}  // namespace quire::server
