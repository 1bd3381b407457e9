#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/scheduler.h"

namespace quire::engine {

using Tokens = std::vector<int32_t>;

inline constexpr int32_t kEos = 0;

// The sampling parameters that the scheduler looks at.
struct Wish {
  int64_t max_tokens = 16;
  bool ignore_eos = false;
  Tokens stop_token_ids = {};
  int32_t prompt_logprobs = -1;
};

// Requests in the order of their ids, blocks of 4 tokens; tokens are committed by hand.
class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerOptions options_{.max_num_batched_tokens = 16,
                            .max_num_seqs = 4,
                            .max_model_len = 32,
                            .num_blocks = 16,
                            .block_size = 4,
                            .eos_token_ids = {kEos}};  // set before the first add

  Scheduler& scheduler() {
    if (!scheduler_) scheduler_ = std::make_unique<Scheduler>(options_);
    return *scheduler_;
  }

  SequencePtr add(Tokens prompt, Wish wish = {}, std::string salt = "", int32_t priority = 0) {
    auto sequence = std::make_shared<Sequence>();
    sequence->id = ++last_id_;
    sequence->tokens = prompt;
    sequence->prompt_len = static_cast<int64_t>(prompt.size());
    sequence->request.prompt = std::move(prompt);
    SamplingParams& sampling = sequence->request.sampling;
    sampling.max_tokens = wish.max_tokens;
    sampling.ignore_eos = wish.ignore_eos;
    sampling.stop_token_ids = std::move(wish.stop_token_ids);
    sampling.prompt_logprobs = wish.prompt_logprobs;
    sequence->request.cache_salt = std::move(salt);
    sequence->request.priority = priority;
    scheduler().add(sequence);
    return sequence;
  }

  StepPlan plan() {
    StepPlan result = scheduler().plan();
    scheduler().check_integrity();
    return result;
  }

  std::vector<CommittedToken> commit(const StepPlan& plan, const Tokens& tokens) {
    std::vector<CommittedToken> result = scheduler().commit(plan, tokens);
    scheduler().check_integrity();
    return result;
  }

  // One step without lookahead; every sampling row yields `token`.
  std::vector<CommittedToken> step(int32_t token = 9) {
    const StepPlan now = plan();
    Tokens tokens;
    for (const StepItem& item : now.items)
      if (item.samples) tokens.push_back(token);
    return commit(now, tokens);
  }

  // With the options as they are now.
  void restart() { scheduler_.reset(); }

 private:
  std::unique_ptr<Scheduler> scheduler_;
  RequestId last_id_ = 0;
};

// "request:start+num_tokens", with "!" if it samples and "?" if it feeds the pending token.
inline std::vector<std::string> items(const StepPlan& plan) {
  std::vector<std::string> result;
  for (const StepItem& item : plan.items) {
    result.push_back(std::to_string(item.sequence->id) + ":" + std::to_string(item.start) + "+" +
                     std::to_string(item.num_tokens) + (item.feeds_pending ? "?" : "") +
                     (item.samples ? "!" : ""));
  }
  return result;
}

inline Tokens count_up(int32_t from, int32_t count) {
  Tokens result;
  for (int32_t i = 0; i < count; ++i) result.push_back(from + i);
  return result;
}

}  // namespace quire::engine
