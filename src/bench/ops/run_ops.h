#pragma once
#include "base/json.h"
#include "bench/ops/op_bench.h"

namespace quire::bench {

struct RunOpsOptions {
  OpBenchOptions bench;
  int threads = 0;  // 0: one per physical core
};

// Measures this machine's roofline and every case that the filter lets pass, prints a line for each
// and returns the figures. Throws LoadError if no case passes.
json::object run_ops(const RunOpsOptions& options);

// The roofline alone; threads as above.
json::object run_roofline(int threads);

}  // namespace quire::bench
