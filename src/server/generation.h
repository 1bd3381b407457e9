#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "server/admission.h"
#include "server/answer_format.h"
#include "server/engine_client.h"
#include "server/errors.h"
#include "server/http/exchange.h"
#include "server/metrics.h"

namespace quire::server {

// Everything that is known about a client's request before it goes to the engine: one engine
// request and one session per choice; choice p * n + i is the i-th answer to prompt p.
struct GenerationPlan {
  std::vector<engine::Request> requests;
  std::vector<std::unique_ptr<Session>> sessions;
  std::unique_ptr<AnswerFormat> format;
  int64_t n = 1;
  std::string adapter;           // its name; empty: none
  std::string constraint_param;  // the request's field with the grammar; empty: none
  bool stream = false;
  TimePoint arrived;
  http::Charge held_prompts, held_answers;  // given back with the plan
  std::shared_ptr<Admission> admission;     // until the answer is complete
};

class GenerationRegistry;

// A client's request at work: hands the engine's events to the sessions and their texts to the
// client. Lives until the engine has ended every choice; except on_event and give_up everything
// runs on the exchange's strand.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(http::ExchangePtr exchange, EngineClient& engine, Metrics& metrics,
             GenerationRegistry& registry, GenerationPlan plan);

  void start();
  // Any thread: aborts every choice and answers with an error now, whatever the engine does.
  void give_up(ApiError error);

 private:
  struct QueuedEvent {
    size_t choice;
    engine::TokenEvent event;
    TimePoint when;
  };

  void on_event(size_t choice, engine::TokenEvent&& event);  // engine thread
  void begin_stream();
  void post_drain();
  void drain();
  void process(QueuedEvent&& queued);
  void observe_tokens(size_t choice, TimePoint when);
  void deliver(size_t choice, TextDelta&& delta);
  void complete();
  void send_body(const Usage& usage);
  void fail(const ApiError& error);
  void client_gone();
  void abort_running();
  void note_usage();
  Usage usage_of(size_t begin, size_t end) const;

  const http::ExchangePtr exchange_;
  EngineClient& engine_;
  Metrics& metrics_;
  GenerationRegistry& registry_;
  GenerationPlan plan_;
  std::vector<engine::RequestId> ids_;
  std::string first_events_;          // when streaming, until the stream begins
  std::vector<TextDelta> collected_;  // per choice, when not streaming
  std::vector<TimePoint> last_token_;
  std::vector<engine::FinishReason> reasons_;
  size_t num_finished_ = 0, num_engine_done_ = 0;
  bool answered_ = false;           // completely, or the client is gone
  std::deque<QueuedEvent> events_;  // taken from queue_, in order

  std::mutex mutex_;  // guards what follows
  std::vector<QueuedEvent> queue_;
  bool drain_posted_ = false;
};

// The requests that the engine works on, for shutting down.
class GenerationRegistry {
 public:
  // False: closed.
  bool add(std::shared_ptr<Generation> generation);
  void remove(const std::shared_ptr<Generation>& generation);
  std::vector<std::shared_ptr<Generation>> all() const;
  bool wait_until_empty(std::chrono::milliseconds timeout) const;
  // Takes no more. Returns those at work.
  std::vector<std::shared_ptr<Generation>> close();

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::set<std::shared_ptr<Generation>> generations_;
  bool closed_ = false;
};

}  // namespace quire::server
