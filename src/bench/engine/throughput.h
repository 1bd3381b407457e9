#pragma once
#include <vector>

#include "base/json.h"
#include "bench/dataset.h"
#include "bench/engine/offline.h"

namespace quire::bench {

struct SweepOptions {
  std::vector<int64_t> concurrency = {1, 8, 32};  // requests at once, one run each
  int64_t input_len = 512, output_len = 128;
  uint64_t seed = 0;
};

// Random prompts, so many at once: prefill and decode apart. Prints a line for each run and returns
// their figures. Throws LoadError if the engine does not take such requests, as the next.
json::value sweep_concurrency(const BenchEngine& model, const SweepOptions& options);

// All prompts of a data set at once; vLLM's lines and JSON keys.
json::value run_dataset(const BenchEngine& model, std::vector<Prompt> prompts,
                        uint64_t warmup_seed);

}  // namespace quire::bench
