#include "ops/gated_delta_rule/gated_delta_rule.h"

#include <cstring>

#include "bench/ops/cases.h"
#include "bench/ops/gdn_case.h"
#include "bench/ops/shapes.h"
#include "ops/runtime/array_memory.h"

namespace quire::bench {

namespace {

constexpr int64_t kPoolBytes = int64_t{1} << 30;  // no cache holds it

// The states of a layer, committed, as in an engine that runs.
mx::array make_states(const GdnCase& c) {
  const int64_t slots = kPoolBytes / (int64_t{4} * c.heads * c.dim * c.dim);
  mx::array states =
      ops::make_lazy_array({static_cast<int>(slots), c.heads, c.dim, c.dim}, mx::float32);
  std::memset(states.data<char>(), 0, states.nbytes());
  return states;
}

// Bytes are of states read and written; 7 operations a token for each element of a state.
void measure(OpBench& bench, const GdnCase& c, mx::array& states) {
  const mx::array qkv = random_bf16({c.rows(), c.width()});
  const mx::array gates = random_bf16({c.rows(), 2 * c.heads});
  const mx::array a_log = mx::zeros({c.heads}), dt_bias = mx::zeros({c.heads});
  mx::eval(a_log, dt_bias);
  const double elements = double{1} * c.heads * c.dim * c.dim;
  bench.measure(c.name("gated_delta_rule"),
                {.bytes = 8 * elements * c.batch,
                 .flops = 7 * elements * c.rows(),
                 .bytes_per_second = bench.in_place_rate(),
                 .in_float32 = true},
                [&](int64_t run) {
                  const auto result =
                      ops::gated_delta_rule(bench.context(), qkv,
                                            {.projected = gates,
                                             .a_column = 0,
                                             .b_column = c.heads,
                                             .a_log = a_log,
                                             .dt_bias = dt_bias},
                                            states, gdn_layout(c, run, states.shape(0)));
                  states = result.state;
                  return std::vector<mx::array>{result.y, result.state};
                });
}

}  // namespace

void bench_gated_delta_rule(OpBench& bench) {
  std::optional<mx::array> states;  // of one shape at a time
  for (const GdnCase& c : gdn_cases()) {
    if (!bench.wants(c.name("gated_delta_rule"))) continue;
    if (!states || states->shape(1) != c.heads || states->shape(2) != c.dim) {
      states.reset();
      states = make_states(c);
    }
    measure(bench, c, *states);
  }
}

}  // namespace quire::bench
