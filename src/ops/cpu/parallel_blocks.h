#pragma once
#include <algorithm>

#include "base/parallel.h"

namespace quire::ops {

// Splits [0, count) into blocks of `block` and calls body(begin, end) for each, on all threads.
template <class Body>
void parallel_blocks(ThreadPool& pool, int64_t count, int64_t block, const Body& body) {
  pool.parallel_for((count + block - 1) / block,
                    [&](int64_t i) { body(i * block, std::min(count, (i + 1) * block)); });
}

// Rows of `width` elements for one thread at a time: about 5 us of an element-wise kernel, so that
// waking a thread (0.4 us) pays, and one decode row stays on the calling thread.
inline int64_t rows_per_block(int64_t width) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width));
}

}  // namespace quire::ops
