#include "bench/engine/scheduler.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/stats.h"
#include "engine/scheduler.h"

namespace quire::bench {
namespace {

using engine::Scheduler;

constexpr int64_t kPromptLen = 64, kMaxTokens = 2000;
constexpr int64_t kWindowTables = 7;  // Gemma 3's: six with a window, one without

struct Setup {
  const char* name;
  bool prefix_cache, recurrent_state, windows;
};
constexpr Setup kSetups[] = {{"no prefix cache", false, false, false},
                             {"prefix cache", true, false, false},
                             {"and recurrent state", true, true, false},
                             {"and seven block tables", true, false, true}};

engine::SchedulerOptions options_of(const Setup& setup, int64_t num_seqs) {
  std::vector<int64_t> windows = {-1};
  if (setup.windows) windows.resize(kWindowTables, 511);
  const auto tables = static_cast<int64_t>(windows.size());
  return {.max_num_batched_tokens = 8192,
          .max_num_seqs = num_seqs,
          .max_model_len = kPromptLen + kMaxTokens,
          .num_blocks = (num_seqs * 130 + 64) * tables,
          .block_size = 16,
          .windows = windows,
          .num_state_slots = setup.recurrent_state ? num_seqs : 0,
          .num_state_checkpoints = setup.recurrent_state ? 2 * num_seqs : 0,
          .enable_prefix_caching = setup.prefix_cache,
          .eos_token_ids = {0, 1, 2}};
}

engine::SequencePtr make_sequence(engine::RequestId id) {
  auto sequence = std::make_shared<engine::Sequence>();
  sequence->id = id;
  sequence->tokens.assign(kPromptLen, static_cast<int32_t>(id % 1000));
  sequence->prompt_len = kPromptLen;
  // Ends are spread over the steps, as in a running server.
  sequence->request.sampling.max_tokens = kMaxTokens / 2 + static_cast<int64_t>(id * 37 % 1000);
  return sequence;
}

// A scheduler whose sequences all decode, one step ahead of what is known.
class DecodingScheduler {
 public:
  DecodingScheduler(const Setup& setup, int64_t num_seqs)
      : num_seqs_(num_seqs), scheduler_(options_of(setup, num_seqs)) {
    for (int64_t i = 0; i < 3 * kMaxTokens; ++i) step();  // until the pool is full of cached blocks
  }

  void step() {
    while (scheduler_.num_running() + scheduler_.num_waiting() < num_seqs_)
      scheduler_.add(make_sequence(++last_id_));
    engine::StepPlan plan = scheduler_.plan();
    tokens_.clear();
    for (const engine::StepItem& item : plan.items)
      if (item.samples) tokens_.push_back(static_cast<int32_t>(3 + item.start % 1000));
    std::swap(plan, plan_before_);
    std::swap(tokens_, tokens_before_);
    scheduler_.commit(plan, tokens_);
    scheduler_.recycle(std::move(plan));
  }

 private:
  int64_t num_seqs_;
  Scheduler scheduler_;
  engine::RequestId last_id_ = 0;
  engine::StepPlan plan_before_;
  std::vector<int32_t> tokens_, tokens_before_;
};

// Finding and sharing a cached prompt, and giving it back.
void admit_cached(Scheduler& scheduler, int64_t length) {
  auto sequence = std::make_shared<engine::Sequence>();
  for (int64_t i = 0; i < length; ++i) sequence->tokens.push_back(static_cast<int32_t>(i));
  sequence->prompt_len = length;
  sequence->request.sampling.max_tokens = 1;
  scheduler.add(std::move(sequence));
  engine::StepPlan plan = scheduler.plan();
  scheduler.commit(plan, std::vector<int32_t>{5});
  scheduler.recycle(std::move(plan));
}

// Microseconds of one call: of many in a row, so that the clock does not count.
void measure(const std::string& name, double seconds, json::array& rows,
             const std::function<void()>& call) {
  constexpr int kCalls = 20;
  std::vector<double> times;
  const TimePoint begin = Clock::now();
  do {
    const TimePoint start = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    times.push_back(1e6 * seconds_since(start) / kCalls);
  } while (seconds_since(begin) < seconds);
  const double median = percentile(times, 50), best = percentile(times, 0);
  std::printf("%-44s %10.2f %10.2f\n", name.c_str(), median, best);
  std::fflush(stdout);
  rows.emplace_back(json::object{{"name", name}, {"median_us", median}, {"best_us", best}});
}

}  // namespace

json::array measure_scheduler(double seconds) {
  json::array rows;
  std::printf("%-44s %10s %10s\n", "plan() and commit() of a decode step", "median us", "best us");
  for (const Setup& setup : kSetups) {
    for (const int64_t num_seqs : {1, 64, 256}) {
      DecodingScheduler scheduler(setup, num_seqs);
      measure(std::to_string(num_seqs) + " sequences, " + setup.name, seconds, rows,
              [&] { scheduler.step(); });
    }
  }
  for (const int64_t length : {1024, 131072}) {
    Scheduler scheduler({.max_num_batched_tokens = 1 << 20,
                         .max_num_seqs = 4,
                         .max_model_len = length + 16,
                         .num_blocks = length / 8,
                         .block_size = 16});
    admit_cached(scheduler, length);  // from now on it is cached
    measure("admits a cached prompt of " + std::to_string(length) + " tokens", seconds, rows,
            [&] { admit_cached(scheduler, length); });
  }
  return rows;
}

}  // namespace quire::bench
