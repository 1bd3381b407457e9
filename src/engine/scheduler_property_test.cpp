// Random traffic against a device that notices every wrong byte (fake_device_test.h): whatever is
// batched, chunked, shared, preempted, aborted or looked ahead, each request ends with exactly the
// tokens of its solo run.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/detail/Configuration.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/fake_device_test.h"
#include "engine/scheduler.h"

namespace quire::engine::testing {
namespace {

uint64_t colliding_hash(uint64_t, uint64_t, std::span<const int32_t>) { return 7; }

struct Scenario {
  int64_t block_size = 4, max_model_len = 32, spare_blocks = 0;
  int64_t max_num_seqs = 4, budget = 16;
  bool priorities = false, caching = true, colliding = false;
  int64_t tenants = 1;
  std::vector<int64_t> windows = {-1};  // of block tables; without recurrent state
  double step_limit = 0;                // as SchedulerOptions::max_step_seconds, of step_time()
  bool lookahead = true;                // else every step is committed before the next is planned
  int64_t postpone_every = 0;           // one sampled row in so many is postponed; 0: none
  // Of recurrent state; 0: none, and none saved.
  int64_t state_slots = 0, checkpoints = 0, interval = 0, min_checkpoint = 1;
  std::vector<uint32_t> actions;

  std::vector<int64_t> tables() const {
    return state_slots > 0 ? std::vector<int64_t>{-1} : windows;
  }
  SchedulerOptions options() const {
    return {
        .max_num_batched_tokens = budget,
        .max_step_seconds = step_limit,
        .max_num_seqs = max_num_seqs,
        .max_model_len = max_model_len,
        .num_blocks = BlockDemand(block_size, tables()).least_blocks(max_model_len) + spare_blocks,
        .block_size = block_size,
        .windows = tables(),
        .num_state_slots = state_slots,
        .num_state_checkpoints = state_slots > 0 ? checkpoints : 0,
        .state_checkpoint_interval = interval,
        .min_checkpoint_tokens = min_checkpoint,
        .enable_prefix_caching = caching,
        .policy = priorities ? SchedulingPolicy::kPriority : SchedulingPolicy::kFcfs,
        .eos_token_ids = {kEos},
        .block_hash = colliding ? colliding_hash : hash_block};
  }
};

std::ostream& operator<<(std::ostream& out, const Scenario& s) {
  out << "block_size " << s.block_size << ", max_model_len " << s.max_model_len << ", spare_blocks "
      << s.spare_blocks << ", max_num_seqs " << s.max_num_seqs << ", budget " << s.budget
      << (s.priorities ? ", priorities" : "") << (s.caching ? ", caching" : "")
      << (s.colliding ? ", colliding" : "") << ", tenants " << s.tenants << ", step_limit "
      << s.step_limit << (s.lookahead ? ", lookahead" : "") << ", postpone_every "
      << s.postpone_every << ", state_slots " << s.state_slots << ", checkpoints " << s.checkpoints
      << ", interval " << s.interval << ", min_checkpoint " << s.min_checkpoint << ", windows {";
  for (const int64_t window : s.windows) out << window << ", ";
  out << "}, actions {";
  for (const uint32_t action : s.actions) out << action << "u, ";
  return out << "}";
}

// How often the interesting things happened, over all scenarios of a test.
struct Coverage {
  int64_t finished = 0, hits = 0, full_hits = 0, preemptions = 0, pending_rows = 0;
  int64_t in_flight_aborts = 0, in_flight_preemptions = 0, failures = 0, rows_put_off = 0;
  int64_t postponed = 0, postponed_lost = 0;  // rows whose tokens came later, or never
  // With recurrent state: continued and saved states, tokens fed again on blocks that are shared,
  // steps with a save whose block is not known yet.
  int64_t restores = 0, saves = 0, fed_on_shared = 0, held = 0;
  // With windows: blocks that were given back, and prompts that went on from a prefix whose first
  // blocks they do not see.
  int64_t given_back = 0, late_hits = 0;
};

// Seconds that a step takes on the device.
double step_time(const StepLoad& load) {
  return 1.0 + 0.1 * static_cast<double>(load.decode_rows) +
         0.2 * static_cast<double>(load.prompt_tokens) +
         0.01 * static_cast<double>(load.prompt_context);
}

// Plays one scenario. run() returns what went wrong, "" if nothing did.
class Player {
 public:
  Player(const Scenario& scenario, Fault fault, Coverage& coverage)
      : scenario_(scenario),
        fault_(fault),
        coverage_(coverage),
        scheduler_(scenario.options()),
        device_(scheduler_, fault) {}

