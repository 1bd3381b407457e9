#include "ops/context.h"

#include <stdexcept>

namespace quire::ops {

std::atomic<int64_t>& KernelLog::counter(std::string_view op, std::string_view kernel) {
  std::string key(op);
  key += '/';
  key += kernel;
  const std::lock_guard lock(mutex_);
  return counters_[std::move(key)];
}

int64_t KernelLog::count(std::string_view op, std::string_view kernel) const {
  const std::string key = std::string(op) + "/" + std::string(kernel);
  const std::lock_guard lock(mutex_);
  const auto it = counters_.find(key);
  return it == counters_.end() ? 0 : it->second.load();
}

std::map<std::string, int64_t> KernelLog::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, int64_t> result;
  for (const auto& [name, value] : counters_) result[name] = value.load();
  return result;
}

Context make_context(int num_threads) {
  return {.pool = std::make_shared<ThreadPool>(num_threads),
          .kernels = std::make_shared<KernelLog>()};
}

void note_reference(const Context& context, const char* op) {
  if (context.require_kernels && !context.use_reference)
    throw std::runtime_error(std::string(op) + ": no kernel here, and kernels are required");
  context.kernels->counter(op, "reference").fetch_add(1, std::memory_order_relaxed);
}

}  // namespace quire::ops
