#include "engine_harness.h"
#include "base/source_dir.h"
#include "engine/cache_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

namespace quire::engine {
namespace {

// Collects the events of a set of requests.
class Collector {
 public:
  explicit Collector(size_t count) : answers(count) {}

  TokenSink sink(size_t index) {
    return [this, index](TokenEvent&& event) {
      const std::lock_guard lock(mutex_);
      Answer& answer = answers[index];
      EXPECT_FALSE(answer.finish) << "an event after the last one";
      answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
      std::move(event.logprobs.begin(), event.logprobs.end(), std::back_inserter(answer.logprobs));
      std::move(event.prompt_logprobs.begin(), event.prompt_logprobs.end(),
                std::back_inserter(answer.prompt_logprobs));
      if (!event.pooled.empty()) answer.pooled = std::move(event.pooled);
      answer.finish = event.finish;
      answer.error = event.error;
      answer.stats = event.stats;
      answer.times.push_back(Clock::now());
      ++events_;
      finished_ += event.finish.has_value();
      changed_.notify_all();
    };
  }

  void wait_for_events(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(200),
                      [&] { return events_ >= count || finished_ == submitted; });
  }
  int64_t events() {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ == answers.size(); });
  }
  size_t num_tokens(size_t index) {
    const std::lock_guard lock(mutex_);
    return answers[index].tokens.size();
  }

  std::vector<Answer> answers;
  size_t submitted = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t events_ = 0;
  size_t finished_ = 0;
};

}  // namespace

bool operator==(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token && a.logprob == b.logprob && a.rank == b.rank && a.top == b.top;
}

std::string Arrangement::text() const {
  std::ostringstream out;
  out << checkpoint << ": threads " << threads << ", block size " << block_size << ", blocks "
      << num_blocks << ", token budget " << max_num_batched_tokens << ", prefix cache "
      << prefix_caching << ", lookahead " << lookahead << ", KV storage "
      << static_cast<int>(kv_storage) << ", checkpoints " << state_checkpoints << " every "
      << checkpoint_interval << ", step limit " << max_step_seconds;
  return out.str();
}

formats::Checkpoint open_checkpoint(const std::string& name) {
  return formats::Checkpoint::open(source_dir() + "/" + name.substr(0, name.find('+')));
}

std::unique_ptr<models::Model> make_model(const Arrangement& setup) {
  const formats::Checkpoint checkpoint = open_checkpoint(setup.checkpoint);
  ops::Context context = ops::make_context(setup.threads);
  context.profile = setup.profile;
  std::vector<formats::LoraAdapter> adapters;
  for (const std::string& dir : setup.adapters)
    adapters.push_back(formats::LoraAdapter::open(source_dir() + "/" + dir));
  auto model = models::load_model(
      context, checkpoint,
      {.dtype = {},
       .max_positions = setup.max_model_len,
       .progress = {},
       .ablation = setup.ablation,
       .int8_activations = setup.checkpoint.ends_with("+int8") ? std::optional(true) : std::nullopt,
       .adapters = adapters});
  if (setup.wrap) model = setup.wrap(std::move(model));
  return model;
}

EngineOptions make_options(const Arrangement& setup) {
  EngineOptions options;
  options.scheduler = {.max_num_batched_tokens = setup.max_num_batched_tokens,
                       .max_step_seconds = setup.max_step_seconds,
                       .max_num_seqs = setup.max_num_seqs,
                       .max_adapters = setup.max_adapters,
                       .max_model_len = setup.max_model_len,
                       .block_size = setup.block_size,
                       .num_state_slots = setup.num_state_slots,
                       .num_state_checkpoints = setup.state_checkpoints,
                       .state_checkpoint_interval = setup.checkpoint_interval,
                       .min_checkpoint_tokens = setup.min_checkpoint_tokens,
                       .enable_prefix_caching = setup.prefix_caching,
                       .policy = setup.policy,
                       .eos_token_ids = {}};
  options.give_back_blocks = setup.give_back_blocks;
  const int64_t per_sequence = (setup.max_model_len + setup.block_size - 1) / setup.block_size;
  options.scheduler.num_blocks =
      setup.num_blocks == 0 ? per_sequence * setup.max_num_seqs : setup.num_blocks;
  for (const int64_t id : open_checkpoint(setup.checkpoint).eos_token_ids())
    options.scheduler.eos_token_ids.push_back(static_cast<int32_t>(id));
  options.lookahead = setup.lookahead;
  options.replay_decodes = setup.replay_decodes;
  options.max_waiting = setup.max_waiting;
  options.kv_storage = setup.kv_storage;
  options.check_integrity = true;
  return options;
}

std::unique_ptr<Engine> make_engine(const Arrangement& setup) {
  auto model = make_model(setup);
  EngineOptions options = make_options(setup);
  if (setup.give_back_blocks) {
    const BlockDemand all(setup.block_size, {-1}), own(setup.block_size, groups_of(*model).windows);
    int64_t& blocks = options.scheduler.num_blocks;
    const int64_t spare = blocks - all.least_blocks(setup.max_model_len);
    blocks = own.least_blocks(setup.max_model_len) + spare * static_cast<int64_t>(own.num_tables());
  }
  return std::make_unique<Engine>(std::move(model), std::move(options));
}

