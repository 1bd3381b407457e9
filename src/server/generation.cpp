#include "server/generation.h"

#include "server/http/sse.h"

namespace quire::server {

Generation::Generation(http::ExchangePtr exchange, EngineClient& engine, Metrics& metrics,
                       GenerationRegistry& registry, GenerationPlan plan)
    : exchange_(std::move(exchange)),
      engine_(engine),
      metrics_(metrics),
      registry_(registry),
      plan_(std::move(plan)),
      collected_(plan_.sessions.size()),
      begun_(plan_.sessions.size()),
      last_token_(plan_.sessions.size()),
      reasons_(plan_.sessions.size(), engine::FinishReason::kAbort) {}

void Generation::start() {
  exchange_->on_close([self = shared_from_this()] { self->client_gone(); });
  if (answered_) return;  // gone while the prompt was being made
  for (size_t i = 0; i < plan_.requests.size(); ++i) {
    // Weak: a request that the engine never ends must not keep the connection's memory.
    plan_.requests[i].sink = [self = weak_from_this(), i](engine::TokenEvent&& event) {
      if (const auto generation = self.lock()) generation->on_event(i, std::move(event));
    };
  }
  metrics_.request_submitted(plan_.requests, plan_.n);
  registry_.add(shared_from_this());
  auto ids = engine_.submit_all(std::move(plan_.requests));
  if (!ids) {
    registry_.remove(shared_from_this());
    return fail(to_api_error(ids.error()));
  }
  ids_ = std::move(*ids);
  if (!plan_.stream) return;
  http::Response head;
  head.content_type = http::kEventStream;
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would hold events back
  exchange_->begin_stream(std::move(head));
}

void Generation::on_event(size_t choice, engine::TokenEvent&& event) {
  const std::scoped_lock lock(mutex_);
  queue_.push_back({choice, std::move(event), Clock::now()});
  if (std::exchange(drain_posted_, true)) return;
  exchange_->post([self = shared_from_this()] { self->drain(); });
}

void Generation::drain() {
  std::vector<QueuedEvent> events;
  {
    const std::scoped_lock lock(mutex_);
    events.swap(queue_);
    drain_posted_ = false;
  }
  for (auto& event : events) process(std::move(event));
}

void Generation::process(QueuedEvent&& queued) {
  const size_t choice = queued.choice;
  Session& session = *plan_.sessions[choice];
  const bool engine_done = queued.event.finish.has_value();
  const bool was_finished = session.finished();
  if (!queued.event.tokens.empty() && !was_finished) observe_tokens(choice, queued.when);
  TextDelta delta = session.push(std::move(queued.event));
  if (!was_finished) {
    if (delta.finish) reasons_[choice] = delta.finish->reason;
    if (delta.finish && !engine_done) engine_.abort(ids_[choice]);
    if (!answered_) deliver(choice, std::move(delta));
  }
  if (!engine_done) return;
  metrics_.request_finished(session.stats(), reasons_[choice], session.num_output_tokens(),
                            seconds_between(plan_.arrived, queued.when));
  if (++num_engine_done_ == plan_.sessions.size()) registry_.remove(shared_from_this());
}

void Generation::observe_tokens(size_t choice, TimePoint when) {
  TimePoint& last = last_token_[choice];
  if (last == TimePoint()) {
    metrics_.first_token(seconds_between(plan_.arrived, when));
  } else {
    metrics_.next_token(seconds_between(last, when));
  }
  last = when;
}

void Generation::deliver(size_t choice, TextDelta&& delta) {
  if (delta.finish && delta.finish->reason == engine::FinishReason::kError)
    return fail({500, "The generation failed: " + delta.finish->error, ""});
  const bool finished = delta.finish.has_value();
  if (!plan_.stream) {
    collected_[choice].append(std::move(delta));
  } else if (plan_.writer->is_worth_sending(delta, !begun_[choice])) {
    const bool first = !begun_[choice];
    begun_[choice] = true;
    const openai::Usage usage = usage_of(choice, choice + 1);
    exchange_->write(http::sse_event(
        plan_.writer->chunk(static_cast<int64_t>(choice), *plan_.sessions[choice], delta, first,
                            plan_.continuous_usage ? &usage : nullptr)));
  }
  if (finished && ++num_finished_ == plan_.sessions.size()) complete();
}

void Generation::complete() {
  answered_ = true;
  const openai::Usage usage = usage_of(0, plan_.sessions.size());
  if (!plan_.stream) {
    http::Response response;
    response.body = plan_.writer->body(plan_.sessions, collected_, usage);
    return exchange_->respond(std::move(response));
  }
  if (plan_.include_usage) exchange_->write(http::sse_event(plan_.writer->usage_chunk(usage)));
  exchange_->write(http::sse_event("[DONE]"));
  exchange_->end_stream();
}

void Generation::fail(const ApiError& error) {
  if (std::exchange(answered_, true)) return;
  abort_running();
  if (!exchange_->answered()) return exchange_->respond(error_response(error));
  exchange_->write(http::sse_event(dump_json(error_body(error))));
  exchange_->write(http::sse_event("[DONE]"));
  exchange_->end_stream();
}

void Generation::client_gone() {
  answered_ = true;
  abort_running();
}

void Generation::abort_running() {
  for (size_t i = 0; i < ids_.size(); ++i)
    if (!plan_.sessions[i]->finished()) engine_.abort(ids_[i]);
}

void Generation::cancel() {
  exchange_->post([self = shared_from_this()] { self->abort_running(); });
}

void Generation::give_up(ApiError error) {
  exchange_->post([self = shared_from_this(), error = std::move(error)] { self->fail(error); });
}

openai::Usage Generation::usage_of(size_t begin, size_t end) const {
  openai::Usage usage;
  for (size_t i = begin; i < end; ++i) {
    const Session& session = *plan_.sessions[i];
    usage.completion_tokens += session.num_output_tokens();
    // A prompt counts once, however many answers it has.
    if (i != begin && i % static_cast<size_t>(plan_.n) != 0) continue;
    usage.prompt_tokens += static_cast<int64_t>(session.prompt().size());
    usage.cached_tokens += session.stats().cached_tokens;
  }
  return usage;
}

void GenerationRegistry::add(std::shared_ptr<Generation> generation) {
  const std::scoped_lock lock(mutex_);
  generations_.insert(std::move(generation));
}

void GenerationRegistry::remove(const std::shared_ptr<Generation>& generation) {
  const std::scoped_lock lock(mutex_);
  generations_.erase(generation);
  changed_.notify_all();
}

std::vector<std::shared_ptr<Generation>> GenerationRegistry::all() const {
  const std::scoped_lock lock(mutex_);
  return {generations_.begin(), generations_.end()};
}

bool GenerationRegistry::wait_until_empty(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return generations_.empty(); });
}

}  // namespace quire::server
