// Models with recurrent state: whatever prefix is continued from whatever checkpoint, in whatever
// slot, the answers are those of solo runs, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/source_dir.h"
#include "engine/memory_budget.h"
#include "engine_harness.h"

namespace quire::engine {
namespace {

constexpr const char* kModel = "tests/parity/models/qwen35";
constexpr int64_t kVocab = 320;

std::vector<int32_t> random_ids(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocab);
  return ids;
}

Job job_of(std::vector<int32_t> prompt, int64_t max_tokens) {
  Job job{.prompt = std::move(prompt), .sampling = {}};
  job.sampling.temperature = 0.0f;
  job.sampling.max_tokens = max_tokens;
  job.sampling.ignore_eos = true;
  job.sampling.logprobs = 2;
  return job;
}

// Attention's block size and the state's slots have nothing to do with each other.
TEST(Hybrid, BlockSizesChangeNothing) {
  auto jobs = random_jobs(5, kVocab, 21, 700, 40);
  jobs.push_back(job_of(random_ids(1000, 22), 60));
  auto longer = jobs.back().prompt;  // parts from it behind the first block of 544
  longer.resize(900);
  longer.push_back(7);
  jobs.push_back(job_of(longer, 20));
  const Arrangement base{.checkpoint = kModel, .max_num_seqs = 8, .max_model_len = 1088};
  const auto solo = run_solo(base, jobs);
  for (const int64_t block_size : {16, 32, 144, 160, 544}) {
    Arrangement setup = base;
    setup.threads = 2;
    setup.block_size = block_size;
    setup.max_num_batched_tokens = 300;
    setup.prefix_caching = setup.lookahead = true;
    const auto engine = make_engine(setup);
    expect_same(solo, run_jobs(*engine, jobs, 3), setup.text());
    const auto again = run_jobs(*engine, jobs, 4);
    expect_same(solo, again, setup.text() + ", again");
    EXPECT_GE(again[5].stats.cached_tokens, 544) << setup.text();
    EXPECT_GE(again[6].stats.cached_tokens, 544) << setup.text();
  }
}

// Codes in the attention layers' pools, states beside them.
TEST(Hybrid, QuantisedKeysAndValuesGoWithStates) {
  const auto jobs = random_jobs(10, kVocab, 23, 120, 40);
  for (const ops::KvStorage storage : {ops::KvStorage::kInt8, ops::KvStorage::kFp8}) {
    Arrangement setup{.checkpoint = kModel, .max_model_len = 256, .kv_storage = storage};
    const auto solo = run_solo(setup, jobs);
    setup.threads = 2;
    setup.max_num_batched_tokens = 50;
    setup.prefix_caching = setup.lookahead = true;
    const auto engine = make_engine(setup);
    expect_same(solo, run_jobs(*engine, jobs, 3), setup.text());
    expect_same(solo, run_jobs(*engine, jobs, 4), setup.text() + ", again");
    EXPECT_GT(engine->stats().state_restores, 0);
  }
}

// Prompts that share k blocks, one token more and one less, with a prompt that was there before.
TEST(Hybrid, PrefixHitsAtEveryLength) {
  for (const int64_t block_size : {16, 48}) {
    for (const int64_t interval : {int64_t{0}, 2 * block_size}) {
      Arrangement setup{.checkpoint = kModel,
                        .threads = 2,
                        .block_size = block_size,
                        .checkpoint_interval = interval,
                        .prefix_caching = true,
                        .lookahead = true};
      const auto text = random_ids(9 * block_size + 5, 31);
      std::vector<Job> jobs = {job_of(text, 2)};
      for (int64_t k = 1; k < 9; ++k) {
        for (const int64_t more : {-1, 0, 1}) {
          auto prompt = text;
          prompt.resize(static_cast<size_t>(k * block_size + more));
          for (int64_t i = 0; i <= k % 4; ++i)
            prompt.push_back((text[static_cast<size_t>(k * block_size + more + i)] + 1) %
                             static_cast<int32_t>(kVocab));
          jobs.push_back(job_of(prompt, 12));
        }
      }
      const auto solo = run_solo(setup, jobs);
      const auto engine = make_engine(setup);
      run_jobs(*engine, {jobs[0]});
      for (size_t i = 1; i < jobs.size(); ++i) {
        const auto answer = run_jobs(*engine, {jobs[i]});
        const std::string what =
            setup.text() + ", prompt of " + std::to_string(jobs[i].prompt.size());
        expect_same({solo[i]}, answer, what);
        if (HasFatalFailure()) return;
        const auto index = static_cast<int64_t>(i) - 1;
        const int64_t common = (index / 3 + 1) * block_size + index % 3 - 1;
        const int64_t cached = answer[0].stats.cached_tokens;
        EXPECT_EQ(cached % block_size, 0) << what;
        EXPECT_LE(cached, common) << what;
        if (interval > 0) {
          EXPECT_GE(cached, common / interval * interval) << what;
        } else if (index % 3 == 2) {
          // The one before it left the shared text at the same block, and so left a state there.
          EXPECT_EQ(cached, common / block_size * block_size) << what;
        }
      }
      EXPECT_GT(engine->stats().state_restores, 10);
    }
  }
}

// Each turn goes on from a state that decoding left.
TEST(Hybrid, AConversationGoesOnFromItsAnswers) {
  Arrangement setup{.checkpoint = kModel,
                    .threads = 2,
                    .max_model_len = 512,
                    .prefix_caching = true,
                    .lookahead = true};
  const auto engine = make_engine(setup);
  auto prompt = random_ids(70, 41);
  for (uint64_t turn = 0; turn < 4; ++turn) {
    const Job job = job_of(prompt, 75);
    const auto answer = run_jobs(*engine, {job});
    expect_same(run_solo(setup, {job}), answer, "turn " + std::to_string(turn));
    const auto length = static_cast<int64_t>(prompt.size());
    if (turn > 0) {
      EXPECT_GE(answer[0].stats.cached_tokens,
                length - 9 - setup.checkpoint_interval - setup.block_size);
    }
    prompt.insert(prompt.end(), answer[0].tokens.begin(), answer[0].tokens.end());
    const auto more = random_ids(9, 50 + turn);
    prompt.insert(prompt.end(), more.begin(), more.end());
  }
}

// Far too few blocks, slots and checkpoints: sequences wait, are preempted, go on from a state of
// their own or begin again.
TEST(Hybrid, ScarcityChangesNothing) {
  const auto jobs = random_jobs(24, kVocab, 7, 120, 100);
  const Arrangement base{.checkpoint = kModel, .max_model_len = 256};
  const auto solo = run_solo(base, jobs);
  int64_t preemptions = 0, restores = 0, saves = 0;
  struct Means {
    int64_t slots, checkpoints, interval;
    bool lookahead;
  };
  for (const Means& means : {Means{1, 64, 16, true},
                             {1, 2, 0, false},
                             {3, 0, 16, true},
                             {3, 1, 16, true},
                             {3, 5, 48, false},
                             {32, 2, 16, true},
                             {32, 5, 0, true},
                             {32, 64, 48, true},
                             {32, 64, 16, false}}) {
    Arrangement setup = base;
    setup.threads = 2;
    setup.num_blocks = 18;
    setup.num_state_slots = means.slots;
    setup.state_checkpoints = means.checkpoints;
    setup.checkpoint_interval = means.interval;
    setup.min_checkpoint_tokens = 1;
    setup.max_num_batched_tokens = 48 + means.interval;
    setup.prefix_caching = true;
    setup.lookahead = means.lookahead;
    const auto engine = make_engine(setup);
    expect_same(solo, run_jobs(*engine, jobs, static_cast<uint64_t>(means.checkpoints + 1)),
                setup.text());
    if (HasFatalFailure()) return;
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.state_slots, means.slots);
    EXPECT_LE(stats.used_state_checkpoints, means.checkpoints);
    if (means.checkpoints == 0) {
      EXPECT_EQ(stats.state_saves + stats.prefix_hits, 0);
    }
    preemptions += stats.preemptions;
    restores += stats.state_restores;
    saves += stats.state_saves;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(restores, 0);
  EXPECT_GT(saves, restores);
}

// The budget counts every byte of a slot, and blocks for attention layers alone.
TEST(Hybrid, TheBudgetCountsStateAndBlocksApart) {
  const auto checkpoint = formats::Checkpoint::open(source_dir() + "/" + kModel);
  const auto model = models::load_model(ops::make_context(1), checkpoint, {});
  SchedulerOptions options{.max_num_seqs = 7, .block_size = 48};
  const MemoryBudget budget =
      plan_memory(*model, options, {.num_blocks = 10, .state_checkpoints = 5});
  // Three delta nets: 2 x 2 heads of 16 and 4 of 24 through a convolution of 4 taps; 4 matrices of
  // 24 x 16. Two attention layers: keys and values of 2 heads of 32. All in float32.
  EXPECT_EQ(budget.state_slot_bytes, 3 * ((64 + 96) * 3 * 4 + 4 * 24 * 16 * 4));
  EXPECT_EQ(budget.state_slots, 7);
  EXPECT_EQ(budget.state_checkpoints, 5);
  EXPECT_EQ(budget.state(), 12 * budget.state_slot_bytes);
  EXPECT_EQ(budget.kv_cache, 10 * 2 * 2 * 48 * 2 * 32 * 4);
  EXPECT_NE(budget.summary().find("7 slots and 5 checkpoints of 0.02 MiB"), std::string::npos)
      << budget.summary();
  options.enable_prefix_caching = false;
  EXPECT_EQ(plan_memory(*model, options, {.num_blocks = 10}).state_checkpoints, 0);
  options.enable_prefix_caching = true;
  EXPECT_EQ(plan_memory(*model, options, {.num_blocks = 10}).state_checkpoints, 16 * 7);
  const auto refusal = [&](const MemoryRequest& request) -> std::string {
    try {
      plan_memory(*model, options, request);
    } catch (const LoadError& error) {
      return error.what();
    }
    return "planned";
  };
  const int64_t too_many = budget.available / budget.state_slot_bytes * 2;
  EXPECT_NE(
      refusal({.num_blocks = 10, .state_checkpoints = too_many}).find("--state-checkpoint-slots"),
      std::string::npos);
  EXPECT_NE(refusal({.num_blocks = int64_t{1} << 40}).find("--num-gpu-blocks-override"),
            std::string::npos);
}

// Sequences of one step swap their slots.
class SwappedSlotsModel : public ModelAround {
 public:
  using ModelAround::ModelAround;

  models::StepOutput forward(const mlx::core::array& ids, const ops::BatchLayoutPtr& layout,
                             std::vector<ops::LayerCache>& caches) const override {
    auto swapped = std::make_shared<ops::BatchLayout>(*layout);
    std::rotate(swapped->state_slots.begin(), swapped->state_slots.begin() + 1,
                swapped->state_slots.end());
    return ModelAround::forward(ids, swapped, caches);
  }
};

// The negative control: a state of somebody else is noticed.
TEST(Hybrid, AForeignStateIsCaught) {
  const auto jobs = random_jobs(4, kVocab, 7, 60, 20);
  Arrangement setup{.checkpoint = kModel, .max_model_len = 256};
  const auto solo = run_solo(setup, jobs);
  setup.max_num_batched_tokens = 32;
  EXPECT_TRUE(same(solo, run_jobs(setup, jobs)));
  setup.wrap = [](std::unique_ptr<models::Model> model) {
    return std::make_unique<SwappedSlotsModel>(std::move(model));
  };
  EXPECT_FALSE(same(solo, run_jobs(setup, jobs)));
}

}  // namespace
}  // namespace quire::engine
