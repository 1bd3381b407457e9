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

// From rows as the file has them, and from the head's packed weights (a tied model), of whose lines
// few bytes are of one row.
void bench_embedding(OpBench& bench) {
  std::optional<mx::array> rows_of_table;
  const auto need_rows = [&] {
    if (!rows_of_table) rows_of_table = random_bf16({kVocab, kHidden});
  };
  const auto measure = [&](const std::string& table, const auto& prepare, const auto& embed) {
    for (const int rows : kRowCounts) {
      const std::string name = with_rows(table.c_str(), rows);
      if (!bench.wants(name)) continue;
      need_rows();
      prepare();
      bench.measure(name, {.bytes = 4.0 * rows * kHidden},
                    [&](int64_t run) { return embed(some_ids(rows, run)); });
    }
  };
  for (const WeightFormat& format : weight_formats()) {
    const std::string_view which = format.name;
    if (which != "bf16" && which != "affine4" && which != "affine8" && which != "q6_k") continue;
    std::optional<ops::LinearWeight> head;
    const auto pack = [&] {
      if (!head) head = format.make(bench.context(), *rows_of_table, false);
    };
    measure(std::string("embedding/tied/") + format.name, pack, [&](const mx::array& ids) {
      return ops::embedding(bench.context(), ids, head->weight);
    });
  }
  measure(
      "embedding/own", [] {},
      [&](const mx::array& ids) {
        const ops::RowMatrix table = {
            .data = rows_of_table->data<void>(), .n = kVocab, .k = kHidden, .dtype = mx::bfloat16};
        return ops::embedding(bench.context(), ids, table, mx::bfloat16, nullptr);
      });
}

}  // namespace quire::bench
