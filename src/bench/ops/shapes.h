#pragma once
#include <string>

#include "bench/ops/op_bench.h"
#include "ops/layout/batch_layout.h"

namespace quire::bench {

// Qwen3-0.6B.
inline constexpr int kHidden = 1024, kIntermediate = 3072, kHeads = 16, kKvHeads = 8,
                     kHeadDim = 128;
inline constexpr int kVocab = 151936;
// GLM-4.7-Flash's latent attention.
inline constexpr int kMlaHeads = 20, kMlaKeyDim = 192, kMlaRotary = 64, kMlaLatent = 512;
inline constexpr int kMlaValueDim = 256;

// A stream, a full batch, a part of a prompt.
inline constexpr int kRowCounts[] = {1, 32, 2048};

inline std::string with_rows(const char* name, int rows) {
  return std::string(name) + "/T=" + std::to_string(rows);
}

// An op on activations: less than a MiB a model finds in its caches.
inline OpWork activation_work(double bytes) {
  return {.bytes = bytes, .in_cache = bytes < (1 << 20)};
}

// One prompt of `rows` tokens in the first blocks.
ops::BatchLayoutPtr prompt_layout(int rows);

}  // namespace quire::bench
