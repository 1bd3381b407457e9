#include "engine/memory_budget.h"

#ifdef __APPLE__
#include <mach/mach.h>
#endif

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.h"
#include "engine/block_demand.h"
#include "engine/cache_groups.h"
#include "engine/kv_pool.h"
#include "ops/paged_attention/attention_scratch.h"

namespace quire::engine {
namespace {

constexpr double kMiB = 1024.0 * 1024.0, kGiB = 1024.0 * kMiB;
// Room for cached prefixes where few sequences run: conversations that take turns.
constexpr int64_t kCachedSequences = 16;
constexpr double kGpuMemoryUtilization = 0.9;  // vLLM's
// Of a KV cache: kernels count tokens in 32 bits, and bytes in 64.
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max": no limit
}

// The value of `name` in a file of "name value" lines.
std::optional<int64_t> read_entry(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string key;
  for (int64_t value = 0; file >> key >> value;)
    if (key == name) return value;
  return std::nullopt;
}

[[maybe_unused]] std::optional<int64_t> mem_available(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string key, unit;
  for (int64_t value = 0; file >> key >> value; std::getline(file, unit))
    if (key == "MemAvailable:") return value * 1024;
  return std::nullopt;
}

#ifdef __APPLE__
// Pages that are free, or that hold only what is on disk, too.
std::optional<int64_t> mac_available() {
  vm_statistics64 pages{};
  mach_msg_type_number_t words = HOST_VM_INFO64_COUNT;
  vm_size_t page = 0;
  if (host_page_size(mach_host_self(), &page) != KERN_SUCCESS ||
      host_statistics64(mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages),
                        &words) != KERN_SUCCESS)
    return std::nullopt;
  const int64_t count =
      int64_t{pages.free_count} + pages.external_page_count + pages.purgeable_count;
  return count * static_cast<int64_t>(page);
}
#endif

// What the process's own cgroup and its ancestors leave, by the files of v2 or v1.
std::optional<int64_t> cgroup_available(const std::string& root) {
  std::optional<int64_t> least;
  // The usage counts files that were read, which go when memory is wanted. `prefix` of the names in
  // memory.stat.
  const auto consider = [&](const std::string& dir, const char* limit_name, const char* usage_name,
                            const std::string& prefix) {
    const auto limit = read_number(dir + limit_name), usage = read_number(dir + usage_name);
    if (!limit || !usage) return;
    int64_t free = *limit - *usage;
    for (const char* list : {"active_file", "inactive_file"})
      free += read_entry(dir + "/memory.stat", prefix + list).value_or(0);
    least = std::min(least.value_or(std::numeric_limits<int64_t>::max()), free);
  };
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("memory") == std::string::npos) continue;
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      if (v2) {
        consider(root + "/sys/fs/cgroup" + path, "/memory.max", "/memory.current", "");
      } else {
        consider(root + "/sys/fs/cgroup/memory" + path, "/memory.limit_in_bytes",
                 "/memory.usage_in_bytes", "total_");
      }
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

// Memory for all pools, where nothing else is asked for.
int64_t pool_bytes(const MemoryBudget& budget) {
  const int64_t rest = std::max<int64_t>(0, budget.available - budget.activations);
  return budget.is_lazy ? rest / 2 : rest;
}

void choose_state_slots(MemoryBudget& budget, const SchedulerOptions& options,
                        const MemoryRequest& request) {
  // Beyond this many for each sequence there is nothing left to save.
  constexpr int64_t kMostCheckpointsPerSequence = 16;
  if (budget.state_slot_bytes == 0) return;
  const int64_t fit = pool_bytes(budget) / budget.state_slot_bytes;
  budget.state_slots = std::clamp<int64_t>(fit / 2, 1, options.max_num_seqs);
  if (!options.enable_prefix_caching) return;
  budget.state_checkpoints =
      request.state_checkpoints >= 0
          ? request.state_checkpoints
          : std::min(fit / 4, kMostCheckpointsPerSequence * options.max_num_seqs);
  if (budget.state() > budget.available) {
    throw LoadError("the recurrent states of " + std::to_string(budget.state_slots) +
                    " sequences and " + std::to_string(budget.state_checkpoints) +
                    " checkpoints need " + std::to_string(budget.state() >> 20) +
                    " MiB, but there are " + std::to_string(budget.available >> 20) +
                    " MiB; lower --state-checkpoint-slots or --max-num-seqs");
  }
}

// Of a sequence of so many tokens, while its prompt is fed as fast as steps allow.
int64_t blocks_of(int64_t tokens, const BlockDemand& demand, const SchedulerOptions& options) {
  return demand.most_blocks(0, tokens, options.max_num_batched_tokens);
}

