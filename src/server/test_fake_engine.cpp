#include "server/test_fake_engine.h"

#include <algorithm>

#include "server/test_eventually.h"

namespace quire::server {
namespace {

// Log-probabilities that a test can predict: -0.5 for the token, -1.5, -2.5, ... for the others.
engine::TokenLogprob fake_logprob(int32_t token, int32_t num_top) {
  engine::TokenLogprob out;
  out.token = token;
  out.logprob = -0.5f;
  out.rank = 1;
  for (int32_t i = 0; i < num_top; ++i)
    out.top.emplace_back((token + i) % 320, -0.5f - static_cast<float>(i));
  return out;
}

}  // namespace

FakeEngine::FakeEngine(Script script) : script_(std::move(script)), thread_([this] { run(); }) {}

FakeEngine::~FakeEngine() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

Result<std::vector<engine::RequestId>, engine::RequestError> FakeEngine::submit_all(
    std::vector<engine::Request> requests) {
  const std::scoped_lock lock(mutex_);
  if (refusal_) return Err{*refusal_};
  std::vector<engine::RequestId> ids;
  for (auto& request : requests) {
    last_sampling_ = request.sampling;
    last_prompt_ = request.prompt;
    last_had_grammar_ = request.grammar != nullptr;
    last_tenant_ = request.tenant;
    last_beside_others_ = request.beside_others;
    last_priority_ = request.priority;
    last_cache_salt_ = request.cache_salt;
    last_pooling_ = request.pooling;
    Running running{next_id_++, std::move(request), {}, 0};
    running.stats.arrived = running.stats.scheduled = Clock::now();
    running.stats.prompt_tokens = static_cast<int64_t>(running.request.prompt.size());
    running.stats.cached_tokens = 1;
    ids.push_back(running.id);
    running_.push_back(std::move(running));
  }
  num_submitted_ += ids.size();
  wake_.notify_all();
  return ids;
}

void FakeEngine::abort(engine::RequestId id) {
  const std::scoped_lock lock(mutex_);
  if (!script_.ignores_aborts) to_abort_.insert(id);
  ++num_aborted_;
  wake_.notify_all();
}

void FakeEngine::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::erase_if(running_, [this](Running& running) {
      if (!to_abort_.contains(running.id)) return false;
      end(running, engine::FinishReason::kAbort, "");
      return true;
    });
    to_abort_.clear();
    if (!failure_.empty()) {
      for (auto& running : running_) end(running, engine::FinishReason::kError, failure_);
      running_.clear();
    }
    if (!paused_) std::erase_if(running_, [this](Running& running) { return step(running); });
    if (running_.empty() || paused_) {
      wake_.wait_for(lock, std::chrono::milliseconds(20));
    } else {
      wake_.wait_for(lock, script_.step_time);
    }
  }
}

void FakeEngine::pool(Running& running) {
  const engine::Pooling& pooling = *running.request.pooling;
  const std::vector<int32_t>& prompt = running.request.prompt;
  engine::TokenEvent event;
  event.finish = engine::FinishReason::kStop;
  if (pooling.tokens.empty()) event.pooled = {3, 4, 0, static_cast<float>(prompt.front())};
  for (size_t i = 0; i < pooling.tokens.size(); ++i)
    event.pooled.push_back(i == 0 ? -1.0f : -static_cast<float>(prompt.size()));
  running.stats.first_token = running.stats.finished = Clock::now();
  event.stats = running.stats;
  running.request.sink(std::move(event));
}