std::vector<Answer> run_jobs(Engine& engine, const std::vector<Job>& jobs, uint64_t arrival_seed) {
  Collector collector(jobs.size());
  std::mt19937_64 random(arrival_seed);
  std::vector<RequestId> ids;
  std::vector<bool> aborted(jobs.size(), false);
  const auto abort_due = [&] {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (aborted[i] || jobs[i].abort_after < 0) continue;
      if (static_cast<int>(collector.num_tokens(i)) < jobs[i].abort_after) continue;
      aborted[i] = true;
      engine.abort(ids[i]);
    }
  };
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (arrival_seed != 0)
      collector.wait_for_events(collector.events() + static_cast<int64_t>(random() % 6));
    Request request;
    request.prompt = jobs[i].prompt;
    request.sampling = jobs[i].sampling;
    request.cache_salt = jobs[i].cache_salt;
    request.tenant = jobs[i].tenant;
    request.pooling = jobs[i].pooling;
    request.adapter = jobs[i].adapter;
    if (jobs[i].grammar)
      request.grammar = std::make_unique<text::GrammarMatcher>(jobs[i].grammar->clone());
    request.sink = collector.sink(i);
    ++collector.submitted;
    const auto id = engine.submit(std::move(request));
    EXPECT_TRUE(id.ok()) << id.error().message;
    if (!id.ok()) return {};
    ids.push_back(*id);
    abort_due();
  }
  const bool aborts =
      std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.abort_after >= 0; });
  for (int round = 0; aborts && round < 200; ++round) {
    collector.wait_for_events(collector.events() + 1);
    abort_due();
  }
  collector.wait_for_all();
  // The last event is sent from inside the step that ends the request; its statistics follow when
  // that step and the one launched ahead of it are done.
  const auto holds = [](const EngineStats& stats) {
    return stats.used_blocks + stats.used_state_slots + stats.running + stats.waiting > 0;
  };
  for (int i = 0; i < 60'000 && holds(engine.stats()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.used_blocks, 0);
  EXPECT_EQ(stats.used_state_slots, 0);
  EXPECT_EQ(stats.held_state_checkpoints, 0);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  return collector.answers;
}

std::vector<Answer> run_jobs(const Arrangement& setup, const std::vector<Job>& jobs,
                             uint64_t arrival_seed) {
  const auto engine = make_engine(setup);
  std::vector<Answer> answers = run_jobs(*engine, jobs, arrival_seed);
  // No family's steps fall back to being launched kernel by kernel.
  const EngineStats stats = engine->stats();
  const auto joined =
      stats.kernel_runs.find(std::string("kernel_graph/") + ops::make_context(1).device->name());
  if (!setup.wrap) {
    EXPECT_GE(joined == stats.kernel_runs.end() ? 0 : joined->second, stats.steps) << setup.text();
  }
  return answers;
}

std::vector<Answer> run_solo(Arrangement setup, const std::vector<Job>& jobs) {
  setup.threads = 1;
  setup.block_size = 16;
  setup.num_blocks = 0;
  setup.max_num_batched_tokens = 2048;
  setup.prefix_caching = setup.lookahead = false;
  const auto engine = make_engine(setup);
  std::vector<Answer> answers;
  for (const Job& job : jobs) answers.push_back(run_jobs(*engine, {job}).at(0));
  return answers;
}

void expect_same(const std::vector<Answer>& expected, const std::vector<Answer>& actual,
                 const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].error, "") << what;
    ASSERT_EQ(expected[i].tokens, actual[i].tokens) << what << ", request " << i;
    ASSERT_EQ(expected[i].pooled, actual[i].pooled) << what << ", request " << i;
    ASSERT_EQ(expected[i].logprobs.size(), actual[i].logprobs.size()) << what << ", request " << i;
    for (size_t t = 0; t < expected[i].logprobs.size(); ++t)  // every bit of every logprob
      ASSERT_TRUE(expected[i].logprobs[t] == actual[i].logprobs[t])
          << what << ", request " << i << ", token " << t;
  }
}

bool same(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].tokens != b[i].tokens || !(a[i].logprobs == b[i].logprobs)) return false;
  return true;
}

std::string model_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  name = name.substr(name.rfind('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
}

std::vector<Job> random_jobs(int count, int64_t vocab, uint64_t seed, int64_t max_prompt,
                             int64_t max_tokens) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  std::vector<int32_t> common(static_cast<size_t>(max_prompt));
  for (auto& id : common) id = static_cast<int32_t>(below(vocab));
  std::vector<Job> jobs(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    Job& job = jobs[static_cast<size_t>(i)];
    const int64_t length = 1 + below(max_prompt);
    const int64_t shared = i % 2 == 0 ? below(length + 1) : 0;
    job.prompt.assign(common.begin(), common.begin() + shared);
    while (static_cast<int64_t>(job.prompt.size()) < length)
      job.prompt.push_back(static_cast<int32_t>(below(vocab)));
    SamplingParams& s = job.sampling;
    s.max_tokens = 1 + below(max_tokens);
    s.logprobs = 2;
    s.ignore_eos = true;
    s.temperature = 0.0f;
    if (i % 4 == 1 || i % 4 == 3) {  // half of them sampled, with everything that a sampler can do
      s.temperature = 0.7f + 0.1f * static_cast<float>(below(8));
      s.seed = random();
      s.top_k = i % 4 == 1 ? 20 : 0;
      s.top_p = i % 4 == 3 ? 0.9f : 1.0f;
      s.min_p = i % 8 == 5 ? 0.05f : 0.0f;
    }
    if (i % 5 == 2) s.repetition_penalty = 1.3f;
    if (i % 5 == 3) s.presence_penalty = 0.5f, s.frequency_penalty = 0.4f;
    if (i % 7 == 4) s.logit_bias = {{static_cast<int32_t>(below(vocab)), 3.0f}};
  }
  return jobs;
}

}  // namespace quire::engine
