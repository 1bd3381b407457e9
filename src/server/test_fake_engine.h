#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "server/engine_client.h"

namespace quire::server {

// An engine for tests: one thread gives every running request one scripted token per step. Of a
// request that pools, the state is {3, 4, 0, its first id}, and the log-probability of a token -1
// for the first one, and for others minus the length of the prompt.
class FakeEngine final : public EngineClient {
 public:
  struct Script {
    std::vector<int32_t> tokens;  // said again from the start when they run out
    std::set<int32_t> eos;        // end an answer
    std::chrono::microseconds step_time{200};
    size_t tokens_per_event = 1;
    int64_t fail_after = -1;  // tokens, then `failure`
    engine::FinishReason failure = engine::FinishReason::kError;
    bool ignores_aborts = false;  // an engine that hangs
    bool honours_priority = false;
    int64_t max_model_len = 512;
  };

  explicit FakeEngine(Script script);
  ~FakeEngine() override;

  Result<std::vector<engine::RequestId>, engine::RequestError> submit_all(
      std::vector<engine::Request> requests) override;
  void abort(engine::RequestId id) override;
  engine::EngineStats stats() const override;
  int64_t max_model_len() const override { return script_.max_model_len; }
  int64_t vocab_size() const override { return 320; }
  int64_t hidden_size() const override { return 4; }
  bool honours_priority() const override { return script_.honours_priority; }

  void refuse_with(engine::RequestError error);
  void die(std::string reason);
  void pause(bool paused);
  size_t num_running() const;
  size_t num_aborted() const;
  size_t num_submitted() const;
  // The parameters of the last request that was submitted.
  engine::SamplingParams last_sampling() const;
  std::vector<int32_t> last_prompt() const;
  bool last_had_grammar() const;
  uint64_t last_tenant() const;
  bool last_beside_others() const;
  int32_t last_priority() const;
  std::string last_cache_salt() const;
  std::optional<engine::Pooling> last_pooling() const;
  bool wait_for(const std::function<bool()>& condition) const;

 private:
  struct Running {
    engine::RequestId id;
    engine::Request request;
    engine::RequestStats stats;
    size_t produced = 0;
  };

  void run();
  bool step(Running& running);  // true: it has ended
  static void pool(Running& running);
  void end(Running& running, engine::FinishReason reason, const std::string& error);

  const Script script_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Running> running_;
  std::set<engine::RequestId> to_abort_;
  std::optional<engine::RequestError> refusal_;
  std::string failure_;
  engine::SamplingParams last_sampling_;
  std::vector<int32_t> last_prompt_;
  bool last_had_grammar_ = false;
  uint64_t last_tenant_ = 0;
  bool last_beside_others_ = false;
  int32_t last_priority_ = 0;
  std::string last_cache_salt_;
  std::optional<engine::Pooling> last_pooling_;
  engine::RequestId next_id_ = 1;
  size_t num_aborted_ = 0, num_submitted_ = 0;
  int64_t generated_ = 0;
  bool paused_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace quire::server