  std::string run() {
    for (const uint32_t action : scenario_.actions) {
      std::minstd_rand random(action);
      random.discard(2);  // its first numbers follow the seed closely
      const auto kind = random() % 16;
      if (kind < 4) {
        add(random);
      } else if (kind == 4) {
        abort(random);
      } else if (kind == 5 && random() % 4 == 0) {
        fail_device();
      } else if (kind == 6 && random() % 8 == 0) {
        scheduler_.drop_prefix_cache();  // somebody asked for it, with a step in flight
      } else if (kind == 7 && random() % 2 == 0) {
        add_slow_prefill(random);
      } else {
        step(random() % 3 != 0);
      }
      if (!problem().empty()) return problem();
    }
    // The longest possible way out: one token a step, everything recomputed many times.
    for (int64_t left = 4000 + 200 * static_cast<int64_t>(live_.size()); scheduler_.has_work();) {
      if (--left == 0) return "no end in sight";
      step(left % 3 != 0);
      if (!problem().empty()) return problem();
    }
    coverage_.preemptions += scheduler_.stats().preemptions;
    coverage_.hits += scheduler_.stats().prefix_hits;
    coverage_.rows_put_off += scheduler_.stats().rows_put_off;
    coverage_.restores += scheduler_.stats().state_restores;
    coverage_.saves += scheduler_.stats().state_saves;
    if (scheduler_.blocks().num_owned() != 0) return "blocks are left over";
    if (scheduler_.state_slots().num_used() != 0) return "state slots are left over";
    if (scheduler_.state_checkpoints().num_held() != 0) return "checkpoints are left over";
    return live_.empty() ? "" : "a request never ended";
  }

 private:
  // Half of the prompts are short: they are admitted together, grow, and run out of blocks.
  template <class Random>
  void add(Random& random) {
    const auto longest = static_cast<uint64_t>(scenario_.max_model_len);
    const uint64_t shortest = std::min<uint64_t>(longest, 6);
    const uint64_t length = random();  // compilers order calls in an expression as they like
    const uint64_t most = random() % 2 == 0 ? longest : shortest;
    Request request = make_request(random, 1 + length % most);
    if (random() % 8 == 0) request.sampling.max_tokens = 0;
    if (random() % 8 == 0) request.sampling.prompt_logprobs = 0;
    submit(std::move(request), random() % 4 == 0 ? "other" : "");
  }

  // A short request that decodes for long, then a long prompt that goes before it: the prompt's
  // last chunks take the blocks of a sequence that has its row in the plan already.
  template <class Random>
  void add_slow_prefill(Random& random) {
    const auto longest = static_cast<uint64_t>(scenario_.max_model_len);
    Request decoding = make_request(random, 1);
    decoding.sampling.max_tokens = scenario_.max_model_len;
    decoding.sampling.ignore_eos = true;
    decoding.priority = 3;
    submit(std::move(decoding), "");
    step(true);
    Request prefill = make_request(random, longest - longest / 8);
    prefill.priority = -1;
    submit(std::move(prefill), "");
  }

  // Prompts share prefixes: a stem of one of two texts, then a tail over a tiny alphabet.
  template <class Random>
  Request make_request(Random& random, uint64_t length) {
    Request request;
    const auto text = static_cast<int32_t>(2 + random() % 2);
    const uint64_t stem = random() % 3 == 0 ? length : random() % (length + 1);
    for (uint64_t i = 0; i < length; ++i) {
      request.prompt.push_back(i < stem ? text : static_cast<int32_t>(2 + random() % 3));
    }
    request.sampling.max_tokens = 1 + static_cast<int64_t>(random() % scenario_.max_model_len);
    request.sampling.ignore_eos = random() % 2 == 0;
    if (random() % 3 == 0) request.sampling.stop_token_ids = {1, 5};
    request.priority = static_cast<int32_t>(random() % 3);
    request.tenant = random() % static_cast<uint64_t>(scenario_.tenants);
    return request;
  }

  void submit(Request request, const std::string& salt) {
    auto sequence = std::make_shared<Sequence>();
    sequence->id = ++last_id_;
    sequence->tokens = request.prompt;
    sequence->prompt_len = static_cast<int64_t>(request.prompt.size());
    request.cache_salt = fault_ == Fault::kIgnoredSalt ? "" : salt;
    device_.set_salt(sequence->id, salt);
    live_[sequence->id] = {sequence, run_alone(request, salt, scenario_.max_model_len)};
    sequence->request = std::move(request);
    scheduler_.add(std::move(sequence));
  }

