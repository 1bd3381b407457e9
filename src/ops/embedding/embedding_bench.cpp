#include "ops/embedding/embedding.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"
#include "bench/ops/weight_formats.h"
#include "bench/random.h"

namespace quire::bench {

namespace {

// Other rows of the vocabulary in each run.
mx::array some_ids(int rows, int64_t run) {
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  Random random(4, static_cast<uint64_t>(run));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(kVocab));
  return mx::array(ids.data(), {rows}, mx::int32);
}

}  // namespace

// From the head's packed weights (a tied model), and from rows as the file has them.
void bench_embedding(OpBench& bench) {
  std::optional<mx::array> rows_of_table;
  std::optional<ops::LinearWeight> packed;
  for (const bool tied : {true, false}) {
    for (const int rows : kRowCounts) {
      const std::string name = with_rows(tied ? "embedding/tied" : "embedding/own", rows);
      if (!bench.wants(name)) continue;
      if (!rows_of_table) rows_of_table = random_bf16({kVocab, kHidden});
      if (tied && !packed) packed = make_bf16(bench.context(), *rows_of_table, false);
      const ops::RowMatrix table = {
          .data = rows_of_table->data<void>(), .n = kVocab, .k = kHidden, .dtype = mx::bfloat16};
      const double bytes = 4.0 * rows * kHidden;
      bench.measure(name, {.bytes = bytes}, [&](int64_t run) {
        const mx::array ids = some_ids(rows, run);
        return tied ? ops::embedding(bench.context(), ids, packed->weight)
                    : ops::embedding(bench.context(), ids, table, mx::bfloat16, nullptr);
      });
    }
  }
}

}  // namespace quire::bench