bool FakeEngine::step(Running& running) {
  if (running.request.pooling && script_.fail_after != 0) {
    pool(running);
    return true;
  }
  const engine::SamplingParams& sampling = running.request.sampling;
  engine::TokenEvent event;
  if (running.produced == 0) {
    running.stats.first_token = Clock::now();
    if (sampling.prompt_logprobs >= 0) {
      for (size_t i = 1; i < running.request.prompt.size(); ++i)
        event.prompt_logprobs.push_back(
            fake_logprob(running.request.prompt[i], sampling.prompt_logprobs));
    }
  }
  for (size_t i = 0; i < script_.tokens_per_event && !event.finish; ++i) {
    if (static_cast<int64_t>(running.produced) == script_.fail_after) {
      end(running, script_.failure, "the device is on fire");
      return true;
    }
    const int32_t token = script_.tokens[running.produced++ % script_.tokens.size()];
    ++generated_;
    event.tokens.push_back(token);
    if (sampling.logprobs >= 0) event.logprobs.push_back(fake_logprob(token, sampling.logprobs));
    const auto& stops = sampling.stop_token_ids;
    const bool may_stop = static_cast<int64_t>(running.produced) > sampling.min_tokens;
    if (may_stop && std::find(stops.begin(), stops.end(), token) != stops.end()) {
      event.finish = engine::FinishReason::kStop;
      event.stop_token = token;
    } else if (may_stop && !sampling.ignore_eos && script_.eos.contains(token)) {
      event.finish = engine::FinishReason::kStop;
    } else if (static_cast<int64_t>(running.produced) >= sampling.max_tokens) {
      event.finish = engine::FinishReason::kLength;
    }
  }
  if (event.finish) running.stats.finished = Clock::now();
  running.stats.output_tokens = static_cast<int64_t>(running.produced);
  event.stats = running.stats;
  const bool ended = event.finish.has_value();
  running.request.sink(std::move(event));
  return ended;
}

void FakeEngine::end(Running& running, engine::FinishReason reason, const std::string& error) {
  engine::TokenEvent event;
  event.finish = reason;
  event.error = error;
  running.stats.finished = Clock::now();
  event.stats = running.stats;
  running.request.sink(std::move(event));
}

engine::EngineStats FakeEngine::stats() const {
  const std::scoped_lock lock(mutex_);
  engine::EngineStats status;
  status.healthy = failure_.empty();
  status.failure = failure_;
  status.running = static_cast<int64_t>(running_.size());
  status.total_blocks = 100;
  status.touched_blocks = 60;
  status.state_slots = 8;
  status.state_checkpoints = 32;
  status.state_restores = 3;
  status.used_blocks = status.running;
  status.generation_tokens = generated_;
  status.block_size = 16;
  status.prefix_caching = true;
  for (const int64_t tokens : {1, 2, 8, 9, 20000}) status.step_tokens.observe(tokens);
  status.kernel_runs = {{"linear/amx", 3}, {"rms_norm/avx512", 4}};
  return status;
}

void FakeEngine::refuse_with(engine::RequestError error) {
  const std::scoped_lock lock(mutex_);
  refusal_ = std::move(error);
}

void FakeEngine::die(std::string reason) {
  const std::scoped_lock lock(mutex_);
  failure_ = reason;
  refusal_ = engine::RequestError{engine::RequestError::Kind::kEngineDead, std::move(reason), ""};
  wake_.notify_all();
}

void FakeEngine::pause(bool paused) {
  const std::scoped_lock lock(mutex_);
  paused_ = paused;
  wake_.notify_all();
}

size_t FakeEngine::num_running() const {
  const std::scoped_lock lock(mutex_);
  return running_.size();
}
size_t FakeEngine::num_aborted() const {
  const std::scoped_lock lock(mutex_);
  return num_aborted_;
}
size_t FakeEngine::num_submitted() const {
  const std::scoped_lock lock(mutex_);
  return num_submitted_;
}
engine::SamplingParams FakeEngine::last_sampling() const {
  const std::scoped_lock lock(mutex_);
  return last_sampling_;
}
std::vector<int32_t> FakeEngine::last_prompt() const {
  const std::scoped_lock lock(mutex_);
  return last_prompt_;
}
bool FakeEngine::last_had_grammar() const {
  const std::scoped_lock lock(mutex_);
  return last_had_grammar_;
}
uint64_t FakeEngine::last_tenant() const {
  const std::scoped_lock lock(mutex_);
  return last_tenant_;
}
bool FakeEngine::last_beside_others() const {
  const std::scoped_lock lock(mutex_);
  return last_beside_others_;
}
int32_t FakeEngine::last_priority() const {
  const std::scoped_lock lock(mutex_);
  return last_priority_;
}
std::string FakeEngine::last_cache_salt() const {
  const std::scoped_lock lock(mutex_);
  return last_cache_salt_;
}

std::optional<engine::Pooling> FakeEngine::last_pooling() const {
  const std::scoped_lock lock(mutex_);
  return last_pooling_;
}

bool FakeEngine::wait_for(const std::function<bool()>& condition) const {
  return eventually(condition);
}

}  // namespace quire::server
