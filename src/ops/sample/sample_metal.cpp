#include "ops/sample/sample_metal.h"

#include <stdexcept>

#include "ops/sample/sample_adjust.h"
#include "ops/sample/sample_lists.h"

namespace quire::ops {
namespace {

SampleMetalRow packed(const SampleRow& row, SampleMetal& to) {
  SampleMetalRow out = {};
  append_sample_row(row, out, to);
  const auto position = static_cast<uint64_t>(row.position);
  for (int i = 0; i < 2; ++i) {
    out.seed[i] = static_cast<uint32_t>(row.seed >> 32 * i);
    out.position[i] = static_cast<uint32_t>(position >> 32 * i);
  }
  out.changes_logits = changes_logits(row) ? 1 : 0;
  return out;
}

}  // namespace

SampleMetal sample_metal(const std::vector<SampleRow>& rows, int64_t vocab, int64_t width,
                         bool has_previous) {
  if (vocab < 1 || vocab > kMaxSampleMetalVocab)
    throw std::invalid_argument("sample: no Metal kernel for a vocabulary of " +
                                std::to_string(vocab) + " tokens");
  SampleMetal sample = {};
  sample.params = {static_cast<int32_t>(vocab), static_cast<int32_t>(width), has_previous ? 1 : 0};
  for (const SampleRow& row : rows) sample.rows.push_back(packed(row, sample));
  sample.call.kernel = "sample";
  sample.call.groups = {static_cast<uint32_t>(rows.size()), 1, 1};
  sample.call.threads = {1024, 1, 1};
  return sample;
}

}  // namespace quire::ops
