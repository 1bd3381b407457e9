#include "cli/flags.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "cli/flag_checks.h"
#include "cli/flag_groups.h"
#include "cli/model_name.h"
#include "engine/kv_storage_names.h"

namespace quire::cli {
namespace {

std::vector<std::string> kv_storage_names() {
  std::vector<std::string> names;
  for (const engine::KvStorageName& entry : engine::kKvStorageNames) names.emplace_back(entry.name);
  return names;
}

}  // namespace

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("model,--model", flags.model,
                 "Model folder (config.json, tokenizer.json or tekken.json, *.safetensors), a GGUF "
                 "file, or ORG/NAME[@REV] of a hub")
      ->required()
      ->type_name("DIR|FILE|NAME");
  app.add_option("--chat-template", flags.chat_template,
                 "Jinja template instead of the model's: a file, or the text itself")
      ->type_name("FILE|TEXT");
  app.add_option("--device", flags.device,
                 "Where to compute: auto (an NVIDIA GPU that can, else the CPU), cpu, cuda, metal")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "metal"}))
      ->capture_default_str();
  app.add_option("--dtype", flags.dtype,
                 "Weights and activations: auto (as stored), bfloat16, float16, float32")
      ->check(CLI::IsMember({"auto", "bfloat16", "float16", "float32", "half", "float"}))
      ->capture_default_str();
  app.add_option("--threads", flags.threads,
                 "Compute threads (on a GPU: those that load the model and work on grammars); 0: "
                 "one per physical core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option(
         "--spread-memory", flags.spread_memory,
         "Weights and caches on the CPU: auto (over the NUMA nodes whose cores are used, if "
         "these are several and no policy is set), off (where the system puts them)")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
  app.add_option("--max-model-len", flags.max_model_len,
                 "Longest sequence in tokens, prompt and answer (4096, 32k, 32K); default: what "
                 "the model and memory allow");
  app.add_option("--max-num-seqs", flags.max_num_seqs, "Most sequences in one step")
      ->check(CLI::Range(1, 65535))
      ->default_str("128, on a GPU 256");
  app.add_option("--max-num-batched-tokens", flags.max_num_batched_tokens,
                 "Most tokens in one step; longer prompts are fed in chunks")
      ->check(CLI::Range(1, 1 << 20))
      ->default_str("2048, on a GPU 8192");
  app.add_option("--block-size", flags.block_size, "Tokens in a KV cache block")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option(
         "--kv-cache-dtype", flags.kv_cache_dtype,
         "Storage of keys and values: the model's dtype (auto), or one byte for each element "
         "with a scale for each token and head (int8; fp8 and fp8_e4m3 are the same)")
      ->check(CLI::IsMember(kv_storage_names()))
      ->capture_default_str();
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", flags.prefix_caching,
               "Reuse the KV cache of prompts that begin alike (default on)");
  app.add_option(
         "--state-checkpoint-slots", flags.state_checkpoint_slots,
         "Hybrid models: saved recurrent states, from which prompts that begin alike go on; "
         "0: no reuse; -1: what a quarter of the cache's memory holds")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--state-checkpoint-interval", flags.state_checkpoint_interval,
                 "Hybrid models: a state is saved every so many tokens, rounded up to whole "
                 "blocks, so that "
                 "the next turn of a chat goes on from there; 0: only at the ends of prompts and "
                 "where they "
                 "part, and the next turn computes the last answer again")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
  app.add_option("--num-gpu-blocks-override", flags.num_blocks,
                 "KV cache size in blocks, whatever memory allows")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  app.add_option("--kv-cache-memory,--kv-cache-memory-bytes", flags.kv_cache_memory,
                 "KV cache size in bytes (4GiB, 500M); default: half of the free memory (on a GPU: "
                 "what --gpu-memory-utilization leaves), at most what all sequences at full length "
                 "take, and as much again for cached prefixes");
  app.add_option("--gpu-memory-utilization", flags.gpu_memory_utilization,
                 "On a GPU: share of its memory for weights, steps and caches together. With "
                 "--kv-cache-memory or --num-gpu-blocks-override: what is free")
      ->check(CLI::Range(0.01, 1.0))
      ->check(not_nan())
      ->default_str("0.9");
  app.add_flag("--async-scheduling,!--no-async-scheduling", flags.lookahead,
               "Launch the next step before this one's tokens are read (default on; the output is "
               "the same)");
  app.add_flag(
      "--portable-bits", flags.portable_bits,
      "Give the same output, bit for bit, on CPUs with AMX, AVX-512 and AVX2, and on all "
      "of 64-bit ARM; costs speed only on those with AVX512-BF16 and no AMX, or ARM's BF16");
  app.add_option(
         "--quant-activations", flags.quant_activations,
         "Models whose weights are whole numbers of 2 to 8 bits (MLX's affine ones, GGUF, AWQ, "
         "GPTQ, pack-quantized, int-quantized) or floats of 4 bits (MXFP4, NVFP4): int8 also "
         "rounds what goes into each linear layer to 8 bits, by groups: less exact; how fast it is "
         "depends on the CPU and on the number of rows, see docs/benchmarks.md. auto: where the "
         "model's config asks for it (W8A8), with one scale for each token, as it asks")
      ->check(CLI::IsMember({"auto", "none", "int8"}))
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Seed of requests that bring none")->capture_default_str();
  group_flags(app);
}

