#pragma once
#include "base/json.h"
#include "bench/engine/offline.h"

namespace quire::bench {

// vLLM's names and defaults.
struct LatencyOptions {
  int64_t input_len = 32, output_len = 128, batch_size = 8;
  int64_t num_iters = 30, num_iters_warmup = 10;
  uint64_t seed = 0;
};

// How long one batch takes, from its submission to its last token. Prints vLLM's lines and returns
// the figures under its JSON keys. Throws LoadError if the engine does not take such requests.
json::object measure_latency(const BenchEngine& model, const LatencyOptions& options);

}  // namespace quire::bench