int64_t choose_blocks(const MemoryBudget& budget, const SchedulerOptions& options,
                      const BlockDemand& demand, int64_t block_bytes,
                      const MemoryRequest& request) {
  if (request.num_blocks > 0) return request.num_blocks;
  const int64_t blocks_per_sequence = blocks_of(budget.max_model_len, demand, options);
  if (request.kv_cache_bytes > 0 && block_bytes > 0) return request.kv_cache_bytes / block_bytes;
  const int64_t cached =
      options.enable_prefix_caching ? options.max_num_seqs + kCachedSequences : 0;
  const int64_t useful = blocks_per_sequence * (options.max_num_seqs + cached);
  const int64_t bytes = std::max<int64_t>(0, pool_bytes(budget) - budget.state());
  return block_bytes == 0
             ? useful
             : std::min({bytes / block_bytes, useful, kMostTokens / options.block_size});
}

void check_blocks(const MemoryBudget& budget, const SchedulerOptions& options, int64_t block_bytes,
                  const MemoryRequest& request) {
  if (block_bytes == 0) return;
  // The host's steps find room in what the pools do not use yet; a device's own memory is taken.
  const int64_t room =
      budget.is_lazy ? budget.available
                     : std::max<int64_t>(0, budget.available - budget.activations - budget.state());
  const std::string remedy =
      std::string("; lower ") +
      (request.num_blocks > 0 ? "--num-gpu-blocks-override" : "--kv-cache-memory");
  if (budget.num_blocks > room / block_bytes)
    throw LoadError("a KV cache of " + std::to_string(budget.num_blocks) + " blocks of " +
                    std::to_string(block_bytes) + " bytes does not fit the " +
                    std::to_string(room >> 20) + " MiB of memory there are" + remedy);
  if (budget.num_blocks > kMostTokens / options.block_size)
    throw LoadError("a KV cache of " + std::to_string(budget.num_blocks) + " blocks of " +
                    std::to_string(options.block_size) + " tokens is over the limit of " +
                    std::to_string(kMostTokens) + " tokens" + remedy);
}

// Long enough for a prompt of usual length to begin on memory that is there.
int64_t choose_ready_kv(const MemoryBudget& budget, const SchedulerOptions& options,
                        const BlockDemand& demand, int64_t block_bytes) {
  if (!budget.is_lazy) return 0;
  constexpr int64_t kReadyTokens = 16384, kReadyBytes = int64_t{2} << 30;
  return std::min({budget.weights, kReadyBytes, budget.kv_cache / 4,
                   blocks_of(kReadyTokens, demand, options) * block_bytes});
}

}  // namespace

int64_t most_rows(const SchedulerOptions& options) {
  return std::min(options.max_num_batched_tokens,
                  options.max_num_seqs + options.max_prompt_logprob_rows);
}

namespace {

// Layers with the same heads and windows share a step's lists. Queries have no more heads than the
// widest activation has room for.
std::vector<ops::AttentionKind> attention_kinds(const std::vector<models::CacheSpec>& caches,
                                                int64_t widest_activation) {
  std::set<std::tuple<int64_t, int64_t, int64_t>> seen;
  std::vector<ops::AttentionKind> kinds;
  for (const models::CacheSpec& cache : caches) {
    const auto* kv = std::get_if<models::KvCacheSpec>(&cache);
    if (!kv || !seen.emplace(kv->kv_heads, kv->head_dim, kv->window_left).second) continue;
    kinds.push_back({.heads = std::max(kv->kv_heads, widest_activation / kv->head_dim),
                     .kv_heads = kv->kv_heads});
  }
  return kinds;
}

}  // namespace

int64_t activation_bytes(const std::vector<models::CacheSpec>& caches, int64_t widest_activation,
                         int64_t vocab, mx::Dtype dtype, const SchedulerOptions& options,
                         bool is_gpu) {
  constexpr int64_t kLiveActivations = 8;
  const int64_t rows =
      (is_gpu ? most_rows(options) : options.max_num_seqs) + 2 * options.max_num_seqs;
  return kLiveActivations * options.max_num_batched_tokens * widest_activation *
             static_cast<int64_t>(mx::size_of(dtype)) +
         rows * vocab * static_cast<int64_t>(sizeof(float)) +
         (is_gpu
              ? 2 * ops::most_attention_bytes(attention_kinds(caches, widest_activation),
                                              options.max_num_batched_tokens, options.max_num_seqs)
              : 0);
}

int64_t available_memory(const std::string& root) {
#ifdef __APPLE__
  const auto system = mac_available();
#else
  const auto system = mem_available(root);
#endif
  const auto cgroup = cgroup_available(root);
  const int64_t none = std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(0, std::min(system.value_or(none), cgroup.value_or(none)));
}

int64_t available_memory(ops::Device& device) {
  const std::optional<size_t> own = device.free_bytes();
  return own ? static_cast<int64_t>(*own) : available_memory();
}

namespace {

// Of a device's memory that this process may have; nothing: all that is free.
std::optional<double> share_of_device(const MemoryRequest& request) {
  if (request.gpu_memory_utilization > 0) return request.gpu_memory_utilization;
  const bool is_sized = request.kv_cache_bytes > 0 || request.num_blocks > 0;
  return is_sized ? std::nullopt : std::optional(kGpuMemoryUtilization);
}

}  // namespace

