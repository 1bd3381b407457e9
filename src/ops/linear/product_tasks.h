#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace quire::ops {

// The tasks of several products, numbered one product after the other.
class ProductTasks {
 public:
  void add(int64_t tasks) { ends_.push_back(count() + tasks); }
  int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }

  struct Task {
    int64_t product, index;
  };
  Task at(int64_t task) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), task);
    return {end - ends_.begin(), task - (end == ends_.begin() ? 0 : end[-1])};
  }

 private:
  std::vector<int64_t> ends_;
};

}  // namespace quire::ops
