#pragma once
#include <mlx/mlx.h>

#include <regex.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/json.h"
#include "ops/roofline/roofline.h"
#include "ops/runtime/context.h"

namespace quire::bench {

namespace mx = mlx::core;

struct OpBenchOptions {
  std::string filter;     // POSIX extended regular expression, searched in names
  double min_time = 0.1;  // seconds for each case, at least 3 runs
  bool full = false;      // attention over every combination of heads, block size and order
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

class OpBench;

// The cases of one op.
struct OpCases {
  const char* op;  // its name as a node of a graph, with which the names of its cases begin
  void (*run)(OpBench& bench);
};

// Runs cases and prints them against the roofline: a run takes at least
// max(bytes / read rate, flops / peak of its products), and the share is that time over the best
// measured one. Times are those of the kernels alone, as the ops' profile has them.
class OpBench {
 public:
  using Step = std::function<std::vector<mx::array>(int64_t run)>;

  OpBench(const OpBenchOptions& options, ops::Context context, const ops::Roofline& roofline);

  void run(const OpCases& cases);
  json::array take_results() { return std::move(results_); }
  // Of all cases that asked, whether they passed or not.
  const std::vector<std::string>& names() const { return names_; }

  // For cases.
  const ops::Context& context() const { return context_; }
  bool full() const { return options_.full; }
  // Whether the filter lets the case pass: ask before making its data.
  bool wants(const std::string& name);
  // Evaluates step(0), step(1), ..., each one or more arrays, and prints a line. Nothing but the
  // cases' op may run.
  template <class Run>
  void measure(const std::string& name, const OpWork& work, const Run& step) {
    measure_step(name, work, [&step](int64_t run) -> std::vector<mx::array> {
      if constexpr (std::is_same_v<std::invoke_result_t<Run, int64_t>, mx::array>)
        return {step(run)};
      else
        return step(run);
    });
  }
  // Bytes read and written per second when memory is scaled in place: what ops that update states
  // could reach at best. Measured when it is first asked for.
  double in_place_rate();

 private:
  void measure_step(const std::string& name, const OpWork& work, const Step& step);
  void print(const std::string& name, const std::string& kernels, const OpWork& work,
             std::vector<double> seconds);

  OpBenchOptions options_;
  std::shared_ptr<const regex_t> filter_;
  ops::Context context_;
  ops::Roofline roofline_;
  const char* op_ = "";  // whose cases run
  double in_place_rate_ = 0;
  std::vector<std::string> names_;
  json::array results_;
};

// An array of random bfloat16 numbers in [-1, 1), made fast: 64 Ki of them, repeated.
mx::array random_bf16(const mx::Shape& shape);

}  // namespace quire::bench