void add_profile_flag(CLI::App& app, bool& profile) {
  app.add_flag("--profile", profile,
               "Print where the time of a step goes: kernels, scheduling, building, sampling, "
               "waiting");
}

void add_config_flag(CLI::App& app) {
  app.add_option("--config",
                 "File with flags, a line each: max-model-len: 4096. Variables "
                 "QUIRE_MAX_MODEL_LEN come before it, the command line before both")
      ->type_name("FILE");
  group_flags(app);
}

void add_queue_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option(
         "--max-step-time", flags.max_step_time,
         "Milliseconds that a step may take while answers are being written, and a second after "
         "others' answers: prompts get what fits; alone they get whole chunks. -1: 2.2 times as "
         "long as without prompts (2.7 times in every other step, where prompts are deep), "
         "but 6 ms in any case, on a GPU 50; 0: no limit")
      ->check(CLI::IsMember({-1.0}) | CLI::Range(0.0, 1e6))
      ->check(not_nan())
      ->capture_default_str();
  app.add_option(
         "--scheduling-policy", flags.policy,
         "fcfs or priority (a request's `priority`, lower first among those of its API key)")
      ->check(CLI::IsMember({"fcfs", "priority"}))
      ->capture_default_str();
  app.add_option(
         "--max-num-queued-reqs", flags.max_waiting,
         "Requests that may wait; more get a 429. With several keys, or beyond loopback, one "
         "client gets half of what the others leave")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  app.add_option("--max-num-queued-tokens", flags.max_waiting_tokens,
                 "Prompt tokens that may wait, shared in the same way; more get a 429; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  group_flags(app);
}

void find_model_folder(ModelFlags& flags) {
  ModelPlace place = find_model(flags.model);
  flags.model = std::move(place.folder);
  flags.name = std::move(place.name);
}

int64_t parse_size(const std::string& text, const std::string& flag) {
  const auto bad = [&] {
    return LoadError(flag + ": '" + text + "' is not a size; write 4096, 4k, 4K, 500M or 4GiB");
  };
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    throw bad();
  }
  std::string suffix = text.substr(used);
  const bool binary = suffix.size() == 3 && suffix.substr(1) == "iB";
  if (binary) suffix.resize(1);
  if (suffix.size() == 2 && suffix[1] == 'B') suffix.resize(1);
  int power = 0;
  if (suffix.size() == 1) {
    const size_t at = std::string("kmgt").find(static_cast<char>(std::tolower(suffix[0])));
    if (at == std::string::npos) throw bad();
    power = static_cast<int>(at) + 1;
  } else if (!suffix.empty()) {
    throw bad();
  }
  const bool lower =
      suffix.size() == 1 && std::islower(static_cast<unsigned char>(suffix[0])) && !binary;
  value *= std::pow(lower ? 1000.0 : 1024.0, power);
  if (value == 0) throw LoadError(flag + " must be more than 0");
  if (!(value >= 1 && value < 9e18)) throw bad();
  return static_cast<int64_t>(value);
}

engine::SchedulerOptions scheduler_options(const ModelFlags& flags, const StepSize& usual) {
  engine::SchedulerOptions options;
  options.max_num_batched_tokens =
      flags.max_num_batched_tokens > 0 ? flags.max_num_batched_tokens : usual.tokens;
  options.max_num_seqs =
      std::max(flags.max_num_seqs > 0 ? flags.max_num_seqs : usual.sequences, flags.least_num_seqs);
  options.max_step_seconds = flags.max_step_time < 0 ? engine::SchedulerOptions::kAutoStepTime
                                                     : flags.max_step_time / 1000;
  options.least_step_seconds = usual.least_seconds;
  options.chunks_have_base = usual.chunks_have_base;
  options.min_chunk = usual.min_chunk;
  options.max_adapters = flags.lora.max_loras;
  options.block_size = flags.block_size;
  options.enable_prefix_caching = flags.prefix_caching;
  options.state_checkpoint_interval = flags.state_checkpoint_interval;
  options.policy = flags.policy == "priority" ? engine::SchedulingPolicy::kPriority
                                              : engine::SchedulingPolicy::kFcfs;
  return options;
}

ops::KvStorage kv_storage(const ModelFlags& flags) {
  return engine::find_kv_storage(flags.kv_cache_dtype).value();  // the flag's check knows the names
}

engine::MemoryRequest memory_request(const ModelFlags& flags) {
  engine::MemoryRequest request;
  request.kv_storage = kv_storage(flags);
  request.num_blocks = flags.num_blocks;
  request.state_checkpoints = flags.state_checkpoint_slots;
  request.gpu_memory_utilization = flags.gpu_memory_utilization;
  if (!flags.kv_cache_memory.empty())
    request.kv_cache_bytes = parse_size(flags.kv_cache_memory, "--kv-cache-memory");
  if (!flags.max_model_len.empty())
    request.max_model_len = parse_size(flags.max_model_len, "--max-model-len");
  return request;
}

}  // namespace quire::cli
