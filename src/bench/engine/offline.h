#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "ops/runtime/profile.h"

namespace quire::bench {

// An engine to measure, and where it counts what its steps take; null: it does not.
struct BenchEngine {
  engine::Engine& engine;
  ops::Profile* profile = nullptr;
};

// One request straight into the engine: greedy, and as long as asked whatever the tokens are.
struct OfflineRequest {
  std::vector<int32_t> prompt;
  int64_t output_len = 0;
};

// Seconds from submitting.
struct OfflineResult {
  double seconds = 0;      // until the last token
  double all_started = 0;  // until every request had its first token
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  std::optional<double> decode_rate;  // bench_stats.h
};

// A rate for a table, "too short" without one; and what to print under the table then.
std::string rate_text(std::optional<double> rate);
inline constexpr const char* kTooShortMeans =
    "too short: too few tokens while all streams decode to tell a rate; raise --output-len";

// "device": "cuda", "device_description": "NVIDIA H200".
void add_device(const engine::Engine& engine, json::object& figures);

// Submits all requests at once and waits for the last token. Throws LoadError if one is refused or
// fails.
OfflineResult run_offline(engine::Engine& engine, const std::vector<OfflineRequest>& requests);

// `count` prompts of random token ids.
std::vector<OfflineRequest> random_requests(int64_t count, int64_t input_len, int64_t output_len,
                                            int64_t vocab_size, uint64_t seed);

// Throws LoadError if a request is longer than the engine takes.
void check_lengths(const engine::Engine& engine, const std::vector<OfflineRequest>& requests);

}  // namespace quire::bench
