#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "models/model.h"

namespace quire::engine {

// One way to run a set of requests. No value may change a bit of what they answer.
struct Arrangement {
  std::string checkpoint;  // folder under the source tree; "+int8" behind it: 8-bit activations
  int threads = 1;
  int64_t block_size = 16;
  // 0: room for everything; else how many, to force preemption. make_engine gives a model with
  // windows as many beyond what its longest sequence needs.
  int64_t num_blocks = 0;
  int64_t max_num_batched_tokens = 2048;
  int64_t max_num_seqs = 32;
  int64_t max_model_len = 512;
  // Of hybrid models: as many slots as sequences, and checkpoints so often that short prompts have
  // some.
  int64_t num_state_slots = 0;
  int64_t state_checkpoints = 64, checkpoint_interval = 32, min_checkpoint_tokens = 8;
  bool prefix_caching = false;
  bool lookahead = false;
  bool replay_decodes = true;  // where the device records steps
  bool give_back_blocks = true;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  double max_step_seconds = 0;
  int64_t max_waiting = 4096;
  ops::KvStorage kv_storage = ops::KvStorage::kAuto;
  std::vector<std::string> adapters = {};  // folders of LoRA adapters
  int64_t max_adapters = 0;
  models::AblationOptions ablation = {};
  std::shared_ptr<ops::Profile> profile = nullptr;
  // Puts another model around the loaded one (negative control).
  std::function<std::unique_ptr<models::Model>(std::unique_ptr<models::Model>)> wrap = {};

  std::string text() const;  // for failure messages
};

// A model that does what another does; tests override forward().
class ModelAround : public models::Model {
 public:
  explicit ModelAround(std::unique_ptr<models::Model> inner) : inner_(std::move(inner)) {}

  models::StepOutput forward(const mlx::core::array& ids, const ops::BatchLayoutPtr& layout,
                             std::vector<ops::LayerCache>& caches) const override {
    return inner_->forward(ids, layout, caches);
  }
  const ops::Context& context() const override { return inner_->context(); }
  std::vector<models::CacheSpec> cache_specs() const override { return inner_->cache_specs(); }
  mlx::core::Dtype dtype() const override { return inner_->dtype(); }
  int64_t vocab_size() const override { return inner_->vocab_size(); }
  int64_t hidden_size() const override { return inner_->hidden_size(); }
  int64_t num_adapters() const override { return inner_->num_adapters(); }
  int64_t max_positions() const override { return inner_->max_positions(); }
  size_t weight_bytes() const override { return inner_->weight_bytes(); }
  int64_t widest_activation() const override { return inner_->widest_activation(); }

 private:
  std::unique_ptr<models::Model> inner_;
};

struct Job {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  std::string cache_salt = {};
  uint64_t tenant = 0;
  int abort_after = -1;  // tokens after which the client goes away; -1: never
  std::shared_ptr<const text::GrammarMatcher> grammar = nullptr;  // cloned for each run
  std::optional<Pooling> pooling = {};
  int32_t adapter = -1;  // of Arrangement::adapters
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::vector<float> pooled;
  std::optional<FinishReason> finish;
  std::string error;
  RequestStats stats;
  std::vector<TimePoint> times;  // of the events
};

bool operator==(const TokenLogprob& a, const TokenLogprob& b);

// What Arrangement::checkpoint names.
formats::Checkpoint open_checkpoint(const std::string& name);

std::unique_ptr<models::Model> make_model(const Arrangement& setup);
EngineOptions make_options(const Arrangement& setup);
std::unique_ptr<Engine> make_engine(const Arrangement& setup);

// Submits the jobs in order, each at a random moment while earlier ones run (`arrival_seed`; 0: all
// at once), and waits for all. Checks at the end that every block and state slot is back.
std::vector<Answer> run_jobs(Engine& engine, const std::vector<Job>& jobs,
                             uint64_t arrival_seed = 0);
std::vector<Answer> run_jobs(const Arrangement& setup, const std::vector<Job>& jobs,
                             uint64_t arrival_seed = 0);

// Each job alone, on one thread, without cache or lookahead, whole prompts at once: what every
// other way must reproduce.
std::vector<Answer> run_solo(Arrangement setup, const std::vector<Job>& jobs);

// The first difference, down to the bits of logprobs, ends the test.
void expect_same(const std::vector<Answer>& expected, const std::vector<Answer>& actual,
                 const std::string& what);
bool same(const std::vector<Answer>& a, const std::vector<Answer>& b);

// "tests/parity/models/qwen3-bf16" as a test's name: "qwen3_bf16".
std::string model_name(const testing::TestParamInfo<const char*>& info);

// Reproducible prompts of random ids; some begin alike, so that the prefix cache has work.
std::vector<Job> random_jobs(int count, int64_t vocab, uint64_t seed, int64_t max_prompt = 200,
                             int64_t max_tokens = 24);

// Whatever makes a context meanwhile gets this device.
class OnDevice {
 public:
  explicit OnDevice(std::shared_ptr<ops::Device> device) {
    ops::set_default_device(std::move(device));
  }
  ~OnDevice() { ops::set_default_device(nullptr); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

}  // namespace quire::engine
