#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/adapter_flags.h"
#include "engine/engine.h"
#include "engine/memory_budget.h"
#include "models/model.h"
#include "ops/metal/metal_device.h"

namespace quire::cli {

// What the flags of every command that loads a model say. Spelled as vLLM's where vLLM has them.
struct ModelFlags {
  std::string model;          // a folder, or a hub's name until find_model_folder()
  std::string name;           // ORG/NAME if that was given, else empty
  std::string chat_template;  // a file, or the template itself; empty: the model's own
  std::string json_whitespace = "bounded";
  std::string device = "auto";
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  int threads = 0;  // 0: one per physical core that this process may use
  std::string spread_memory = "auto";
  std::string max_model_len, kv_cache_memory;
  int64_t num_blocks = 0;
  int64_t max_num_seqs = 0, max_num_batched_tokens = 0;  // 0: as usual on the device
  int64_t least_num_seqs = 0;                            // what a benchmark needs at least
  double gpu_memory_utilization = 0;                     // 0: see memory_request
  int64_t block_size = 16;
  bool prefix_caching = true;
  int64_t state_checkpoint_slots = -1;  // -1: by memory
  int64_t state_checkpoint_interval = 512;
  bool lookahead = true;
  std::string policy = "fcfs";
  double max_step_time = -1;  // milliseconds; -1: by the steps' own time; 0: no limit
  uint64_t seed = 0;
  int64_t max_waiting = 4096;
  int64_t max_waiting_tokens = 0;  // 0: no limit
  bool portable_bits = false;
  std::string quant_activations = "auto";
  AdapterFlags lora;
  std::vector<NamedAdapter> adapters;     // of `lora`, once it is parsed
  bool head_optional = false;             // only embeddings are wanted
  bool profile = false;                   // time every step and kernel
  models::AblationOptions ablation = {};  // benchmarks only, as the next
  ops::MetalWays metal_ways = {};
  bool join_kernels = true;
  bool replay_decodes = true;
};

// Fetches the model if a hub's name was given: `model` is a folder from then on. Throws LoadError.
void find_model_folder(ModelFlags& flags);
void add_model_flags(CLI::App& app, ModelFlags& flags);
// --config, whose file main() has read by then (config_file.h).
void add_config_flag(CLI::App& app);
// Of commands that have several requests at work.
void add_queue_flags(CLI::App& app, ModelFlags& flags);
// --profile, with one meaning for every command that runs a model.
void add_profile_flag(CLI::App& app, bool& profile);

// "4GiB", "512M", "2g" or plain bytes. K, M, G are powers of 1000 in lower case and of 1024
// otherwise, as vLLM reads
// --max-model-len (1k = 1000, 1K = 1024); "iB" is always 1024. Throws LoadError naming `flag`.
int64_t parse_size(const std::string& text, const std::string& flag);

// Sequences and tokens of a step, and what --max-step-time -1 is at least, where the flags do not
// say: a GPU needs more to be busy, and a short chunk takes it as long as one of hundreds of
// tokens, since only steps without prompts are recorded.
struct StepSize {
  int64_t sequences, tokens;
  double least_seconds;
  bool chunks_have_base;  // as SchedulerOptions', as the next
  int64_t min_chunk;
};
inline constexpr StepSize kCpuStep{128, 2048, 0.006, false, 4},
    kGpuStep{256, 8192, 0.050, true, 128};

// The scheduler's part of the flags; num_blocks and max_model_len are filled in by the memory
// budget.
engine::SchedulerOptions scheduler_options(const ModelFlags& flags, const StepSize& usual);
engine::MemoryRequest memory_request(const ModelFlags& flags);

}  // namespace quire::cli
