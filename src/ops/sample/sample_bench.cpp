#include "ops/sample/sample.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"
#include "bench/random.h"

namespace quire::bench {

namespace {

struct SampleCase {
  const char* name;
  ops::SampleRow row;
};

// Logits spread as a language model's: some hundred tokens matter.
mx::array make_logits(int rows) {
  Random random(3, 0);
  std::vector<float> values(static_cast<size_t>(rows) * kVocab);
  for (float& value : values) value = static_cast<float>(3 * random.normal());
  return mx::array(values.data(), {rows, kVocab}, mx::float32);
}

}  // namespace

void bench_sample(OpBench& bench) {
  const SampleCase cases[] = {
      {"greedy", {}},
      {"greedy,logprobs=5", {.num_top_logprobs = 5}},
      {"top_k=50,top_p=0.9", {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}},
      {"top_p=0.9", {.temperature = 0.8f, .top_p = 0.9f}},
      {"min_p=0.05", {.temperature = 0.8f, .min_p = 0.05f}}};
  for (const int rows : {1, 32}) {
    std::optional<mx::array> logits;
    for (const SampleCase& c : cases) {
      const std::string name = std::string("sample/") + c.name + "/R=" + std::to_string(rows);
      if (!bench.wants(name)) continue;
      if (!logits) logits = make_logits(rows);
      auto params = std::make_shared<std::vector<ops::SampleRow>>(rows, c.row);
      for (int r = 0; r < rows; ++r) (*params)[r].position = r;
      bench.measure(name, activation_work(4.0 * rows * kVocab), [&](int64_t) {
        return ops::sample(bench.context(), *logits, params, std::nullopt).arrays();
      });
    }
  }
}

}  // namespace quire::bench
