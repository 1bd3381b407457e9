#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/first_failure.h"
#include "base/parallel.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// What packing does with its source, so that the source need not be in memory as a whole: a large
// head would be there twice. Each row is told of once.
struct PackProgress {
  using Rows = std::function<void(size_t part, int64_t begin, int64_t count)>;
  using Fetch =
      std::function<std::shared_ptr<const void>(size_t part, int64_t begin, int64_t count)>;
  // From the packing thread.
  Rows needs = {};     // these rows of a part are read next
  Rows has_read = {};  // these rows are not read again
  // In place of these, for packers that can take rows from anywhere: where rows of a part are, for
  // as long as the result lives. From every thread of the pool. What it throws, packing throws.
  Fetch fetch = {};
  // What keeps the source of each part where it is, all of it unchanged, in memory whose pages can
  // be read as a whole: a device may use it there. Null or none: it goes.
  std::vector<std::shared_ptr<const void>> owners = {};
};

// pack_matrix that tells its progress.
PackedMatrix pack_matrix(const Context& context, std::span<const RowMatrix> parts, mx::Dtype dtype,
                         bool interleave, const PackProgress& progress);

// A part of a matrix [N, K] that is packed.
struct PackPart {
  int64_t rows = 0, row_bytes = 0;  // as the source has them
  const void* data = nullptr;       // the first row, unless rows are fetched
};
struct PackJob {
  std::vector<PackPart> parts = {};  // together N rows
  bool interleaved = false;
  int64_t total_rows() const {
    return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                           [](int64_t sum, const PackPart& part) { return sum + part.rows; });
  }
  int64_t row_bytes() const {
    int64_t most = 1;
    for (const PackPart& part : parts) most = std::max(most, part.row_bytes);
    return most;
  }
};

// Where rows of the stacked parts are.
class SourceRows {
 public:
  struct Row {
    size_t part = 0;
    int64_t row = 0;  // of the part
    const std::byte* data = nullptr;
  };
  // `count` rows of a part from `row` on, of which the first is `first` in the stack.
  void add(Row row, int64_t first, int64_t count, int64_t row_bytes) {
    runs_.push_back({row, first, count, row_bytes});
  }
  // Of a row of the stack.
  Row find(int64_t row) const {
    for (const Run& run : runs_)
      if (row >= run.first && row < run.first + run.count)
        return {run.begin.part, run.begin.row + row - run.first,
                run.begin.data + (row - run.first) * run.row_bytes};
    QUIRE_CHECK(false) << "row " << row << " is not there";
    return {};
  }

 private:
  struct Run {
    Row begin;
    int64_t first, count, row_bytes;
  };
  std::vector<Run> runs_;
};

inline constexpr int64_t kPanelRows = 16;

// Tells the rows [begin, end) of the stack, part by part.
inline void tell_rows(const PackJob& job, int64_t begin, int64_t end,
                      const PackProgress::Rows& tell) {
  int64_t first = 0;  // of the part, in the stack
  for (size_t part = 0; part < job.parts.size(); ++part) {
    const int64_t from = std::max<int64_t>(0, begin - first);
    const int64_t to = std::min(job.parts[part].rows, end - first);
    if (from < to) tell(part, from, to - from);
    first += job.parts[part].rows;
  }
}

// Tells the rows that go into the panels [begin, end); both are even if the job is interleaved.
inline void tell_panels(const PackJob& job, int64_t begin, int64_t end,
                        const PackProgress::Rows& tell) {
  if (!tell) return;
  const int64_t n = job.total_rows();
  if (!job.interleaved)
    return tell_rows(job, begin * kPanelRows, std::min(n, end * kPanelRows), tell);
  const int64_t half = n / 2, from = begin / 2 * kPanelRows,
                to = std::min(half, end / 2 * kPanelRows);
  tell_rows(job, from, to, tell);
  tell_rows(job, half + from, half + to, tell);
}

// Calls pack(first panel, end, rows) for all pairs of panels (the last may be one alone), on all
// threads; `rows` has those of the pair. Fetched rows come to each thread in pieces that are packed
// out of its own cache; others are told of some MiB at a time.
template <class Pack>
void pack_pairs(ThreadPool& pool, const PackJob& job, const PackProgress& progress,
                const Pack& pack) {
  const int64_t panels = linear_panels(job.total_rows(), job.interleaved);
  std::vector<int64_t> first;  // row of each part in the stack
  int64_t rows = 0;
  for (const PackPart& part : job.parts) first.push_back(std::exchange(rows, rows + part.rows));
  const auto pairs_of = [&](int64_t bytes) {
    return std::max<int64_t>(1, bytes / (2 * kPanelRows * job.row_bytes()));
  };
  if (progress.fetch) {
    // Four pieces for each thread, if that leaves them large enough.
    constexpr int64_t kMostBytes = int64_t{256} << 10, kLeastBytes = int64_t{32} << 10;
    const int64_t share = panels / 2 * 2 * kPanelRows * job.row_bytes() / (4 * pool.num_threads());
    const int64_t piece = 2 * pairs_of(std::clamp(share, kLeastBytes, kMostBytes));
    FirstFailure failure;
    pool.parallel_for((panels + piece - 1) / piece, [&](int64_t i) {
      failure.note([&] {
        const int64_t begin = i * piece, end = std::min(panels, begin + piece);
        SourceRows fetched;
        std::vector<std::shared_ptr<const void>> memory;
        tell_panels(job, begin, end, [&](size_t part, int64_t from, int64_t count) {
          memory.push_back(progress.fetch(part, from, count));
          fetched.add({part, from, static_cast<const std::byte*>(memory.back().get())},
                      first[part] + from, count, job.parts[part].row_bytes);
        });
        for (int64_t panel = begin; panel < end; panel += 2)
          pack(panel, std::min(end, panel + 2), fetched);
      });
    });
    return failure.rethrow();
  }
  SourceRows all;
  for (size_t i = 0; i < job.parts.size(); ++i)
    all.add({i, 0, static_cast<const std::byte*>(job.parts[i].data)}, first[i], job.parts[i].rows,
            job.parts[i].row_bytes);
  constexpr int64_t kSliceBytes = int64_t{16} << 20;
  const bool is_told = progress.needs || progress.has_read;
  const int64_t slice = is_told ? 2 * pairs_of(kSliceBytes) : std::max<int64_t>(1, panels);
  for (int64_t begin = 0; begin < panels; begin += slice) {
    const int64_t end = std::min(panels, begin + slice);
    tell_panels(job, begin, end, progress.needs);
    pool.parallel_for((end - begin + 1) / 2, [&](int64_t i) {
      pack(begin + 2 * i, std::min(end, begin + 2 * i + 2), all);
    });
    tell_panels(job, begin, end, progress.has_read);
  }
}

}  // namespace quire::ops
