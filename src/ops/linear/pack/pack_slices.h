#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// What packing does with its source, told from the packing thread, so that the source need not be
// in memory as a whole: a large head would be there twice. Each row is told of once.
struct PackProgress {
  using Rows = std::function<void(size_t part, int64_t begin, int64_t count)>;
  using Fetch = std::function<const void*(size_t part, int64_t begin, int64_t count)>;
  Rows needs = {};     // these rows of a part are read next
  Rows has_read = {};  // these rows are not read again
  // For packers that can take rows from anywhere, in place of `needs`: where these rows of a part
  // are now, until has_read is told of rows. Null: where the part says.
  Fetch fetch = {};
  // What keeps the source of each part where it is, all of it unchanged, in memory whose pages can
  // be read as a whole: a device may use it there. Null or none: it goes.
  std::vector<std::shared_ptr<const void>> owners = {};

  bool empty() const { return !needs && !has_read; }
};

// pack_matrix that tells its progress.
PackedMatrix pack_matrix(const Context& context, std::span<const RowMatrix> parts, mx::Dtype dtype,
                         bool interleave, const PackProgress& progress);

// The parts of a matrix [N, K] that is packed, and how.
struct PackJob {
  std::vector<int64_t> rows = {};  // of each part; together N
  int64_t row_bytes = 0;           // of the source, about
  bool interleaved = false;
  int64_t slice_bytes = int64_t{16} << 20;  // of the source, that `progress` is told of at once
  int64_t total_rows() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }
};

// Tells the rows [begin, end) of the stack, part by part.
inline void tell_rows(const PackJob& job, int64_t begin, int64_t end,
                      const PackProgress::Rows& tell) {
  int64_t first = 0;  // of the part, in the stack
  for (size_t part = 0; part < job.rows.size(); ++part) {
    const int64_t from = std::max<int64_t>(0, begin - first);
    const int64_t to = std::min(job.rows[part], end - first);
    if (from < to) tell(part, from, to - from);
    first += job.rows[part];
  }
}

// Tells the rows that go into the panels [begin, end); both are even if the job is interleaved.
inline void tell_panels(const PackJob& job, int64_t begin, int64_t end,
                        const PackProgress::Rows& tell) {
  constexpr int64_t kPanel = 16;
  if (!tell) return;
  const int64_t n = job.total_rows();
  if (!job.interleaved) return tell_rows(job, begin * kPanel, std::min(n, end * kPanel), tell);
  const int64_t half = n / 2, from = begin / 2 * kPanel, to = std::min(half, end / 2 * kPanel);
  tell_rows(job, from, to, tell);
  tell_rows(job, half + from, half + to, tell);
}

// Calls pack(panel) for every panel, on all threads; if `progress` is asked for, some MiB of source
// at a time.
template <class Pack>
void pack_in_slices(ThreadPool& pool, const PackJob& job, const PackProgress& progress,
                    const Pack& pack) {
  const int64_t panels = linear_panels(job.total_rows(), job.interleaved);
  const int64_t pairs = job.slice_bytes / std::max<int64_t>(1, 32 * job.row_bytes);
  const int64_t slice =
      progress.empty() ? std::max<int64_t>(1, panels) : 2 * std::max<int64_t>(1, pairs);
  for (int64_t begin = 0; begin < panels; begin += slice) {
    const int64_t count = std::min(slice, panels - begin);
    tell_panels(job, begin, begin + count, progress.needs);
    pool.parallel_for(count, [&](int64_t i) { pack(begin + i); });
    tell_panels(job, begin, begin + count, progress.has_read);
  }
}

}  // namespace quire::ops
