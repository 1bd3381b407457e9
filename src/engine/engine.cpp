#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <variant>

#include "base/check.h"
#include "engine/step_runner.h"
#include "engine/waiting_limit.h"

namespace quire::engine {
namespace {

// A well-mixed 64-bit number from another (splitmix64, Steele et al. 2014).
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

RequestError invalid(std::string message, std::string param) {
  return {.kind = RequestError::Kind::kInvalid,
          .message = std::move(message),
          .param = std::move(param)};
}

// A model with recurrent layers needs a slot for each running sequence, one with windows more than
// one block table.
EngineOptions for_model(EngineOptions options, const models::Model& model) {
  if (options.give_back_blocks) options.scheduler.windows = groups_of(model).windows;
  const bool has_state = KvPool::state_bytes(model.cache_specs(), model.dtype()) > 0;
  if (!has_state) options.scheduler.num_state_slots = options.scheduler.num_state_checkpoints = 0;
  if (has_state && options.scheduler.num_state_slots == 0)
    options.scheduler.num_state_slots = options.scheduler.max_num_seqs;
  return options;
}

}  // namespace

// The engine thread and its mailbox.
class Engine::Impl {
 public:
  Impl(std::unique_ptr<models::Model> model, EngineOptions options)
      : options_(for_model(std::move(options), *model)),
        model_(std::move(model)),
        runner_(*model_, options_),
        waiting_({.requests = options_.max_waiting, .tokens = options_.max_waiting_tokens}),
        thread_([this] { run(); }) {
    try {
      started_.get_future().get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }

  ~Impl() { shutdown(std::chrono::milliseconds(0)); }

  Result<std::vector<RequestId>, RequestError> submit(std::vector<Request> requests) {
    for (const auto& request : requests)
      if (auto problem = check(request)) return Err{std::move(*problem)};
    const std::lock_guard lock(mutex_);
    if (!failure_.empty())
      return Err{
          RequestError{RequestError::Kind::kEngineDead, "the engine has failed: " + failure_, ""}};
    if (stopping_)
      return Err{
          RequestError{RequestError::Kind::kShuttingDown, "the server is shutting down", ""}};
    WaitingLoad load{.requests = static_cast<int64_t>(requests.size()), .tokens = 0};
    for (const auto& request : requests) load.tokens += static_cast<int64_t>(request.prompt.size());
    const WaitingTenant tenant{requests[0].tenant, requests[0].beside_others};
    if (auto refused = waiting_.join(load, tenant)) return Err{std::move(*refused)};
    std::vector<RequestId> ids;
    for (auto& request : requests) {
      auto sequence = std::make_shared<Sequence>();
      sequence->id = next_id_++;
      sequence->seed = request.sampling.seed.value_or(mix(options_.seed ^ mix(sequence->id)));
      sequence->tokens = std::move(request.prompt);
      sequence->prompt_len = static_cast<int64_t>(sequence->tokens.size());
      const int64_t room = options_.scheduler.max_model_len - sequence->prompt_len;
      request.sampling.max_tokens = std::min(request.sampling.max_tokens, room);
      sequence->stats.arrived = Clock::now();
      sequence->stats.prompt_tokens = sequence->prompt_len;
      sequence->request = std::move(request);
      ids.push_back(sequence->id);
      inbox_.emplace_back(std::move(sequence));
    }
    wake_.notify_one();
    return ids;
  }

  void abort(RequestId id) {
    const std::lock_guard lock(mutex_);
    inbox_.emplace_back(id);
    wake_.notify_one();
  }

  EngineStats stats() const {
    EngineStats result;
    {
      const std::lock_guard lock(mutex_);
      result = stats_;
      result.healthy = failure_.empty();
      result.failure = failure_;
      result.waiting = waiting_.total().requests;
      result.waiting_tokens = waiting_.total().tokens;
    }
    result.device = model_->context().device->name();
    result.device_description = model_->context().device->description();
    result.device_counters = model_->context().device->counters();
    result.kernel_runs = model_->context().kernels->snapshot();
    return result;
  }

  void shutdown(std::chrono::milliseconds timeout) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      deadline_ = Clock::now() + timeout;
      wake_.notify_one();
    }
    const std::lock_guard lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  const EngineOptions& options() const { return options_; }
  int64_t vocab_size() const { return model_->vocab_size(); }
  int64_t hidden_size() const { return model_->hidden_size(); }

 private:
  using Message =
      std::variant<SequencePtr, RequestId>;  // a new sequence, or the id of one to abort

