#include "ops/kv_write/kv_write.h"

#include <cstring>

#include "ops/kernel_primitive.h"
#include "ops/parallel_blocks.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

void check(const mx::array& k, const mx::array& v, const PagedKv& kv, const BatchLayout& layout) {
  check_float("kv_write", "kv.k", kv.k.dtype());
  check_dtype("kv_write", "kv.v", kv.v, kv.k.dtype());
  check_dtype("kv_write", "k", k, kv.k.dtype());
  check_dtype("kv_write", "v", v, kv.k.dtype());
  check_shape("kv_write", "kv.k", kv.k, {-1, layout.block_size, -1, -1});
  check_shape("kv_write", "kv.v", kv.v, {kv.k.shape(0), kv.k.shape(1), kv.k.shape(2), -1});
  check_shape("kv_write", "k", k, {layout.num_tokens, kv.k.shape(2), kv.k.shape(3)});
  check_shape("kv_write", "v", v, {layout.num_tokens, kv.v.shape(2), kv.v.shape(3)});
}

// The row of each token is one run of bytes: the same copy whatever the dtype and the instruction
// set, so there is one kernel.
void copy_rows(ThreadPool& pool, const BatchLayout& layout, const KernelArray& from,
               KernelArray& to) {
  const int64_t row_bytes =
      static_cast<int64_t>(from.shape(1)) * from.shape(2) * static_cast<int64_t>(from.itemsize());
  const char* source = from.data<char>();
  char* target = to.data<char>();
  parallel_blocks(pool, layout.num_tokens, rows_per_block(row_bytes / 4),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t t = begin; t < end; ++t) {
                      const int64_t slot = layout.slot_mapping[t];
                      if (slot < 0) continue;
                      std::memcpy(target + slot * row_bytes, source + t * row_bytes, row_bytes);
                    }
                  });
}

}  // namespace

// The reference of a copy is the copy; MLX's scatter would not be in place. The tests' oracle is a
// loop over a copy of the pool.
PagedKv kv_write(const Context& context, const mx::array& k, const mx::array& v, const PagedKv& kv,
                 const BatchLayoutPtr& layout) {
  check(k, v, kv, *layout);
  auto kernel = [layout, pool = context.pool](const auto& in, auto& out) {
    copy_rows(*pool, *layout, in[2], out[0]);
    copy_rows(*pool, *layout, in[3], out[1]);
  };
  auto outputs =
      launch_kernel(context, {.op = "kv_write", .kernel = "cpu", .run = kernel, .alias = {0, 1}},
                    {kv.k.shape(), kv.v.shape()}, {kv.k.dtype(), kv.v.dtype()}, {kv.k, kv.v, k, v});
  return {.k = outputs[0], .v = outputs[1]};
}

}  // namespace quire::ops
