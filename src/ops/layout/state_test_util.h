#pragma once
#include "ops/layout/batch_layout.h"
#include "ops/runtime/test_util.h"

// Shared by the tests of the ops with a state per sequence: steps of chunks.
namespace quire::ops::testing {

// The next `tokens` tokens of a sequence that has had `context` before.
struct Chunk {
  int tokens = 0, context = 0, slot = 0;
};

inline BatchLayoutPtr layout_of_chunks(const std::vector<Chunk>& chunks) {
  auto layout = std::make_shared<BatchLayout>();
  layout->num_sequences = static_cast<int64_t>(chunks.size());
  layout->block_size = 16;
  layout->cu_seqlens = {0};
  for (const Chunk& chunk : chunks) {
    for (int i = 0; i < chunk.tokens; ++i) layout->positions.push_back(chunk.context + i);
    layout->num_tokens += chunk.tokens;
    layout->cu_seqlens.push_back(static_cast<int32_t>(layout->num_tokens));
    layout->state_slots.push_back(chunk.slot);
  }
  return layout;
}

inline mx::array rows_of(const mx::array& x, int begin, int end) {
  mx::Shape first(x.ndim(), 0), last = x.shape();
  first[0] = begin;
  last[0] = end;
  return mx::contiguous(mx::slice(x, first, last));
}

// A pool whose values must not matter to a sequence that begins.
inline mx::array poisoned_pool(mx::Shape shape, mx::Dtype dtype) {
  mx::array pool = mx::full(std::move(shape), mx::array(std::nanf(""), mx::float32), dtype);
  mx::eval(pool);
  return pool;
}

}  // namespace quire::ops::testing
