#include "ops/runtime/context.h"

#include <array>
#include <stdexcept>
#include <utility>

namespace quire::ops {
namespace {

std::shared_ptr<Device>& default_device() {
  static std::shared_ptr<Device> device;
  return device;
}

}  // namespace

std::atomic<uint64_t> KernelLog::next_id_{1};

std::atomic<int64_t>& KernelLog::counter(std::string_view op, std::string_view kernel) {
  std::string key(op);
  key += '/';
  key += kernel;
  const std::lock_guard lock(mutex_);
  return counters_[std::move(key)];
}

std::atomic<int64_t>& KernelLog::literal_counter(const char* op, const char* kernel) {
  struct Entry {
    uint64_t log = 0;
    const char* op = nullptr;
    const char* kernel = nullptr;
    std::atomic<int64_t>* counter = nullptr;
  };
  // A step has some twenty pairs; two that meet in one place only look each other up again.
  thread_local std::array<Entry, 128> entries;
  const auto address = [](const char* p) { return reinterpret_cast<uintptr_t>(p); };
  const uint64_t hash =
      (address(op) * 31 + address(kernel) + id_ * 7) * uint64_t{0x9E3779B97F4A7C15};
  Entry& entry = entries[hash >> 57];
  if (entry.log != id_ || entry.op != op || entry.kernel != kernel)
    entry = {id_, op, kernel, &counter(op, kernel)};
  return *entry.counter;
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

Context make_context(int num_threads, std::shared_ptr<Device> device) {
  if (!device) device = default_device() ? default_device() : make_cpu_device();
  return {.pool = std::make_shared<ThreadPool>(num_threads),
          .kernels = std::make_shared<KernelLog>(),
          .device = std::move(device)};
}

void set_default_device(std::shared_ptr<Device> device) { default_device() = std::move(device); }

void note_reference(const Context& context, const char* op) {
  context.kernels->counter(op, "reference").fetch_add(1, std::memory_order_relaxed);
}

bool is_composed(const Context& context, const char* op) {
  if (context.use_reference) {
    note_reference(context, op);
    return true;
  }
  if (!context.device->metal()) return false;
  context.kernels->literal_counter(op, "mlx").fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace quire::ops
