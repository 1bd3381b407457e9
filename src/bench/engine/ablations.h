#pragma once
#include <vector>

#include "base/json.h"
#include "engine/engine.h"

namespace quire::bench {

// An engine with one design decision switched off.
struct AblationVariant {
  const char* name;
  const char* meaning;
  engine::Engine& engine;
};

struct AblationOptions {
  int64_t input_len = 512, output_len = 129;
  int64_t concurrency = 8;  // requests at once, beside one alone
  int64_t rounds = 3;
  uint64_t seed = 0;
};

// Measures the variants in turns and prints their median rates beside those of the first. Returns
// the figures. Throws LoadError if the engines do not take such requests.
json::array run_ablations(const std::vector<AblationVariant>& variants,
                          const AblationOptions& options);

}  // namespace quire::bench
