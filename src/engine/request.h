#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/bad_words.h"
#include "text/grammar.h"

namespace quire::engine {

// How tokens are chosen and when generation ends. Checked by the server (types, ranges) and by
// Engine::submit (limits).
struct SamplingParams {
  float temperature = 1.0f;                                 // 0: greedy
  float top_p = 1.0f;                                       // (0, 1]
  float min_p = 0.0f;                                       // [0, 1]
  int32_t top_k = 0;                                        // 0: off
  float presence_penalty = 0.0f, frequency_penalty = 0.0f;  // on produced tokens
  float repetition_penalty = 1.0f;                          // on prompt and produced tokens
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint64_t> seed;  // absent: drawn by the engine
  int32_t logprobs = -1;         // -1: none; n: the chosen token's and the n best
  int32_t prompt_logprobs = -1;  // the same for each prompt token
  int64_t max_tokens = 16;       // produced tokens; the engine lowers it to what the context leaves
  int64_t min_tokens = 0;        // before which neither eos nor stop_token_ids can be sampled
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  // Bit i of word i / 32: token i may be sampled; a word for each 32 tokens of the vocabulary.
  // null: all may. Beside a grammar both must allow a token.
  std::shared_ptr<const std::vector<uint32_t>> allowed_tokens = nullptr;
  std::shared_ptr<const BadWords> bad_words = nullptr;  // null: none
};

// What a request wants to know of its prompt instead of a continuation. Such a request has
// max_tokens 0 and ends with its prompt.
struct Pooling {
  enum class Kind {
    kLast,         // the state behind the last norm, of the last token
    kMean,         // the mean of those of all tokens
    kTokenScores,  // the log-probabilities of `tokens` as the next one
  };
  Kind kind = Kind::kLast;
  std::vector<int32_t> tokens = {};
};

// kRefused: the request cannot be carried out and its client is to blame (a grammar beyond its
// limits). kOverloaded: there is no memory for it at this time.
enum class FinishReason { kStop, kLength, kAbort, kError, kRefused, kOverloaded };

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;
  int32_t rank = 0;  // 1: the most likely
  std::vector<std::pair<int32_t, float>> top;
};

// Times for the metrics, and what the prefix cache saved.
struct RequestStats {
  TimePoint arrived, scheduled, first_token, finished;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, read from the prefix cache
  int64_t output_tokens = 0;
  int32_t preemptions = 0;
};

// What the engine tells about one request. The last event has `finish`; nothing follows it.
struct TokenEvent {
  std::vector<int32_t> tokens;         // newly produced, a stop token included; usually one
  std::vector<TokenLogprob> logprobs;  // one per token if asked for
  std::vector<TokenLogprob>
      prompt_logprobs;        // in the first event if asked for: entries for prompt tokens 1..
  std::vector<float> pooled;  // in the last event of a request with `pooling`, unless it failed
  std::optional<FinishReason> finish;
  std::optional<int32_t> stop_token;  // the stop_token_ids member that ended it; absent for eos
  std::string error;                  // with FinishReason::kError, kRefused and kOverloaded
  RequestStats stats;
  TimePoint known;  // when the host had the tokens of the step that it comes from
};

// Called on the engine thread for each event of a request; must return at once and must not throw.
using TokenSink = std::function<void(TokenEvent&&)>;

// One generation. `n` completions of one prompt are n requests (they share the prompt's blocks).
struct Request {
  std::vector<int32_t> prompt;  // at least one id, each inside the vocabulary
  SamplingParams sampling;
  std::unique_ptr<text::GrammarMatcher> grammar;  // null: unconstrained
  std::optional<Pooling> pooling;                 // then of `sampling` only max_tokens counts
  std::string cache_salt;  // requests share cached prefixes only with the same salt
  int32_t adapter = -1;    // an index of models::LoadOptions::adapters; -1: the base model's own
  int32_t priority = 0;    // lower runs earlier among a tenant's, with the priority policy
  uint64_t tenant = 0;     // takes turns with others: a key, an address or a connection
  bool beside_others = false;  // there may be other tenants, to whom a part of the queue is left
  TokenSink sink;

  // The prefix cache has keys and values, but neither states nor log-probabilities.
  bool reads_every_token() const {
    return sampling.prompt_logprobs >= 0 || (pooling && pooling->kind == Pooling::Kind::kMean);
  }
};

using RequestId = uint64_t;

// Why a request was refused; the server maps the kind to a status.
struct RequestError {
  enum class Kind { kInvalid, kTooLong, kOverloaded, kShuttingDown, kEngineDead };
  Kind kind = Kind::kInvalid;
  std::string message;
  std::string param;        // the field of the request at fault, if one is
  int64_t retry_after = 0;  // with kOverloaded: seconds until there may be a place, at least 1
};

}  // namespace quire::engine
