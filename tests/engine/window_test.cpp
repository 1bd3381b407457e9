// Layers with a sliding window: how they share pools, what memory that saves, and that giving
// blocks back changes no bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/batch_builder.h"
#include "engine/cache_groups.h"
#include "engine/kv_pool.h"
#include "engine_harness.h"
#include "ops/runtime/test_util.h"

namespace quire::engine {
namespace {

namespace mx = mlx::core;
using testing::Each;
using testing::ElementsAre;

// `layers` layers, every `period`-th of which sees all.
std::vector<models::CacheSpec> windowed(int layers, int period, int64_t window,
                                        int64_t kv_heads = 1, int64_t head_dim = 256) {
  std::vector<models::CacheSpec> specs;
  for (int i = 1; i <= layers; ++i)
    specs.push_back(models::KvCacheSpec{.kv_heads = kv_heads,
                                        .head_dim = head_dim,
                                        .window_left = i % period == 0 ? -1 : window - 1});
  return specs;
}

constexpr int64_t kLongest = 131072;

TEST(CacheGroups, LayersWithoutWindowsHaveOneTable) {
  const CacheGroups groups = group_layers(windowed(4, 1, 0), kLongest, true);
  EXPECT_THAT(groups.windows, ElementsAre(-1));
  EXPECT_EQ(groups.pools.size(), 4u);
  EXPECT_THAT(groups.pool_of_layer, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(groups.view_of_layer, Each(0));
}

TEST(CacheGroups, EqualWindowsNeedNoOtherTable) {
  const CacheGroups groups = group_layers(windowed(3, 9, 512), kLongest, false);
  EXPECT_THAT(groups.windows, ElementsAre(511));
  EXPECT_THAT(groups.pool_of_layer, ElementsAre(0, 1, 2));
}

TEST(CacheGroups, LayersOfOneWindowAreGroupedToOneSize) {
  // Gemma 3 1B: 26 layers, of which 5, 11, 17 and 23 see all.
  const CacheGroups groups = group_layers(windowed(26, 6, 512), kLongest, true);
  EXPECT_THAT(groups.windows, ElementsAre(-1, 511, 511, 511, 511, 511, 511));
  EXPECT_EQ(groups.pools.size(), 4u);
  EXPECT_EQ(groups.table_of_layer(5), 0);
  EXPECT_EQ(groups.pool_of_layer[11], 1);
  EXPECT_EQ(groups.table_of_layer(25), 6);
  // No two layers have the same part of the same blocks.
  std::set<std::pair<int32_t, int32_t>> places;
  for (size_t i = 0; i < 26; ++i)
    EXPECT_TRUE(places.emplace(groups.table_of_layer(i), groups.pool_of_layer[i]).second);
  // 27B: 62 layers, of which 10 see all. gpt-oss: half of 24. OLMo 3: a quarter of 32.
  EXPECT_EQ(group_layers(windowed(62, 6, 1024), kLongest, true).pools.size(), 10u);
  EXPECT_THAT(group_layers(windowed(24, 2, 128), kLongest, true).windows, ElementsAre(-1, 127));
  EXPECT_EQ(group_layers(windowed(32, 4, 4096), 65536, true).windows.size(), 4u);
}

TEST(CacheGroups, WhatCannotBeGroupedKeepsOneTableAndAllBlocks) {
  const auto mixed = windowed(12, 6, 512);
  const auto has_one_table = [](const CacheGroups& groups) {
    return groups.windows == std::vector<int64_t>{-1};
  };
  EXPECT_TRUE(has_one_table(group_layers(mixed, kLongest, /*several_tables=*/false)));
  EXPECT_TRUE(has_one_table(group_layers(mixed, 511, true))) << "no sequence leaves the window";
  auto unlike = mixed;
  std::get<models::KvCacheSpec>(unlike[5]).head_dim = 384;  // no whole part of the others
  EXPECT_TRUE(has_one_table(group_layers(unlike, kLongest, true)));
  auto latent = mixed;
  std::get<models::KvCacheSpec>(latent[5]).values_in_keys = 192;
  EXPECT_TRUE(has_one_table(group_layers(latent, kLongest, true)));
  auto hybrid = mixed;
  hybrid[0] = models::StateCacheSpec{};
  const CacheGroups groups = group_layers(hybrid, kLongest, true);
  EXPECT_TRUE(has_one_table(groups));
  EXPECT_EQ(groups.pool_of_layer[0], -1);
  EXPECT_EQ(groups.pools.size(), 11u);
}

// The most bytes that a prompt and its answer hold, as the scheduler takes and gives back blocks.
int64_t most_bytes(const CacheGroups& groups, int64_t prompt, int64_t chunk) {
  const int64_t bytes = KvPool::block_bytes(groups, 16, mx::bfloat16, ops::KvStorage::kAuto);
  const int64_t length = prompt + 40;
  Scheduler scheduler({.max_num_batched_tokens = chunk,
                       .max_model_len = length,
                       .num_blocks = BlockDemand(16, groups.windows).most_blocks(0, length, chunk),
                       .block_size = 16,
                       .windows = groups.windows,
                       .eos_token_ids = {}});
  auto sequence = std::make_shared<Sequence>();
  sequence->tokens.assign(static_cast<size_t>(prompt), 7);
  sequence->prompt_len = prompt;
  sequence->request.sampling.max_tokens = 40;
  scheduler.add(sequence);
  int64_t most = 0;
  while (scheduler.has_work()) {
    const StepPlan plan = scheduler.plan();
    most = std::max(most, scheduler.blocks().num_owned());
    const std::vector<int32_t> tokens(plan.items[0].samples ? 1 : 0, 7);
    scheduler.commit(plan, tokens);
  }
  EXPECT_EQ(scheduler.stats().preemptions, 0);
  return most * bytes;
}

// Layers that share keys and values need nothing of their own: the groups are those of the others.
TEST(CacheGroups, LayersThatShareHaveTableAndPoolOfTheOther) {
  const auto own = windowed(10, 5, 512);
  auto layers = own;
  for (const int64_t other : {8, 8, 9, 8, 9}) layers.push_back(models::SharedKvSpec{other});
  const CacheGroups groups = group_layers(layers, kLongest, true);
  const CacheGroups without = group_layers(own, kLongest, true);
  EXPECT_EQ(groups.windows, without.windows);
  EXPECT_GT(groups.windows.size(), 1u);
  EXPECT_EQ(KvPool::block_bytes(groups, 16, mx::bfloat16, ops::KvStorage::kAuto),
            KvPool::block_bytes(without, 16, mx::bfloat16, ops::KvStorage::kAuto));
  EXPECT_EQ(most_bytes(groups, 4096, 512), most_bytes(without, 4096, 512));
  const CacheGroups single = one_table(layers);
  EXPECT_EQ(single.pools.size(), 10u);
  for (const CacheGroups* g : {&groups, &single})
    for (size_t i = 10; i < layers.size(); ++i) {
      const auto other = static_cast<size_t>(std::get<models::SharedKvSpec>(layers[i]).layer);
      EXPECT_EQ(g->view_of_layer[i], g->view_of_layer[other]);
      EXPECT_EQ(g->pool_of_layer[i], g->pool_of_layer[other]);
    }
  // Handles to wait for are those of layers that write.
  const CacheSize size = {.num_blocks = 2, .block_size = 4};
  const auto count = [&](const std::vector<models::CacheSpec>& specs, const CacheGroups& g) {
    return KvPool(specs, g, size, mx::float32, *ops::make_cpu_device()).arrays().size();
  };
  EXPECT_EQ(count(layers, groups), count(own, without));
  EXPECT_EQ(count(layers, single), 20u);
}

// Gemma 3: five of six layers have a window.
TEST(CacheGroups, GemmaNeedsLessThanAThirdAt32kTokens) {
  struct Model {
    const char* name;
    int layers;
    int64_t window, kv_heads;
  };
  for (const Model& model : {Model{"1B", 26, 512, 1}, Model{"4B", 34, 1024, 4},
                             Model{"12B", 48, 1024, 8}, Model{"27B", 62, 1024, 16}}) {
    const auto layers = windowed(model.layers, 6, model.window, model.kv_heads);
    const CacheGroups groups = group_layers(layers, kLongest, true);
    const auto with = static_cast<double>(most_bytes(groups, 32768, 2048));
    const auto without = static_cast<double>(most_bytes(one_table(layers), 32768, 2048));
    printf("Gemma 3 %s at 32,768 tokens: %.0f MiB of %.0f MiB, %.1f %%\n", model.name,
           with / 1048576, without / 1048576, 100 * with / without);
    EXPECT_LT(with, 0.30 * without) << model.name;
  }
}

// A model whose layers that see all, every `period`-th, have heads of their own.
struct TwoShapes {
  const char* name;
  int layers, period;
  int64_t window, kv_heads, head_dim, all_kv_heads, all_head_dim;
  double most;  // of what would be needed without windows, at 32k tokens

  std::vector<models::CacheSpec> specs() const {
    auto specs = windowed(layers, period, window, kv_heads, head_dim);
    for (models::CacheSpec& spec : specs) {
      auto& kv = std::get<models::KvCacheSpec>(spec);
      if (kv.window_left < 0) kv = {.kv_heads = all_kv_heads, .head_dim = all_head_dim};
    }
    return specs;
  }
};
// Gemma 4: 31B and 26B-A4B, whose layers that see all are half as wide as the others, and E2B's
// layers that keep something, where they are twice as wide: a third of all that is kept.
constexpr TwoShapes kGemma4[] = {{"31B", 60, 6, 1024, 16, 256, 4, 512, 0.20},
                                 {"26B-A4B", 30, 6, 1024, 8, 256, 2, 512, 0.25},
                                 {"E2B", 15, 5, 512, 1, 256, 1, 512, 0.40}};

TEST(CacheGroups, NarrowLayersShareAPlace) {
  for (const TwoShapes& model : kGemma4) {
    const auto layers = model.specs();
    const CacheGroups groups = group_layers(layers, kLongest, true);
    EXPECT_GT(groups.windows.size(), 1u) << model.name;
    // Each layer has elements of its own in a block of a table.
    std::set<std::tuple<int32_t, int32_t, int64_t>> elements;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto& kv = std::get<models::KvCacheSpec>(layers[i]);
      const TableView& view = groups.views[static_cast<size_t>(groups.view_of_layer[i])];
      const auto& pool = groups.pools[static_cast<size_t>(groups.pool_of_layer[i])];
      const int64_t width = kv.kv_heads * kv.head_dim;
      EXPECT_LE((view.part + 1) * width, pool.kv_heads * pool.head_dim) << model.name;
      EXPECT_EQ(view.parts * width, pool.kv_heads * pool.head_dim) << model.name;
      EXPECT_EQ(groups.windows[static_cast<size_t>(view.table)], kv.window_left) << model.name;
      for (int64_t d = view.part * width; d < (view.part + 1) * width; d += 256)
        EXPECT_TRUE(elements.emplace(view.table, groups.pool_of_layer[i], d).second) << model.name;
    }
  }
}

TEST(CacheGroups, Gemma4NeedsAFractionAt32kTokens) {
  for (const TwoShapes& model : kGemma4) {
    const auto layers = model.specs();
    const CacheGroups groups = group_layers(layers, kLongest, true);
    const auto with = static_cast<double>(most_bytes(groups, 32768, 2048));
    const auto without = static_cast<double>(most_bytes(one_table(layers), 32768, 2048));
    printf("Gemma 4 %s at 32,768 tokens: %.0f MiB of %.0f MiB, %.1f %%\n", model.name,
           with / 1048576, without / 1048576, 100 * with / without);
    EXPECT_LT(with, model.most * without) << model.name;
  }
}

// The memory is that of the pools and, for codes, of the scales of narrow heads.
TEST(CacheGroups, NarrowLayersSeeThePoolsMemory) {
  const auto layers = kGemma4[0].specs();
  const CacheGroups groups = group_layers(layers, kLongest, true);
  for (const auto storage : {ops::KvStorage::kAuto, ops::KvStorage::kInt8}) {
    const CacheSize size = {.num_blocks = 6, .block_size = 4, .kv_storage = storage};
    KvPool pool(layers, groups, size, mx::bfloat16, *ops::make_cpu_device());
    EXPECT_EQ(pool.bytes_per_block(), KvPool::block_bytes(groups, 4, mx::bfloat16, storage));
    const auto keys = [&](size_t layer) { return std::get<ops::PagedKv>(pool.caches()[layer]).k; };
    size_t wide = 0;  // the layer that sees a window in the pool of layer 5, which sees all
    while (groups.pool_of_layer[wide] != groups.pool_of_layer[5]) ++wide;
    EXPECT_EQ(keys(5).shape(), (mx::Shape{12, 4, 4, 512}));
    EXPECT_EQ(keys(wide).shape(), (mx::Shape{6, 4, 16, 256}));
    EXPECT_EQ(keys(5).data<void>(), keys(wide).data<void>());
  }
}

// -- bits ----------------------------------------------------------------------------------------

// Prompts and answers of one model, step by step, and the bits of all logits. Before each step
// every block that nobody holds is filled with NaNs.
class Steps {
 public:
  Steps(const models::Model& model, const CacheGroups& groups, bool poisons)
      : model_(model),
        poisons_(poisons),
        scheduler_({.max_num_batched_tokens = 37,
                    .max_num_seqs = 4,
                    .max_model_len = 256,
                    .num_blocks = kBlocks,
                    .block_size = 8,
                    .windows = groups.windows,
                    .enable_prefix_caching = false,
                    .eos_token_ids = {}}),
        pool_(model.cache_specs(), groups, {.num_blocks = kBlocks, .block_size = 8}, model.dtype(),
              *model.context().device) {}

