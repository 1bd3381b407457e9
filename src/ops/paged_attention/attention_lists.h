#pragma once
#include <cstddef>

#include "ops/paged_attention/paged_attention_cuda.h"

namespace quire::ops {

// Where a step's lists lie in one piece of a GPU's memory: bytes from where it begins.
struct AttentionListPlaces {
  size_t few = 0, many = 0, merges = 0;  // AttentionCudaItem
  size_t counts = 0;                     // int32, of few and of many
  size_t counters = 0;                   // int32, attention_cuda_counters
  size_t bytes = 0;                      // of all
};

inline AttentionListPlaces attention_list_places(const AttentionKernelParams& p,
                                                 const AttentionCudaSizes& sizes) {
  AttentionListPlaces places;
  const auto add = [&](int64_t count, size_t size) {
    constexpr size_t kAlignment = 16;
    const size_t at = places.bytes;
    places.bytes += (static_cast<size_t>(count) * size + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  places.few = add(sizes.few, sizeof(AttentionCudaItem));
  places.many = add(sizes.many, sizeof(AttentionCudaItem));
  places.merges = add(sizes.merges, sizeof(AttentionCudaItem));
  places.counts = add(2, sizeof(int32_t));
  places.counters =
      add(static_cast<int64_t>(attention_cuda_counters(p, sizes.merges)), sizeof(int32_t));
  return places;
}

}  // namespace quire::ops
