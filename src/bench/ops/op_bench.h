#pragma once
#include <mlx/mlx.h>

#include <regex.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "ops/roofline/roofline.h"
#include "ops/runtime/context.h"

namespace quire::bench {

namespace mx = mlx::core;

struct OpBenchOptions {
  std::string filter;     // POSIX extended regular expression, searched in names
  double min_time = 0.1;  // seconds for each case, at least 3 runs
};

// What one run must do at least: bytes from and to memory (or the L2 caches, if so little that a
// model finds it there), and operations (a multiply-add is 2).
struct OpWork {
  double bytes = 0;
  double flops = 0;
  bool in_cache = false;
  double bytes_per_second = 0;  // what memory allows, where reading is not the measure
  bool in_float32 = false;      // the operations, else products of bfloat16
};

// Runs cases and prints them against the roofline: a run takes at least
// max(bytes / read rate, flops / peak of its products), and the share is that time over the best
// measured one. Times are those of the kernels alone, as the ops' profile has them.
class OpBench {
 public:
  using Step = std::function<std::vector<mx::array>(int64_t run)>;

  OpBench(const OpBenchOptions& options, ops::Context context, const ops::Roofline& roofline);

  const ops::Context& context() const { return context_; }
  // Whether the filter lets the case pass: ask before making its data.
  bool wants(const std::string& name) const;
  // Evaluates step(0), step(1), ... and prints a line.
  void measure(const std::string& name, const OpWork& work, const Step& step);
  json::array take_results() { return std::move(results_); }

 private:
  void print(const std::string& name, const std::string& kernels, const OpWork& work,
             std::vector<double> seconds);

  OpBenchOptions options_;
  std::shared_ptr<const regex_t> filter_;
  ops::Context context_;
  ops::Roofline roofline_;
  json::array results_;
};

// The cases, one function a file: Qwen3-0.6B's shapes and sizes that serving meets.
void bench_linear(OpBench& bench);
void bench_attention(OpBench& bench, bool full);
void bench_moe(OpBench& bench);
void bench_gdn(OpBench& bench);
void bench_rows(OpBench& bench);

// An array of random bfloat16 numbers in [-1, 1), made fast: 64 Ki of them, repeated.
mx::array random_bf16(const mx::Shape& shape);

}  // namespace quire::bench
