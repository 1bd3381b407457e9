#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

void bench_qk_norm_rope_kv_write(OpBench& bench) {
  constexpr int kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
  const auto table = ops::make_rope_table({.rotary_dim = kHeadDim, .theta = 1e6}, 4096);
  const ops::HeadNorms norms = {.q = mx::ones({kHeadDim}), .k = mx::ones({kHeadDim}), .eps = 1e-6f};
  mx::eval(*norms.q, *norms.k);
  for (const ops::KvStorage storage : {ops::KvStorage::kAuto, ops::KvStorage::kInt8}) {
    const char* op = storage == ops::KvStorage::kAuto ? "qk_norm_rope_kv_write/bf16"
                                                      : "qk_norm_rope_kv_write/int8";
    for (const int rows : kRowCounts) {
      const std::string name = with_rows(op, rows);
      if (!bench.wants(name)) continue;
      const mx::array qkv = random_bf16({rows, kWidth});
      ops::PagedKv kv = ops::make_paged_kv(128, 16, kKvHeads, kHeadDim, mx::bfloat16, storage);
      const auto layout = prompt_layout(rows);
      const auto written =
          static_cast<double>(ops::paged_kv_token_bytes(kKvHeads, kHeadDim, mx::bfloat16, storage));
      const double row_bytes = 2.0 * kWidth + 2.0 * kHeads * kHeadDim + written;
      bench.measure(name, activation_work(rows * row_bytes), [&](int64_t) {
        const auto rotated =
            ops::qk_norm_rope_kv_write(bench.context(), qkv, norms, layout, table, kv);
        kv = rotated.kv;
        std::vector<mx::array> outputs = kv.arrays();
        outputs.push_back(rotated.q);
        return outputs;
      });
    }
  }
}

}  // namespace quire::bench