  // By request and position.
  std::map<std::pair<RequestId, int64_t>, std::vector<float>> run(const std::vector<Job>& jobs) {
    for (const Job& job : jobs) add(job);
    while (scheduler_.has_work()) step();
    return std::move(logits_);
  }
  int64_t given_back() const { return given_back_; }

 private:
  static constexpr int64_t kBlocks = 3 * 4 * 256 / 8;

  void add(const Job& job) {
    auto sequence = std::make_shared<Sequence>();
    sequence->id = ++last_id_;
    sequence->tokens = job.prompt;
    sequence->prompt_len = static_cast<int64_t>(job.prompt.size());
    sequence->request.sampling.max_tokens = 40;
    scheduler_.add(std::move(sequence));
  }

  void poison() {
    for (const ops::LayerCache& cache : pool_.caches())
      for (mx::array pool : std::get<ops::PagedKv>(cache).arrays()) {
        mx::eval(pool);
        const size_t bytes = pool.nbytes() / kBlocks;
        for (int32_t b = 0; b < kBlocks; ++b)
          if (scheduler_.blocks().ref_count(b) == 0)
            std::memset(pool.data<char>() + static_cast<size_t>(b) * bytes, 0xFF, bytes);
      }
  }

  void step() {
    const StepPlan plan = scheduler_.plan();
    for (const StepItem& item : plan.items)
      for (const BlockTable& table : item.sequence->tables) given_back_ += table.given_back;
    if (poisons_) poison();
    const Batch batch =
        build_batch(plan, scheduler_.options(), model_.vocab_size(), 0, pool_.table_views());
    const mx::array ids(batch.ids->begin(), {static_cast<int>(batch.ids->size())}, mx::int32);
    mx::array logits = model_.forward(ids, batch.layout, pool_.caches()).logits;
    mx::eval(logits);
    mx::eval(pool_.arrays());
    std::vector<int32_t> tokens;
    const auto vocab = static_cast<size_t>(model_.vocab_size());
    for (size_t row = 0; row < batch.rows.size(); ++row) {
      const float* first = logits.data<float>() + row * vocab;
      const RequestId id = plan.items[batch.rows[row].item].sequence->id;
      logits_[{id, batch.rows[row].position}].assign(first, first + vocab);
      tokens.push_back(static_cast<int32_t>(std::max_element(first, first + vocab) - first));
    }
    scheduler_.commit(plan, tokens);
    scheduler_.check_integrity();
  }

