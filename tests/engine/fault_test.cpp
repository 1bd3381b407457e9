// A fault stays with the requests that it hit: a step that throws, logits that are not finite.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "engine_harness.h"

namespace quire::engine {
namespace {

class Faults : public testing::TestWithParam<const char*> {};

// Throws in the middle of one step.
class FailingModel : public ModelAround {
 public:
  FailingModel(std::unique_ptr<models::Model> inner, std::atomic<int>& steps_left)
      : ModelAround(std::move(inner)), steps_left_(steps_left) {}

  models::StepOutput forward(const mlx::core::array& ids, const ops::BatchLayoutPtr& layout,
                             std::vector<ops::LayerCache>& caches) const override {
    if (steps_left_.fetch_sub(1) == 0) throw std::runtime_error("the device is on fire");
    return ModelAround::forward(ids, layout, caches);
  }

 private:
  std::atomic<int>& steps_left_;
};

TEST_P(Faults, AFailedStepEndsItsRequestsAndNoOthers) {
  std::atomic<int> steps_left{6};
  Arrangement setup{.checkpoint = GetParam(),
                    .threads = 2,
                    .prefix_caching = true,
                    .lookahead = true,
                    .replay_decodes = false};  // so that each step calls the model
  const auto jobs = random_jobs(12, 320, 3, 60, 20);
  const auto solo = run_solo(setup, jobs);
  setup.wrap = [&](std::unique_ptr<models::Model> model) {
    return std::make_unique<FailingModel>(std::move(model), steps_left);
  };
  setup.max_num_seqs = 4;  // the others wait, and must not notice
  const auto engine = make_engine(setup);
  const auto answers = run_jobs(*engine, jobs);
  int failed = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (answers[i].finish == FinishReason::kError) {
      ++failed;
      EXPECT_NE(answers[i].error.find("on fire"), std::string::npos) << answers[i].error;
    } else {
      EXPECT_EQ(answers[i].tokens, solo[i].tokens) << i;
    }
  }
  EXPECT_GT(failed, 0);
  EXPECT_LE(failed, 4);
  EXPECT_TRUE(engine->stats().healthy);
  // The prefix cache forgot what the failed step may have spoilt: the same jobs again are right.
  const auto again = run_jobs(*engine, jobs);
  for (size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(again[i].tokens, solo[i].tokens) << i;
}

// The first projected row of every step becomes NaN.
class NanModel : public ModelAround {
 public:
  using ModelAround::ModelAround;

  models::StepOutput forward(const mlx::core::array& ids, const ops::BatchLayoutPtr& layout,
                             std::vector<ops::LayerCache>& caches) const override {
    models::StepOutput out = ModelAround::forward(ids, layout, caches);
    std::vector<float> spoil(layout->rows.size(), 0.0f);
    if (spoil.size() > 1) spoil[0] = std::numeric_limits<float>::quiet_NaN();
    const mlx::core::array added(spoil.data(), {static_cast<int>(spoil.size()), 1});
    out.logits = mlx::core::add(out.logits, added);
    return out;
  }
};

TEST_P(Faults, LogitsThatAreNotFiniteEndOneRequestWithAnError) {
  Arrangement setup{.checkpoint = GetParam(), .threads = 2, .lookahead = true};
  auto jobs = random_jobs(4, 320, 5, 30, 20);
  for (Job& job : jobs) job.sampling.max_tokens = 60;  // long enough to meet one another
  const auto solo = run_solo(setup, jobs);
  setup.wrap = [](std::unique_ptr<models::Model> model) {
    return std::make_unique<NanModel>(std::move(model));
  };
  const auto answers = run_jobs(setup, jobs);
  int failed = 0, right = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    failed += answers[i].finish == FinishReason::kError &&
              answers[i].error.find("not finite") != std::string::npos;
    right += answers[i].tokens == solo[i].tokens;
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(right, 0);  // at last a request is alone
  EXPECT_EQ(failed + right, 4);
}

// A dense model, one with windows in some layers, and one with recurrent state.
INSTANTIATE_TEST_SUITE_P(Models, Faults,
                         testing::Values("tests/parity/models/qwen3-bf16",
                                         "tests/parity/models/qwen2-sliding-bf16",
                                         "tests/parity/models/qwen35"),
                         model_name);

}  // namespace
}  // namespace quire::engine
