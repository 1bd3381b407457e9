// The scheduler's operations, chosen by the bytes of the input: requests come, end and are aborted,
// steps are planned, looked ahead, committed, lost. A device that notices every wrong byte runs the
// plans (fake_device_test.h); each request must end with the tokens of its solo run.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "choices.h"
#include "engine/fake_device_test.h"
#include "engine/scheduler.h"

namespace quire::engine::testing {
namespace {

constexpr int kMaxOperations = 400;

SchedulerOptions choose_options(quire::fuzz::Choices& choices) {
  SchedulerOptions options;
  options.block_size = choices.in_range<int64_t>(1, 6);
  options.max_model_len = choices.in_range<int64_t>(1, 40);
  const auto spare_blocks = choices.in_range<int64_t>(0, 10);
  options.max_num_seqs = choices.in_range<int64_t>(1, 7);
  options.max_num_batched_tokens = choices.in_range<int64_t>(1, 24);
  options.num_state_slots = choices.in_range<int64_t>(0, 7);
  if (options.num_state_slots > 0) options.num_state_checkpoints = choices.in_range<int64_t>(0, 8);
  options.state_checkpoint_interval = choices.in_range<int64_t>(0, 12);
  options.min_checkpoint_tokens = choices.in_range<int64_t>(1, 4);
  options.enable_prefix_caching = choices.in_range(0, 7) != 7;
  if (choices.flip()) options.policy = SchedulingPolicy::kPriority;
  if (choices.in_range(0, 7) == 7)  // every block's hash collides
    options.block_hash = [](uint64_t, uint64_t, std::span<const int32_t>) -> uint64_t { return 7; };
  options.eos_token_ids = {kEos};
  // From other choices, so that old inputs keep their meaning.
  if (options.max_model_len % 2 == 1) options.max_step_seconds = SchedulerOptions::kAutoStepTime;
  if (options.num_state_slots == 0 && options.max_model_len % 3 == 0)
    options.windows =
        options.max_model_len % 4 == 0 ? std::vector<int64_t>{5} : std::vector<int64_t>{-1, 6, 2};
  options.num_blocks =
      BlockDemand(options.block_size, options.windows).least_blocks(options.max_model_len) +
      spare_blocks;
  return options;
}

class Traffic {
 public:
  explicit Traffic(quire::fuzz::Choices& choices)
      : choices_(choices), scheduler_(choose_options(choices)), device_(scheduler_, Fault::kNone) {}

  void run() {
    for (int i = 0; i < kMaxOperations && choices_.bytes_left() > 0; ++i) operate();
    // Everything ends when nothing new comes: one token a step, recomputed many times.
    for (size_t left = 4000 + 200 * live_.size(); scheduler_.has_work(); --left) {
      QUIRE_CHECK(left > 0) << "no end in sight";
      step(left % 3 != 0);
    }
    QUIRE_CHECK(live_.empty()) << live_.size() << " requests never ended";
    QUIRE_CHECK(scheduler_.blocks().num_owned() == 0);
    QUIRE_CHECK(scheduler_.state_slots().num_used() == 0);
    QUIRE_CHECK(scheduler_.state_checkpoints().num_held() == 0);
  }

 private:
  struct Live {
    SequencePtr sequence;
    Outcome alone;
  };

  void operate() {
    switch (choices_.in_range(0, 9)) {
      case 0:
      case 1:
      case 2:
        return add();
      case 3:
        return abort();
      case 4:
        return choices_.flip() ? lose_step() : scheduler_.drop_prefix_cache();
      case 5:
        return step(false);
      default:
        return step(true);
    }
  }

  // Prompts over three tokens share prefixes often.
  void add() {
    const int64_t longest = scheduler_.options().max_model_len;
    Request request;
    const auto length = choices_.in_range<int64_t>(1, longest);
    const auto stem = choices_.in_range<int64_t>(0, length);
    const auto stem_token = choices_.in_range<int32_t>(2, 3);
    for (int64_t i = 0; i < length; ++i)
      request.prompt.push_back(i < stem ? stem_token : choices_.in_range<int32_t>(2, 4));
    request.sampling.max_tokens = choices_.in_range<int64_t>(0, longest);
    request.sampling.ignore_eos = choices_.flip();
    if (choices_.flip()) request.sampling.stop_token_ids = {1, 5};
    if (choices_.in_range(0, 7) == 7) request.sampling.prompt_logprobs = 0;
    request.tenant = choices_.in_range<uint64_t>(0, 2);
    request.priority = choices_.in_range<int32_t>(0, 2);
    request.cache_salt = choices_.in_range(0, 3) == 3 ? "other" : "";

    auto sequence = std::make_shared<Sequence>();
    sequence->id = ++last_id_;
    sequence->tokens = request.prompt;
    sequence->prompt_len = length;
    device_.set_salt(sequence->id, request.cache_salt);
    live_[sequence->id] = {sequence, run_alone(request, request.cache_salt, longest)};
    sequence->request = std::move(request);
    scheduler_.add(std::move(sequence));
    scheduler_.check_integrity();
  }

  void abort() {
    if (live_.empty()) return;
    const auto victim = std::next(live_.begin(), choices_.in_range<size_t>(0, live_.size() - 1));
    scheduler_.finish(*victim->second.sequence);
    scheduler_.finish(*victim->second.sequence);  // twice does no harm
    live_.erase(victim);
    scheduler_.check_integrity();
  }

  void lose_step() {
    for (const RequestId id : lose_memory(scheduler_, device_, in_flight_)) live_.erase(id);
  }

  void step(bool lookahead) {
    const bool may_look_ahead = scheduler_.options().max_model_len % 5 != 0;
    if (!lookahead || !may_look_ahead) commit();
    StepPlan plan = scheduler_.plan();
    scheduler_.check_integrity();
    if (plan.empty()) {
      QUIRE_CHECK(in_flight_ || !scheduler_.has_work()) << "nothing can be scheduled";
      return commit();
    }
    LaunchedStep next{.plan = std::move(plan), .tokens = {}};
    next.tokens = device_.launch(next.plan);
    QUIRE_CHECK(device_.error().empty()) << device_.error();
    commit();
    in_flight_ = std::move(next);
  }

  void commit() {
    if (!in_flight_) return;
    for (const CommittedToken& committed :
         scheduler_.commit(in_flight_->plan, in_flight_->tokens)) {
      QUIRE_CHECK(committed.sequence == in_flight_->plan.items[committed.item].sequence.get());
      if (!committed.finish) continue;
      const auto ended = live_.find(committed.sequence->id);
      QUIRE_CHECK(ended != live_.end()) << "an event after the last one";
      const Outcome outcome{committed.sequence->tokens, committed.finish, committed.stop_token};
      QUIRE_CHECK(outcome == ended->second.alone) << "differs from its solo run";
      live_.erase(ended);
    }
    const StepLoad& load = in_flight_->plan.load;
    scheduler_.observe(load, static_cast<double>(1 + load.decode_rows + 2 * load.prompt_tokens));
    scheduler_.recycle(std::move(in_flight_->plan));
    in_flight_.reset();
    scheduler_.check_integrity();
  }

  quire::fuzz::Choices& choices_;
  Scheduler scheduler_;
  FakeDevice device_;
  RequestId last_id_ = 0;
  std::map<RequestId, Live> live_;
  std::optional<LaunchedStep> in_flight_;
};

}  // namespace
}  // namespace quire::engine::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::fuzz::Choices choices(data, size);
  quire::engine::testing::Traffic(choices).run();
  return 0;
}
