#include "cli/model_facts.h"

#include <cstdio>

#include "cli/flags.h"
#include "engine/block_demand.h"
#include "engine/cache_groups.h"
#include "engine/kv_pool.h"
#include "engine/memory_fit.h"

namespace quire::cli {
namespace {

std::string gib(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

}  // namespace

std::string count_text(int64_t count) {
  const double value = static_cast<double>(count);
  char text[32];
  if (value < 1e6)
    std::snprintf(text, sizeof text, "%.0f K", value / 1e3);
  else if (value < 1e9)
    std::snprintf(text, sizeof text, "%.0f M", value / 1e6);
  else
    std::snprintf(text, sizeof text, "%.1f B", value / 1e9);
  return text;
}

std::string memory_text(const models::ModelSize& size) {
  const engine::SchedulerOptions options = scheduler_options(ModelFlags(), kCpuStep);
  const engine::CacheGroups groups = engine::group_layers(size.caches, size.max_positions, true);
  const engine::BlockDemand demand(options.block_size, groups.windows);
  const int64_t block =
      engine::KvPool::block_bytes(groups, options.block_size, size.dtype, ops::KvStorage::kAuto);
  const int64_t cache =
      demand.most_blocks(0, size.max_positions, options.max_num_batched_tokens) * block +
      engine::KvPool::state_bytes(size.caches, size.dtype);
  const int64_t step = engine::activation_bytes(size.caches, size.widest_activation, size.vocab,
                                                size.dtype, options, false);
  return "weights " + gib(size.weights) + ", a step " + gib(step) + ", cache " + gib(cache) +
         " for a sequence of " + std::to_string(size.max_positions) + " tokens; " +
         gib(engine::available_memory()) + " are free";
}

void check_fits_here(const std::string& shown, const models::ModelSize& size) {
  engine::check_fits(shown, size, scheduler_options(ModelFlags(), kCpuStep),
                     memory_request(ModelFlags()), engine::available_memory());
}

}  // namespace quire::cli
