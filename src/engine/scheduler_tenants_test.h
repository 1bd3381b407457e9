#pragma once
// Steps of several tenants, on a machine whose time follows from a step's load.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "engine/scheduler.h"

namespace quire::engine {

inline constexpr int64_t kBudget = 64;

struct Ask {
  uint64_t tenant = 0;
  int64_t prompt = 16, max_tokens = 8;
  int32_t priority = 0;
};

// Steps without lookahead; every sampling row yields another token, and the seconds that a step
// takes follow from its load.
class Tenants : public ::testing::Test {
 protected:
  SchedulerOptions options_{.max_num_batched_tokens = kBudget,
                            .max_num_seqs = 16,
                            .max_model_len = 2048,
                            .num_blocks = 1024,
                            .block_size = 4,
                            .enable_prefix_caching = false};  // set before the first add
  std::function<double(const StepLoad&)> seconds_ = seconds_of;
  double slowness_ = 1;  // of the machine: factor to seconds_

  Scheduler& scheduler() {
    if (!scheduler_) scheduler_ = std::make_unique<Scheduler>(options_);
    return *scheduler_;
  }

  SequencePtr add(Ask ask) {
    auto sequence = std::make_shared<Sequence>();
    sequence->id = ++last_id_;
    sequence->tokens.assign(static_cast<size_t>(ask.prompt), static_cast<int32_t>(last_id_));
    sequence->prompt_len = ask.prompt;
    sequence->request.tenant = ask.tenant;
    sequence->request.priority = ask.priority;
    sequence->request.sampling.max_tokens = ask.max_tokens;
    sequence->request.sampling.ignore_eos = true;
    scheduler().add(sequence);
    return sequence;
  }
  void add_many(int count, Ask ask) {
    for (int i = 0; i < count; ++i) add(ask);
  }

  static double seconds_of(const StepLoad& load) {
    const auto of = [](int64_t count) { return static_cast<double>(count); };
    const double rows = load.decode_rows == 0 ? 0 : 0.05 + 1e-3 * of(load.decode_rows);
    return rows + 2e-3 * of(load.prompt_tokens) + 4e-6 * of(load.prompt_context);
  }

  StepPlan step() {
    StepPlan plan = scheduler().plan();
    scheduler().check_integrity();
    std::vector<int32_t> tokens;
    for (const StepItem& item : plan.items)
      if (item.samples) tokens.push_back(9);
    scheduler().commit(plan, tokens);
    scheduler().observe(plan.load, slowness_ * seconds_(plan.load));
    scheduler().check_integrity();
    return plan;
  }

  // Steps until the sequence has a token.
  int64_t steps_to_first_token(const Sequence& sequence, int64_t limit = 1000) {
    int64_t steps = 0;
    for (; sequence.num_output() == 0 && steps < limit; ++steps) step();
    return steps;
  }

  static int64_t tokens_of(const StepPlan& plan, const SequencePtr& sequence) {
    for (const StepItem& item : plan.items)
      if (item.sequence == sequence) return item.num_tokens;
    return 0;
  }

 private:
  std::unique_ptr<Scheduler> scheduler_;
  RequestId last_id_ = 0;
};

}  // namespace quire::engine