  template <class Random>
  void abort(Random& random) {
    if (live_.empty()) return;
    const auto victim = std::next(live_.begin(), random() % live_.size());
    coverage_.in_flight_aborts += victim->second.sequence->num_pending;
    scheduler_.finish(*victim->second.sequence);
    scheduler_.finish(*victim->second.sequence);  // twice does no harm
    live_.erase(victim);
    scheduler_.check_integrity();
  }

  void fail_device() {
    ++coverage_.failures;
    for (const RequestId id : lose_memory(scheduler_, device_, in_flight_)) live_.erase(id);
  }

  void step(bool lookahead) {
    if (!lookahead || !scenario_.lookahead) commit();
    StepPlan plan = scheduler_.plan();
    scheduler_.check_integrity();
    if (plan.empty()) {
      forget_lost_postponed_rows();
      const bool can_go_on = in_flight_ || !postponed_.empty() || !scheduler_.has_work();
      if (!can_go_on) problem_ = "nothing can be scheduled";
      commit();
      sample_postponed_rows(1);
      return;
    }
    for (const StepItem& item : plan.items) {
      coverage_.pending_rows += item.feeds_pending;
      coverage_.full_hits += item.sequence->shared_len == item.start + 1;
      coverage_.fed_on_shared += item.sequence->shared_len > item.start + 1;
      count_given_back(*item.sequence, item.start);
    }
    for (const auto& [id, live] : live_) {
      const Sequence& sequence = *live.sequence;
      coverage_.in_flight_preemptions +=
          sequence.state == Sequence::State::kWaiting && sequence.num_pending > 0;
    }
    coverage_.held += scheduler_.state_checkpoints().num_held();
    LaunchedStep next{.plan = std::move(plan), .tokens = {}};
    next.tokens = device_.launch(next.plan);
    commit();
    sample_postponed_rows(postponed_.size() / 2);
    in_flight_ = std::move(next);
  }

  // The tokens of an item whose mask has not come become known in a later step.
  void postpone_rows() {
    if (scenario_.postpone_every == 0) return;
    size_t row = 0;
    for (const StepItem& item : in_flight_->plan.items) {
      if (!item.samples) continue;
      int32_t& token = in_flight_->tokens[row++];
      if (item.sequence->state != Sequence::State::kRunning || item.sequence->num_pending != 1 ||
          ++num_sampled_ % scenario_.postpone_every != 0)
        continue;
      item.sequence->postponed = true;
      postponed_.push_back(
          {.item = item, .token = std::exchange(token, Scheduler::kPostponedToken)});
    }
  }

  // Those of sequences that have ended, or were preempted and forgot the row.
  void forget_lost_postponed_rows() {
    coverage_.postponed_lost += static_cast<int64_t>(std::erase_if(
        postponed_, [](const PostponedRow& row) { return !row.item.sequence->postponed; }));
  }

  void sample_postponed_rows(size_t most) {
    forget_lost_postponed_rows();
    for (; most > 0 && !postponed_.empty(); --most) {
      PostponedRow row = std::move(postponed_.front());
      postponed_.erase(postponed_.begin());
      row.item.sequence->postponed = false;
      StepPlan plan;
      plan.items.push_back(row.item);
      ++coverage_.postponed;
      hear(plan, scheduler_.commit(plan, std::vector<int32_t>{row.token}));
    }
    scheduler_.check_integrity();
  }

  void count_given_back(const Sequence& sequence, int64_t start) {
    const bool begins = start == std::min(sequence.shared_len, sequence.prompt_len - 1);
    for (const BlockTable& table : sequence.tables) {
      coverage_.given_back += table.given_back > 0;
      coverage_.late_hits += begins && table.given_back > 0;
    }
  }

  void commit() {
    if (!in_flight_) return;
    postpone_rows();
    hear(in_flight_->plan, scheduler_.commit(in_flight_->plan, in_flight_->tokens));
    scheduler_.observe(in_flight_->plan.load, step_time(in_flight_->plan.load));
    scheduler_.recycle(std::move(in_flight_->plan));
    in_flight_.reset();
    scheduler_.check_integrity();
  }

  void hear(const StepPlan& plan, const std::vector<CommittedToken>& tokens) {
    for (const CommittedToken& committed : tokens) {
      if (committed.sequence != plan.items[committed.item].sequence.get()) {
        problem_ = "a token of another request";
      }
      if (committed.finish) compare(committed);
    }
  }

  void compare(const CommittedToken& committed) {
    const RequestId id = committed.sequence->id;
    const auto it = live_.find(id);
    if (it == live_.end()) {
      problem_ = "an event after the last one";
      return;
    }
    const Outcome outcome{committed.sequence->tokens, committed.finish, committed.stop_token};
    if (!(outcome == it->second.alone)) {
      problem_ = "request " + std::to_string(id) + " differs from its solo run";
    }
    ++coverage_.finished;
    live_.erase(it);
  }

