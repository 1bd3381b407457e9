#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "ops/runtime/context.h"

namespace quire::parity {

// How the engine is set up. The answers must not depend on anything but dtype and, for longrope,
// max_model_len.
struct EngineSetup {
  std::string checkpoint;  // a name, or an absolute path
  mlx::core::Dtype dtype = mlx::core::float32;
  int threads = 2;
  int64_t max_model_len = 512;
  int64_t max_num_seqs = 16;
  int64_t max_num_batched_tokens = 2048;
  bool prefix_caching = false, lookahead = false;
  std::optional<bool> int8_activations = false;  // LoadOptions'
  std::vector<std::string> adapters = {};        // folders
  models::AblationOptions ablation = {};
  std::function<void()> once_loaded = {};
  ops::KvStorage kv_storage = ops::KvStorage::kAuto;
};

struct Job {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  int32_t logprobs = -1, prompt_logprobs = -1;
  std::optional<engine::Pooling> pooling = {};
  int32_t adapter = -1;  // of EngineSetup::adapters
  float temperature = 0;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<engine::TokenLogprob> logprobs, prompt_logprobs;
  std::vector<float> pooled;
  std::optional<engine::FinishReason> finish;
  std::string error;
};

// Loads the checkpoint and answers all jobs, submitted at once.
std::vector<Answer> run_engine(const EngineSetup& setup, const std::vector<Job>& jobs,
                               const ops::Context& context);

}  // namespace quire::parity
