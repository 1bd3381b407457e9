#pragma once
#include <cstdint>
#include <vector>

#include "ops/cuda/cuda_recording.h"
#include "ops/sample/sample_cuda.h"
#include "ops/sample/sample_lists.h"

namespace quire::ops {

// The lists of all rows, one after another.
struct SampleCudaLists {
  std::vector<SampleCudaCount> history;
  std::vector<SampleCudaBias> bias;
  std::vector<int32_t> banned;
  std::vector<SampleCudaPair> banned_after;
  std::vector<uint32_t> masks;

  void clear() {
    history.clear();
    bias.clear();
    banned.clear();
    banned_after.clear();
    masks.clear();
  }
  SampleCudaRow append(const SampleRow& row) {
    SampleCudaRow to;
    append_sample_row(row, to, *this);
    to.seed = row.seed;
    to.position = row.position;
    return to;
  }
};

// The rows of a recorded step in a piece of pinned memory, where those of an earlier step may be:
// of constant ones (SampleRow::constant) only the positions are written.
class KeptSampleRows {
 public:
  // Appends the rows' lists to the writer's tail. `lists` is for this call; it keeps its memory.
  void write(const std::vector<SampleRow>& rows, SampleCudaRow* to, SampleCudaLists& lists,
             StepWriter& writer) {
    lists.clear();
    with_lists_.clear();
    if (!writer.is_kept()) written_.clear();
    written_.resize(rows.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      const SampleRow& row = rows[r];
      if (row.constant != 0 && row.constant == written_[r]) {
        to[r].position = row.position;
        continue;
      }
      to[r] = lists.append(row);
      const bool in_lists = has_lists(row);
      if (in_lists) with_lists_.push_back(r);
      written_[r] = in_lists ? 0 : row.constant;
    }
    place_lists(to, lists, writer);
  }

 private:
  static bool has_lists(const SampleRow& row) {
    return !row.history.empty() || !row.logit_bias.empty() || !row.banned.empty() ||
           !row.banned_after.empty() || row.mask;
  }

  void place_lists(SampleCudaRow* to, const SampleCudaLists& lists, StepWriter& writer) const {
    const int64_t history = writer.append(lists.history), bias = writer.append(lists.bias),
                  banned = writer.append(lists.banned), after = writer.append(lists.banned_after),
                  masks = writer.append(lists.masks);
    for (const size_t r : with_lists_) shift(to[r], history, bias, banned, after, masks);
  }

  // Counts from where the lists begin to where they lie among others.
  static void shift(SampleCudaRow& row, int64_t history, int64_t bias, int64_t banned,
                    int64_t after, int64_t masks) {
    const auto by = [](int64_t distance, int32_t& begin, int32_t& end) {
      begin += static_cast<int32_t>(distance);
      end += static_cast<int32_t>(distance);
    };
    by(history, row.history_begin, row.history_end);
    by(bias, row.bias_begin, row.bias_end);
    by(banned, row.banned_begin, row.banned_end);
    by(after, row.after_begin, row.after_end);
    if (row.mask >= 0) row.mask += masks;
  }

  std::vector<uint64_t> written_;   // SampleRow::constant of what is there; 0: something else
  std::vector<size_t> with_lists_;  // of the last call
};

}  // namespace quire::ops