  const std::string& problem() const { return problem_.empty() ? device_.error() : problem_; }

  struct Live {
    SequencePtr sequence;
    Outcome alone;
  };
  struct PostponedRow {
    StepItem item;
    int32_t token = -1;
  };
  const Scenario& scenario_;
  const Fault fault_;
  Coverage& coverage_;
  Scheduler scheduler_;
  FakeDevice device_;
  RequestId last_id_ = 0;
  std::map<RequestId, Live> live_;
  std::optional<LaunchedStep> in_flight_;
  std::vector<PostponedRow> postponed_;
  int64_t num_sampled_ = 0;
  std::string problem_;
};

rc::Gen<Scenario> any_scenario() {
  // In whole numbers up to 2^31: the actions' bits are used as seeds.
  const std::vector<std::vector<int64_t>> windows = {{-1},          {-1},   {5},     {-1, 3},
                                                     {-1, 7, 7, 7}, {0, 9}, {-1, -1}};
  const auto action = rc::gen::noShrink(rc::gen::inRange<uint32_t>(1, 1u << 31));
  return rc::gen::build<Scenario>(
      rc::gen::set(&Scenario::block_size, rc::gen::inRange<int64_t>(1, 6)),
      rc::gen::set(&Scenario::max_model_len, rc::gen::inRange<int64_t>(1, 40)),
      rc::gen::set(&Scenario::spare_blocks, rc::gen::inRange<int64_t>(0, 10)),
      rc::gen::set(&Scenario::max_num_seqs, rc::gen::inRange<int64_t>(1, 7)),
      rc::gen::set(&Scenario::budget, rc::gen::inRange<int64_t>(1, 24)),
      rc::gen::set(&Scenario::priorities, rc::gen::arbitrary<bool>()),
      rc::gen::set(&Scenario::tenants, rc::gen::inRange<int64_t>(1, 5)),
      rc::gen::set(&Scenario::step_limit,
                   rc::gen::element(0.0, SchedulerOptions::kAutoStepTime, 0.001, 2.0, 4.0)),
      rc::gen::set(&Scenario::lookahead, rc::gen::arbitrary<bool>()),
      rc::gen::set(&Scenario::postpone_every, rc::gen::element<int64_t>(0, 0, 2, 5)),
      rc::gen::set(&Scenario::caching, rc::gen::weightedElement<bool>({{7, true}, {1, false}})),
      rc::gen::set(&Scenario::colliding, rc::gen::weightedElement<bool>({{3, false}, {1, true}})),
      rc::gen::set(&Scenario::state_slots,
                   rc::gen::weightedOneOf<int64_t>(
                       {{1, rc::gen::just<int64_t>(0)}, {1, rc::gen::inRange<int64_t>(1, 7)}})),
      rc::gen::set(&Scenario::checkpoints, rc::gen::inRange<int64_t>(0, 8)),
      rc::gen::set(&Scenario::interval, rc::gen::inRange<int64_t>(0, 12)),
      rc::gen::set(&Scenario::min_checkpoint, rc::gen::inRange<int64_t>(0, 4)),
      rc::gen::set(&Scenario::windows, rc::gen::elementOf(windows)),
      rc::gen::set(&Scenario::actions,
                   rc::gen::scale(3.0, rc::gen::container<std::vector<uint32_t>>(action))));
}

TEST(SchedulerProperty, EveryRequestEndsAsIfAlone) {
  Coverage coverage;
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = 3000;
  const auto result = rc::detail::checkTestable(
      [&] {
        const Scenario scenario = *any_scenario();
        const std::string problem = Player(scenario, Fault::kNone, coverage).run();
        if (!problem.empty()) RC_FAIL(problem);
      },
      rc::detail::TestMetadata{}, params);
  if (!result.is<rc::detail::SuccessResult>()) {
    std::ostringstream out;
    rc::detail::printResultMessage(result, out);
    FAIL() << out.str();
  }
  // It all really happened.
  EXPECT_GT(coverage.finished, 10000);
  EXPECT_GT(coverage.hits, 10000);
  EXPECT_GT(coverage.full_hits, 100);
  EXPECT_GT(coverage.preemptions, 500);
  EXPECT_GT(coverage.in_flight_preemptions, 100);
  EXPECT_GT(coverage.pending_rows, 10000);
  EXPECT_GT(coverage.in_flight_aborts, 100);
  EXPECT_GT(coverage.failures, 100);
  EXPECT_GT(coverage.rows_put_off, 50);
  EXPECT_GT(coverage.postponed, 1000);
  EXPECT_GT(coverage.postponed_lost, 10);
  EXPECT_GT(coverage.restores, 500);
  EXPECT_GT(coverage.saves, 10000);
  EXPECT_GT(coverage.fed_on_shared, 1000);
  EXPECT_GT(coverage.held, 1000);
  EXPECT_GT(coverage.given_back, 10000);
  EXPECT_GT(coverage.late_hits, 200);
  std::cout << coverage.finished << " requests, " << coverage.hits << " tokens from the cache, "
            << coverage.full_hits << " whole prompts, " << coverage.preemptions << " preemptions, "
            << coverage.pending_rows << " rows on a pending token, " << coverage.saves
            << " states saved, " << coverage.restores << " continued, " << coverage.fed_on_shared
            << " chunks on shared blocks, " << coverage.held << " held, " << coverage.rows_put_off
            << " rows put off, " << coverage.given_back << " rows without their first blocks, "
            << coverage.late_hits << " of them begun on cached ones\n";
}

// Rows whose turn it was had no blocks, and the one that would have got them was put off.
TEST(SchedulerProperty, SomebodyGetsOnWhenRowsArePutOff) {
  const std::vector<Scenario> scenarios = {
      {.block_size = 2,
       .max_model_len = 36,
       .spare_blocks = 3,
       .budget = 5,
       .tenants = 3,
       .step_limit = 4,
       .lookahead = false,
       .state_slots = 4,
       .checkpoints = 1,
       .min_checkpoint = 0,
       .actions = {1489996764, 273643989,  941713686,  536609707, 2097506245,
                   1710500692, 1606120479, 1311025681, 106661877, 1183754107,
                   1334079793, 397944212,  1151076024, 228896143, 1638634717,
                   1110014655, 1070350709, 1789316682, 319578619, 1039155909}},
      {.block_size = 1,
       .max_model_len = 22,
       .spare_blocks = 5,
       .max_num_seqs = 3,
       .budget = 6,
       .priorities = true,
       .tenants = 2,
       .step_limit = SchedulerOptions::kAutoStepTime,
       .lookahead = false,
       .state_slots = 3,
       .checkpoints = 1,
       .interval = 4,
       .min_checkpoint = 2,
       .actions = {2078624336, 717826409,  1489440855, 902619689,  764684550,  1379104653,
                   156547153,  398324850,  1465951576, 2069045625, 1102127003, 1815544338,
                   1960649143, 207489909,  1152004823, 1972980488, 540575515,  2082532654,
                   1995948805, 1809552671, 783906510,  272209434,  2016810805, 1017034748}}};
  for (const Scenario& scenario : scenarios) {
    Coverage coverage;
    EXPECT_EQ(Player(scenario, Fault::kNone, coverage).run(), "") << scenario;
    EXPECT_GT(coverage.rows_put_off, 0);
  }
}

// The test can fail: with a bug put in on purpose, most scenarios end with a complaint.
bool has_state(Fault fault) {
  return fault == Fault::kEarlySave || fault == Fault::kSkippedRestore ||
         fault == Fault::kForeignState;
}

bool has_window(Fault fault) { return fault == Fault::kWideWindow; }

class NegativeControl : public ::testing::TestWithParam<Fault> {};

TEST_P(NegativeControl, IsNoticed) {
  Coverage coverage;
  int noticed = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario{.spare_blocks = 8,
                      .max_num_seqs = 6,
                      .windows = has_window(GetParam()) ? std::vector<int64_t>{-1, 6, 6}
                                                        : std::vector<int64_t>{-1},
                      .state_slots = has_state(GetParam()) ? 6 : 0,
                      .checkpoints = 6,
                      .interval = 8,
                      .actions = {}};
    std::mt19937 random(seed);
    for (int i = 0; i < 300; ++i) scenario.actions.push_back(random() & 0x7fffffff);
    EXPECT_EQ(Player(scenario, Fault::kNone, coverage).run(), "") << seed;
    noticed += !Player(scenario, GetParam(), coverage).run().empty();
  }
  EXPECT_GE(noticed, 15) << "of 20";
}

INSTANTIATE_TEST_SUITE_P(Faults, NegativeControl,
                         ::testing::Values(Fault::kForeignBlock, Fault::kSkippedWrite,
                                           Fault::kStalePending, Fault::kIgnoredSalt,
                                           Fault::kEarlySave, Fault::kSkippedRestore,
                                           Fault::kForeignState, Fault::kWideWindow));

}  // namespace
}  // namespace quire::engine::testing
