#include "bench/ops/comparisons.h"

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cores.h"
#include "bench/ops/gdn_case.h"
#include "bench/ops/op_bench.h"
#include "bench/ops/shapes.h"
#include "bench/stats.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/gated_delta_rule/gated_delta_rule.h"
#include "ops/kv_write/kv_write.h"
#include "ops/runtime/array_memory.h"

namespace quire::bench {
namespace {

struct Way {
  const char* name;
  std::function<void()> run;
};

// One row of keys and values a step, into a pool of 134 MB each. Two steps overlap, as in the
// engine: the handles of one are the inputs of the next.
class KvSteps {
 public:
  explicit KvSteps(const ops::Context& context)
      : context_(context),
        row_(mx::ones({1, kKvHeads, kHeadDim}, mx::bfloat16)),
        kv_(ops::make_paged_kv(kBlocks, kBlockSize, kKvHeads, kHeadDim, mx::bfloat16)) {
    for (const mx::array& pool : kv_.arrays())
      std::memset(const_cast<char*>(pool.data<char>()), 0, pool.nbytes());
    mx::eval(row_);
  }

  void in_place() {
    auto layout = std::make_shared<ops::BatchLayout>();
    layout->num_tokens = 1;
    layout->block_size = kBlockSize;
    layout->slot_mapping = {step_++ % (kBlocks * kBlockSize)};
    go_on(ops::kv_write(context_, row_, row_, kv_, layout));
  }

  void functional() {
    const auto slot = static_cast<int>(step_++ % (kBlocks * kBlockSize));
    const int block = slot / kBlockSize, at = slot % kBlockSize;
    const mx::array update = mx::expand_dims(row_, 0);
    const mx::Shape start = {block, at, 0, 0}, stop = {block + 1, at + 1, kKvHeads, kHeadDim};
    go_on({mx::slice_update(kv_.k, update, start, stop),
           mx::slice_update(kv_.v, update, start, stop)});
  }

 private:
  static constexpr int kBlocks = 4096, kBlockSize = 16;

  void go_on(const ops::PagedKv& next) {
    mx::async_eval(next.arrays());
    mx::eval(kv_.arrays());
    kv_ = next;
  }

  const ops::Context& context_;
  mx::array row_;
  ops::PagedKv kv_;
  int64_t step_ = 0;
};

// A decode step of a layer of Qwen3.5-0.8B, convolution and rule; states are met cold.
class GdnSteps {
 public:
  explicit GdnSteps(const ops::Context& context)
      : context_(context),
        x_of_all_(random_bf16({kSequences, kWidth})),
        x_of_one_(random_bf16({1, kWidth})),
        gates_of_all_(random_bf16({kSequences, 2 * kHeads})),
        gates_of_one_(random_bf16({1, 2 * kHeads})),
        weight_(mx::full({kTaps, kWidth}, 0.25f)),
        history_(random_bf16({kSlots, kTaps - 1, kWidth})),
        states_(ops::make_lazy_array({kSlots, kHeads, kHeadDim, kHeadDim}, mx::float32)) {
    std::memset(states_.data<char>(), 0, states_.nbytes());
    mx::eval(weight_, a_log_, dt_bias_);
  }

  void in_one_call() { mx::eval(call(kSequences, x_of_all_, gates_of_all_)); }

  void one_by_one() {
    for (int s = 0; s < kSequences; ++s) mx::eval(call(1, x_of_one_, gates_of_one_));
  }

 private:
  static constexpr int kSequences = 10, kTaps = 4, kWidth = 3 * kHeads * kHeadDim;
  static constexpr int kSlots = 1000;  // of 1 MiB

  mx::array call(int count, const mx::array& x, const mx::array& gates) {
    const auto layout = gdn_layout({kHeads, kHeadDim, count, 1}, run_++, kSlots);
    const auto conv = ops::causal_conv1d(context_, x, weight_, history_, layout);
    history_ = conv.state;
    const auto rule = ops::gated_delta_rule(context_, conv.y,
                                            {.projected = gates,
                                             .a_column = 0,
                                             .b_column = kHeads,
                                             .a_log = a_log_,
                                             .dt_bias = dt_bias_},
                                            states_, layout);
    states_ = rule.state;
    return rule.y;
  }

  const ops::Context& context_;
  mx::array x_of_all_, x_of_one_, gates_of_all_, gates_of_one_, weight_, history_, states_;
  mx::array a_log_ = mx::zeros({kHeads}), dt_bias_ = mx::zeros({kHeads});
  int64_t run_ = 0;
};

// Seconds of one run: of many, for a tenth of a second and more.
double seconds_of(const Way& way) {
  constexpr double kSeconds = 0.1;
  int64_t runs = 0;
  const TimePoint start = Clock::now();
  do {
    way.run();
    ++runs;
  } while (seconds_since(start) < kSeconds);
  return seconds_since(start) / static_cast<double>(runs);
}

void compare(const char* what, const std::vector<Way>& ways, int64_t rounds, json::array& rows) {
  std::vector<std::vector<double>> seconds(ways.size()), ratios(ways.size());
  for (const Way& way : ways) way.run();  // memory is touched
  for (int64_t round = 0; round < rounds; ++round) {
    for (const size_t way : turn_order(ways.size(), round))
      seconds[way].push_back(seconds_of(ways[way]));
    for (size_t way = 0; way < ways.size(); ++way)
      ratios[way].push_back(seconds[way].back() / seconds[0].back());
  }
  std::printf("%s\n", what);
  for (size_t way = 0; way < ways.size(); ++way) {
    const double median = 1e6 * percentile(seconds[way], 50), ratio = percentile(ratios[way], 50);
    std::printf("  %-52s %10.1f us %8.2f times as long\n", ways[way].name, median, ratio);
    rows.emplace_back(json::object{
        {"comparison", what}, {"way", ways[way].name}, {"median_us", median}, {"ratio", ratio}});
  }
  std::fflush(stdout);
}

}  // namespace

json::array compare_ways(const ComparisonOptions& options) {
  mx::set_default_device(mx::Device::cpu);
  ops::Context context =
      ops::make_context(options.threads > 0 ? options.threads : usable_physical_cores());
  const ThreadPool::Busy busy(*context.pool);
  json::array rows;
  {
    KvSteps own(context), other(context);  // a pool each: an update may leave it anywhere
    compare("one row of keys and values, written in overlapping steps",
            {{"in place", [&] { own.in_place(); }},
             {"a functional update", [&] { other.functional(); }}},
            options.rounds, rows);
  }
  GdnSteps steps(context);
  compare("ten requests decode through a gated delta net",
          {{"one call for all", [&] { steps.in_one_call(); }},
           {"a call for each, awaited", [&] { steps.one_by_one(); }}},
          options.rounds, rows);
  return rows;
}

}  // namespace quire::bench
