#pragma once
#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// Packing has read the first `rows` rows of part `part` for good. From the packing thread.
using RowsRead = std::function<void(size_t part, int64_t rows)>;

// pack_matrix that tells `read` while it goes on.
PackedMatrix pack_matrix(const Context& context, std::span<const RowMatrix> parts, mx::Dtype dtype,
                         bool interleave, const RowsRead& read);

// The parts of a matrix [N, K] that is packed, and how.
struct PackJob {
  std::vector<int64_t> rows = {};  // of each part; together N
  int64_t row_bytes = 0;           // of the source, about
  bool interleaved = false;
};

// Of the first `panels` panels of `job`, reports how far each part has been read.
inline void report_rows(const PackJob& job, int64_t panels, const RowsRead& read) {
  constexpr int64_t kPanel = 16;
  int64_t n = 0;
  for (const int64_t rows : job.rows) n += rows;
  const bool all = panels >= linear_panels(n, job.interleaved);
  int64_t first = 0;  // of the part, in the stack
  for (size_t part = 0; part < job.rows.size(); ++part) {
    const int64_t rows = job.rows[part];
    int64_t packed = panels * kPanel - first;
    if (job.interleaved) packed = panels / 2 * kPanel - (first < n / 2 ? first : first - n / 2);
    // A part in both halves: its second half begins behind rows that are still to come.
    if (job.interleaved && first < n / 2) packed = std::min(packed, n / 2 - first);
    packed = all ? rows : std::clamp<int64_t>(packed, 0, rows);
    if (packed > 0) read(part, packed);
    first += rows;
  }
}

// Calls pack(panel) for every panel, on all threads, some MiB of source at a time: `read` (may be
// empty) can give pages of a mapped file back before the next are touched. Else a large head would
// be in memory twice.
template <class Pack>
void pack_in_slices(ThreadPool& pool, const PackJob& job, const RowsRead& read, const Pack& pack) {
  constexpr int64_t kSliceBytes = int64_t{16} << 20;
  int64_t n = 0;
  for (const int64_t rows : job.rows) n += rows;
  const int64_t panels = linear_panels(n, job.interleaved);
  const int64_t pairs = kSliceBytes / std::max<int64_t>(1, 32 * job.row_bytes);
  const int64_t slice = read ? 2 * std::max<int64_t>(1, pairs) : std::max<int64_t>(1, panels);
  for (int64_t begin = 0; begin < panels; begin += slice) {
    const int64_t count = std::min(slice, panels - begin);
    pool.parallel_for(count, [&](int64_t i) { pack(begin + i); });
    if (read) report_rows(job, begin + count, read);
  }
}

}  // namespace quire::ops