int64_t memory_for_others(ops::Device& device, const MemoryRequest& request) {
  const auto free = device.free_bytes(), total = device.total_bytes();
  const auto share = share_of_device(request);
  if (!free || !total || !share) return 0;
  const auto ours = static_cast<int64_t>(*share * static_cast<double>(*total));
  const int64_t others = static_cast<int64_t>(*free) - ours;
  if (others >= 0) return others;
  char text[256];
  std::snprintf(text, sizeof text,
                "--gpu-memory-utilization %g asks for %.1f GiB of the GPU's %.1f GiB, but %.1f GiB "
                "are free; lower --gpu-memory-utilization, or end what else uses the GPU",
                *share, static_cast<double>(ours) / kGiB, static_cast<double>(*total) / kGiB,
                static_cast<double>(*free) / kGiB);
  throw LoadError(text);
}

MemoryBudget plan_memory(const models::Model& model, const SchedulerOptions& options,
                         const MemoryRequest& request) {
  MemoryBudget budget;
  budget.available = available_memory(*model.context().device) - request.kept_free;
  if (const auto total = model.context().device->total_bytes())
    budget.limit =
        static_cast<int64_t>(share_of_device(request).value_or(1) * static_cast<double>(*total));
  budget.is_lazy = model.context().device->host_memory() != nullptr;
  budget.weights = static_cast<int64_t>(model.weight_bytes());
  budget.activations =
      activation_bytes(model.cache_specs(), model.widest_activation(), model.vocab_size(),
                       model.dtype(), options, !budget.is_lazy);
  const CacheGroups groups = groups_of(model);
  const BlockDemand demand(options.block_size, groups.windows);
  const int64_t block_bytes =
      KvPool::block_bytes(groups, options.block_size, model.dtype(), request.kv_storage);
  if (request.max_model_len == 1)
    throw LoadError(
        "--max-model-len 1 is of no use: a prompt and its answer take 2 tokens at least");
  budget.max_model_len = request.max_model_len > 0 ? request.max_model_len : model.max_positions();
  budget.state_slot_bytes = KvPool::state_bytes(model.cache_specs(), model.dtype());
  choose_state_slots(budget, options, request);
  budget.num_blocks = choose_blocks(budget, options, demand, block_bytes, request);
  check_blocks(budget, options, block_bytes, request);
  budget.kv_cache = budget.num_blocks * block_bytes;
  budget.ready_kv = choose_ready_kv(budget, options, demand, block_bytes);
  const int64_t capacity = demand.longest(budget.num_blocks, options.max_num_batched_tokens);
  if (request.max_model_len > capacity) {
    throw LoadError(
        "--max-model-len " + std::to_string(request.max_model_len) + " needs a KV cache of " +
        std::to_string(request.max_model_len) + " tokens, but there is memory for " +
        std::to_string(capacity) + "; lower --max-model-len" +
        (budget.state_slot_bytes > 0 ? ", --max-num-seqs or --state-checkpoint-slots" : "") +
        " or raise --kv-cache-memory");
  }
  budget.max_model_len = std::min(budget.max_model_len, capacity);
  if (budget.max_model_len < 2) {
    throw LoadError("the KV cache has room for " + std::to_string(capacity) + " tokens only; " +
                    (budget.state_slot_bytes > 0
                         ? "lower --max-num-seqs or --state-checkpoint-slots, or "
                         : "") +
                    "raise --kv-cache-memory or --num-gpu-blocks-override");
  }
  return budget;
}

std::string MemoryBudget::summary() const {
  char text[512], states[160] = "", ready[64] = "", of_limit[64] = "";
  if (state_slot_bytes > 0) {
    std::snprintf(states, sizeof states,
                  "recurrent state %.1f MiB (%lld slots and %lld checkpoints of %.2f MiB), ",
                  static_cast<double>(state()) / kMiB, static_cast<long long>(state_slots),
                  static_cast<long long>(state_checkpoints),
                  static_cast<double>(state_slot_bytes) / kMiB);
  }
  if (is_lazy)
    std::snprintf(ready, sizeof ready, ", %.1f MiB made ready ahead",
                  static_cast<double>(ready_kv) / kMiB);
  if (limit > 0)
    std::snprintf(of_limit, sizeof of_limit, " (limit %.1f MiB)",
                  static_cast<double>(limit) / kMiB);
  const int64_t left = std::max<int64_t>(0, available - kv_cache - state() - activations);
  std::snprintf(text, sizeof text,
                "weights %.1f MiB, KV cache %.1f MiB (%lld blocks%s), %sactivations up to %.1f "
                "MiB, of %.1f MiB available%s, %.1f MiB left; longest sequence %lld tokens",
                static_cast<double>(weights) / kMiB, static_cast<double>(kv_cache) / kMiB,
                static_cast<long long>(num_blocks), ready, states,
                static_cast<double>(activations) / kMiB, static_cast<double>(available) / kMiB,
                of_limit, static_cast<double>(left) / kMiB, static_cast<long long>(max_model_len));
  return text;
}

}  // namespace quire::engine
