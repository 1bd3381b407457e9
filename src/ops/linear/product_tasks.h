#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/linear/linear_kernel.h"

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

// Calls run(products) for neighbours that have at most `most_rows` rows together, and for each one
// that has more by itself.
template <class Run>
void run_in_groups(std::span<const LinearParams> products, int64_t most_rows, const Run& run) {
  size_t begin = 0;
  int64_t rows = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    if (i > begin && rows + products[i].rows > most_rows) {
      run(products.subspan(begin, i - begin));
      begin = i;
      rows = 0;
    }
    rows += products[i].rows;
  }
  if (begin < products.size()) run(products.subspan(begin));
}

// Calls one(product) for each that has more than `most_rows` rows, and together(products) for all
// others.
template <class Together, class One>
void run_few_together(std::span<const LinearParams> products, int64_t most_rows,
                      const Together& together, const One& one) {
  std::vector<LinearParams> few;
  for (const LinearParams& p : products) {
    if (p.rows > most_rows) {
      one(p);
    } else if (p.rows > 0) {
      few.push_back(p);
    }
  }
  if (!few.empty()) together(few);
}

}  // namespace quire::ops
