#include "runner.h"

#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "formats/test_files.h"
#include "golden.h"
#include "ops/runtime/test_util.h"

namespace quire::parity {
namespace {

// Gathers the events of all jobs until each has ended.
class Collector {
 public:
  explicit Collector(size_t count) : answers_(count) {}

  engine::TokenSink sink(size_t index) {
    return [this, index](engine::TokenEvent&& event) {
      const std::lock_guard lock(mutex_);
      Answer& answer = answers_[index];
      answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
      for (auto& entry : event.logprobs) answer.logprobs.push_back(std::move(entry));
      for (auto& entry : event.prompt_logprobs) answer.prompt_logprobs.push_back(std::move(entry));
      answer.pooled = std::move(event.pooled);
      answer.finish = event.finish;
      answer.error = event.error;
      ended_ += event.finish.has_value();
      changed_.notify_all();
    };
  }

  std::vector<Answer> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == answers_.size(); });
    return answers_;
  }

 private:
  std::vector<Answer> answers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t ended_ = 0;
};

// So that weights are used where they are mapped, on the emulator of Metal, too, whatever the file
// system can.
formats::FileSnapshot::Taken snapshot_or_copy(const formats::DataFile& file) {
  auto taken = file.snapshot();
  return taken || !ops::testing::on_emulator() ? taken : formats::testing::copied_snapshot(file);
}

std::unique_ptr<engine::Engine> load(const EngineSetup& setup, const ops::Context& context) {
  const auto checkpoint = formats::Checkpoint::open(checkpoint_dir(setup.checkpoint));
  engine::EngineOptions options;
  options.scheduler.max_num_batched_tokens = setup.max_num_batched_tokens;
  options.scheduler.max_model_len = setup.max_model_len;
  options.scheduler.max_num_seqs = setup.max_num_seqs;
  options.scheduler.num_blocks = 16 * setup.max_model_len / options.scheduler.block_size;
  options.scheduler.enable_prefix_caching = setup.prefix_caching;
  options.lookahead = setup.lookahead;
  options.check_integrity = true;
  options.kv_storage = setup.kv_storage;
  std::vector<formats::LoraAdapter> adapters;
  for (const std::string& dir : setup.adapters) adapters.push_back(formats::LoraAdapter::open(dir));
  auto model = models::load_model(context, checkpoint,
                                  {.dtype = setup.dtype,
                                   .max_positions = setup.max_model_len,
                                   .progress = {},
                                   .ablation = setup.ablation,
                                   .int8_activations = setup.int8_activations,
                                   .adapters = adapters,
                                   .snapshot = snapshot_or_copy});
  if (ops::testing::on_emulator() && context.device->metal()) {
    EXPECT_EQ(model->mapped_weights()->reason, "") << setup.checkpoint;
  }
  if (setup.once_loaded) setup.once_loaded();
  return std::make_unique<engine::Engine>(std::move(model), std::move(options));
}

}  // namespace

std::vector<Answer> run_engine(const EngineSetup& setup, const std::vector<Job>& jobs,
                               const ops::Context& context) {
  Collector collector(jobs.size());
  const auto engine = load(setup, context);
  for (size_t i = 0; i < jobs.size(); ++i) {
    engine::Request request;
    request.prompt = jobs[i].prompt;
    request.sampling.temperature = jobs[i].temperature;
    request.sampling.max_tokens = jobs[i].max_tokens;
    request.sampling.logprobs = jobs[i].logprobs;
    request.sampling.prompt_logprobs = jobs[i].prompt_logprobs;
    request.sampling.ignore_eos = true;
    request.pooling = jobs[i].pooling;
    request.adapter = jobs[i].adapter;
    request.sink = collector.sink(i);
    if (const auto id = engine->submit(std::move(request)); !id)
      throw std::runtime_error(setup.checkpoint + ": " + id.error().message);
  }
  return collector.wait();
}

}  // namespace quire::parity
