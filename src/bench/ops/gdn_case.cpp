#include "bench/ops/gdn_case.h"

namespace quire::bench {

std::vector<GdnCase> gdn_cases() {
  std::vector<GdnCase> cases;
  for (const auto& [heads, dim] : {std::pair(16, 128), {32, 128}, {16, 64}, {16, 256}}) {
    for (const int batch : {1, 8, 32, 64}) cases.push_back({heads, dim, batch, 1});
    for (const int tokens : {64, 512, 2048}) cases.push_back({heads, dim, 1, tokens});
  }
  return cases;
}

ops::BatchLayoutPtr gdn_layout(const GdnCase& c, int64_t run, int64_t slots) {
  auto layout = std::make_shared<ops::BatchLayout>();
  layout->num_sequences = c.batch;
  layout->num_tokens = c.rows();
  layout->cu_seqlens = {0};
  for (int s = 0; s < c.batch; ++s) {
    for (int t = 0; t < c.count; ++t) layout->positions.push_back(t + 1);
    layout->cu_seqlens.push_back((s + 1) * c.count);
    layout->state_slots.push_back(static_cast<int32_t>((run * c.batch + s) % slots));
  }
  return layout;
}

}  // namespace quire::bench
