#pragma once
#include <algorithm>

#include "harness.h"
#include "ops/cuda/cuda_traits.h"
#include "ops/paged_attention/paged_attention_cuda.h"

namespace quire::ops::cuda_test {

// As much memory of a block as this device has.
inline AttentionCudaPlan plan_for_device(const AttentionKernelParams& p, const BatchLayout& layout,
                                         AttentionCudaLimits limits = {}) {
  limits.block_memory = cuda_traits().block_memory;
  return plan_attention_cuda(p, layout, limits);
}

// A step's layout and plan on the device; its keys may be written right before it.
class UploadedStep {
 public:
  UploadedStep(const BatchLayout& layout, const AttentionKernelParams& p,
               const AttentionCudaPlan& plan)
      : positions_(layout.positions),
        cu_seqlens_(layout.cu_seqlens),
        seq_lens_(layout.seq_lens),
        block_offsets_(layout.block_offsets),
        blocks_(layout.blocks),
        few_(plan.few),
        many_(plan.many),
        merges_(plan.merges),
        counts_(std::vector<int32_t>{static_cast<int32_t>(plan.few.size()),
                                     static_cast<int32_t>(plan.many.size())}),
        partials_(attention_cuda_partials_bytes(p, plan.partial_rows)),
        counters_(std::vector<int32_t>(
            attention_cuda_counters(p, static_cast<int64_t>(plan.merges.size())))) {
    const auto list = [&](const DeviceBytes& items, int i, size_t size) {
      return AttentionCudaItems{items.as<AttentionCudaItem>(), counts_.as<int32_t>() + i,
                                static_cast<int64_t>(size)};
    };
    batch = {.num_tokens = layout.num_tokens,
             .num_sequences = layout.num_sequences,
             .positions = positions_.as<int32_t>(),
             .cu_seqlens = cu_seqlens_.as<int32_t>(),
             .seq_lens = seq_lens_.as<int32_t>(),
             .block_offsets = block_offsets_.as<int64_t>(),
             .blocks = blocks_.as<int32_t>(),
             .few = list(few_, 0, plan.few.size()),
             .many = list(many_, 1, plan.many.size()),
             .merges = merges_.as<AttentionCudaItem>(),
             .partials = partials_.as<float>(),
             .counters = counters_.as<int32_t>()};
  }

  // Waits for the device.
  bool counters_are_zero() const {
    const auto counters = counters_.read<int32_t>();
    return std::all_of(counters.begin(), counters.end(), [](int32_t c) { return c == 0; });
  }

  AttentionCudaBatch batch;

 private:
  DeviceBytes positions_, cu_seqlens_, seq_lens_, block_offsets_, blocks_, few_, many_, merges_,
      counts_, partials_, counters_;
};

}  // namespace quire::ops::cuda_test