  const models::Model& model_;
  const bool poisons_;
  Scheduler scheduler_;
  KvPool pool_;
  RequestId last_id_ = 0;
  int64_t given_back_ = 0;
  std::map<std::pair<RequestId, int64_t>, std::vector<float>> logits_;
};

class Windows : public testing::TestWithParam<const char*> {
 protected:
  std::vector<Job> jobs(uint64_t seed) const {
    return random_jobs(8, open_checkpoint(GetParam()).config().vocab_size, seed, 180, 60);
  }
};

TEST_P(Windows, GivenBackBlocksAreNotRead) {
  if (ops::testing::on_cuda()) GTEST_SKIP() << "fills pools in the host's memory";
  const auto model = make_model({.checkpoint = GetParam(), .threads = 2, .max_model_len = 256});
  const CacheGroups groups = groups_of(*model);
  Steps whole(*model, one_table(model->cache_specs()), false), tables(*model, groups, true);
  const auto expected = whole.run(jobs(23)), actual = tables.run(jobs(23));
  EXPECT_EQ(whole.given_back(), 0);
  EXPECT_GT(tables.given_back(), 1000);
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [key, logits] : expected) {
    const std::vector<float>& other = actual.at(key);
    ASSERT_EQ(std::memcmp(logits.data(), other.data(), logits.size() * sizeof(float)), 0)
        << "request " << key.first << ", position " << key.second;
    ASSERT_TRUE(std::isfinite(logits[0]));
  }
}

// The test can fail: a window that is one token too short is noticed.
TEST_P(Windows, AShorterWindowIsNoticed) {
  if (ops::testing::on_cuda()) GTEST_SKIP() << "fills pools in the host's memory";
  const auto model = make_model({.checkpoint = GetParam(), .threads = 2, .max_model_len = 256});
  CacheGroups groups = groups_of(*model);
  for (int64_t& window : groups.windows) window -= window >= 0;
  Steps whole(*model, one_table(model->cache_specs()), false), tables(*model, groups, true);
  EXPECT_NE(whole.run(jobs(23)), tables.run(jobs(23)));
}

TEST_P(Windows, TheEngineAnswersAsIfNothingWereGivenBack) {
  Arrangement setup{.checkpoint = GetParam(), .max_model_len = 256, .give_back_blocks = false};
  const auto expected = run_solo(setup, jobs(29));
  setup.give_back_blocks = true;
  expect_same(expected, run_solo(setup, jobs(29)), setup.text());
  setup.prefix_caching = setup.lookahead = true;
  setup.threads = 2;
  for (const int64_t budget : {16, 100}) {
    setup.max_num_batched_tokens = budget;
    for (const int64_t block_size : {4, 16}) {
      setup.block_size = block_size;
      for (const bool preempt : {false, true}) {
        setup.num_blocks = preempt ? (256 + block_size - 1) / block_size + 1 : 0;
        expect_same(expected, run_jobs(setup, jobs(29), 3), setup.text());
      }
    }
  }
}

// Scales of narrow heads lie in arrays of their own.
TEST(WindowsOfTwoShapes, CodesAnswerAsIfNothingWereGivenBack) {
  const char* const checkpoint = "tests/parity/models/gemma4-31b";
  const auto jobs = random_jobs(8, open_checkpoint(checkpoint).config().vocab_size, 31, 180, 60);
  for (const ops::KvStorage storage : {ops::KvStorage::kInt8, ops::KvStorage::kFp8}) {
    Arrangement setup{.checkpoint = checkpoint,
                      .max_model_len = 256,
                      .give_back_blocks = false,
                      .kv_storage = storage};
    const auto expected = run_solo(setup, jobs);
    setup.give_back_blocks = setup.prefix_caching = setup.lookahead = true;
    setup.threads = 2;
    setup.block_size = 4;
    setup.num_blocks = 256 / 4 + 1;
    expect_same(expected, run_jobs(setup, jobs, 3), setup.text());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Windows,
    testing::Values("tests/parity/models/mistral-bf16", "tests/parity/models/qwen2-sliding-bf16",
                    "tests/parity/models/qwen2-sliding", "tests/parity/models/gemma2",
                    "tests/parity/models/gemma3-wrapped-bf16", "tests/parity/models/ministral",
                    "tests/parity/models/gemma4-e2b", "tests/parity/models/gemma4-31b",
                    "tests/parity/models/gemma4-26b-a4b"),
    model_name);

}  // namespace
}  // namespace quire::engine
