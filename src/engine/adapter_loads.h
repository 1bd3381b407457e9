#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace quire::engine {

// Requests that wait and run, of each adapter; those without one are not counted.
class AdapterLoads {
 public:
  struct Load {
    int64_t waiting = 0, running = 0;
  };

  void add_waiting(int32_t adapter, int64_t count) {
    if (adapter >= 0) of(adapter).waiting += count;
  }
  void add_running(int32_t adapter, int64_t count) {
    if (adapter < 0) return;
    Load& load = of(adapter);
    const bool ran = load.running > 0;
    load.running += count;
    num_running_ += (load.running > 0) - ran;
  }

  // Adapters with a running request.
  int64_t num_running() const { return num_running_; }
  bool is_running(int32_t adapter) const {
    return adapter >= 0 && static_cast<size_t>(adapter) < loads_.size() &&
           loads_[static_cast<size_t>(adapter)].running > 0;
  }
  const std::vector<Load>& all() const { return loads_; }  // by adapter, as far as any had one

 private:
  Load& of(int32_t adapter) {
    const size_t needed = static_cast<size_t>(adapter) + 1;
    if (loads_.size() < needed) loads_.resize(needed);
    return loads_[needed - 1];
  }

  std::vector<Load> loads_;
  int64_t num_running_ = 0;
};

}  // namespace quire::engine
