#include "ops/copy_slots/copy_slots.h"

#include <cstring>

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

// Checkpoints of a layer of Qwen3.5: 16 heads of 128 x 128, and the inputs of its convolution.
void bench_copy_slots(OpBench& bench) {
  const ops::RecurrentStateShape shape = {
      .conv_dim = 6144, .conv_kernel = 4, .v_heads = 16, .v_dim = 128, .k_dim = 128};
  constexpr int kSlots = 512;
  std::optional<ops::RecurrentState> pool;
  for (const int count : {1, 8}) {
    const std::string name = "copy_slots/B=" + std::to_string(count);
    if (!bench.wants(name)) continue;
    if (!pool) {
      pool = ops::make_recurrent_state(kSlots, shape, mx::bfloat16);
      for (mx::array* array : {&pool->recurrent, &pool->conv}) {
        mx::eval(*array);
        std::memset(array->data<char>(), 0, array->nbytes());
      }
    }
    const auto bytes =
        static_cast<double>(shape.recurrent_bytes() + shape.conv_bytes(mx::bfloat16));
    bench.measure(name, {.bytes = 2 * bytes * count}, [&](int64_t run) {
      auto copies = std::make_shared<std::vector<ops::SlotCopy>>();
      for (int i = 0; i < count; ++i) {
        const auto from = static_cast<int32_t>((2 * (run * count + i)) % kSlots);
        copies->push_back({.from = from, .to = from + 1});
      }
      *pool = ops::copy_slots(bench.context(), *pool, copies);
      return std::vector<mx::array>{pool->recurrent, pool->conv};
    });
  }
}

}  // namespace quire::bench
