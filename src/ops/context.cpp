#include "ops/context.h"

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

}  // namespace quire::ops