  std::optional<RequestError> check(const Request& request) const {
    const auto length = static_cast<int64_t>(request.prompt.size());
    if (length == 0) return invalid("the prompt is empty", "prompt");
    QUIRE_CHECK(request.adapter < model_->num_adapters()) << "adapter " << request.adapter;
    if (length + (request.pooling ? 0 : 1) > options_.scheduler.max_model_len) {
      return RequestError{RequestError::Kind::kTooLong,
                          "the prompt has " + std::to_string(length) +
                              " tokens, but this model's maximum context length is " +
                              std::to_string(options_.scheduler.max_model_len) + " tokens" +
                              (request.pooling ? "" : ", one of them for the answer"),
                          "prompt"};
    }
    for (const int32_t id : request.prompt) {
      if (id < 0 || id >= model_->vocab_size())
        return invalid("token id " + std::to_string(id) + " is outside the vocabulary of " +
                           std::to_string(model_->vocab_size()),
                       "prompt");
    }
    if (request.pooling) return check_pooling(request);
    for (const auto& [id, bias] : request.sampling.logit_bias)
      if (id < 0 || id >= model_->vocab_size())
        return invalid("token id " + std::to_string(id) + " is outside the vocabulary",
                       "logit_bias");
    const auto& allowed = request.sampling.allowed_tokens;
    if (allowed && static_cast<int64_t>(allowed->size()) != (model_->vocab_size() + 31) / 32)
      return invalid("does not fit the vocabulary", "allowed_token_ids");
    for (const int32_t id : request.sampling.stop_token_ids)
      if (id < 0 || id >= model_->vocab_size())
        return invalid("token id " + std::to_string(id) + " is outside the vocabulary",
                       "stop_token_ids");
    return std::nullopt;
  }

  std::optional<RequestError> check_pooling(const Request& request) const {
    QUIRE_CHECK(request.sampling.max_tokens == 0 && !request.grammar);
    for (const int32_t id : request.pooling->tokens)
      if (id < 0 || id >= model_->vocab_size())
        return invalid("token id " + std::to_string(id) + " is outside the vocabulary", "pooling");
    return std::nullopt;
  }

  void run() {
    if (!start()) return;
    try {
      while (take_messages()) {
        runner_.step();
        publish();
      }
      runner_.abort_all();
      publish();
    } catch (const std::exception& error) {
      fail(error.what());
    }
    runner_.stop();
  }

  // False if the memory pools cannot be had, which the constructor tells.
  bool start() {
    try {
      runner_.start();
      publish();
      started_.set_value();
      return true;
    } catch (...) {
      runner_.stop();
      started_.set_exception(std::current_exception());
      return false;
    }
  }

  // Sleeps while there is nothing to do. Returns false when the thread should end.
  bool take_messages() {
    if (!runner_.has_work()) runner_.check_idle();
    std::vector<Message> messages;
    {
      std::unique_lock lock(mutex_);
      if (!runner_.has_work() && inbox_.empty() && !stopping_) {
        wake_.wait(lock, [this] { return stopping_ || !inbox_.empty(); });
      }
      messages.swap(inbox_);
      waiting_.take();
      if (stopping_ && (Clock::now() >= deadline_ || (!runner_.has_work() && messages.empty()))) {
        for (auto& message : messages)
          if (auto* sequence = std::get_if<SequencePtr>(&message))
            runner_.add(std::move(*sequence));
        return false;
      }
    }
    for (auto& message : messages) {
      if (auto* sequence = std::get_if<SequencePtr>(&message)) {
        runner_.add(std::move(*sequence));
      } else {
        runner_.abort(std::get<RequestId>(message));
      }
    }
    return true;
  }

  void publish() {
    const std::lock_guard lock(mutex_);
    runner_.fill(stats_);
    waiting_.update({stats_.waiting, stats_.waiting_tokens}, runner_.queue_moves(), Clock::now(),
                    runner_.waiting_by_tenant());
  }

  // The thread cannot go on: every request ends with an error, and so does every later submit.
  void fail(const std::string& reason) {
    std::vector<Message> messages;
    {
      const std::lock_guard lock(mutex_);
      failure_ = reason;
      messages.swap(inbox_);
      waiting_.take();
    }
    for (auto& message : messages)
      if (auto* sequence = std::get_if<SequencePtr>(&message)) runner_.add(std::move(*sequence));
    runner_.fail_all(reason);
    publish();
  }

  const EngineOptions options_;
  std::unique_ptr<models::Model> model_;
  RequestId next_id_ = 1;
  StepRunner runner_;  // used by the engine thread only

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Message> inbox_;
  WaitingLimit waiting_;
  bool stopping_ = false;
  TimePoint deadline_;
  std::string failure_;
  EngineStats stats_;

  std::promise<void> started_;
  std::mutex join_mutex_;
  std::thread thread_;
};

Engine::Engine(std::unique_ptr<models::Model> model, EngineOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(options))) {}
Engine::~Engine() = default;

Result<RequestId, RequestError> Engine::submit(Request request) {
  std::vector<Request> one;
  one.push_back(std::move(request));
  auto ids = impl_->submit(std::move(one));
  if (!ids) return Err{std::move(ids).error()};
  return ids->front();
}

Result<std::vector<RequestId>, RequestError> Engine::submit_all(std::vector<Request> requests) {
  return impl_->submit(std::move(requests));
}

void Engine::abort(RequestId id) { impl_->abort(id); }
EngineStats Engine::stats() const { return impl_->stats(); }
int64_t Engine::max_model_len() const { return impl_->options().scheduler.max_model_len; }
int64_t Engine::vocab_size() const { return impl_->vocab_size(); }
int64_t Engine::hidden_size() const { return impl_->hidden_size(); }
bool Engine::honours_priority() const {
  return impl_->options().scheduler.policy == SchedulingPolicy::kPriority;
}
void Engine::shutdown(std::chrono::milliseconds timeout) { impl_->shutdown(timeout); }

}  // namespace quire::engine
