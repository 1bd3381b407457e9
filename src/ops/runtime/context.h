#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/parallel.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/device.h"

namespace quire::ops {

class Profile;

// Counts which kernel served which op, so that no slow path is silent: tests assert on it, /metrics
// shows it.
class KernelLog {
 public:
  // The counter of "op/kernel", e.g. "rms_norm/cpu". Stays valid for the log's life; adding to it
  // is lock-free.
  std::atomic<int64_t>& counter(std::string_view op, std::string_view kernel);
  // The same for string literals, which are known by their addresses: some nanoseconds, for what
  // runs hundreds of times a step.
  std::atomic<int64_t>& literal_counter(const char* op, const char* kernel);
  int64_t count(std::string_view op, std::string_view kernel) const;
  std::map<std::string, int64_t> snapshot() const;

 private:
  static std::atomic<uint64_t> next_id_;

  const uint64_t id_ = next_id_.fetch_add(1);  // never used again, as an address may be
  mutable std::mutex mutex_;
  std::map<std::string, std::atomic<int64_t>, std::less<>> counters_;
};

// What every op needs to run. Made once per process in cli/ (or per test) and passed down; ops keep
// shared ownership of what their kernels use, because a graph may outlive the caller.
struct Context {
  std::shared_ptr<ThreadPool> pool;  // the host's threads: they run a CPU's kernels, and load
  std::shared_ptr<KernelLog> kernels;
  std::shared_ptr<Device> device;              // where kernels run
  std::shared_ptr<Profile> profile = nullptr;  // null: nothing is timed
  bool use_reference = false;  // run every op's reference: the oracle, in float32 MLX ops
};

// `device` null: what set_default_device says, or else the CPU.
Context make_context(int num_threads, std::shared_ptr<Device> device = nullptr);
// For tests: whatever makes its own context is to run there; null: the CPU.
void set_default_device(std::shared_ptr<Device> device);

// Counts "op/reference". Every op calls it where it runs its reference, which it does only if that
// is asked for: without a kernel it throws.
void note_reference(const Context& context, const char* op);
// Whether an op without a kernel of ours on Metal is to be composed of MLX's operations: there, and
// where its reference is asked for, which is the same composition. Counts "op/mlx" or
// "op/reference".
bool is_composed(const Context& context, const char* op);

}  // namespace quire::ops
