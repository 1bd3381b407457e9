#include "server/generation.h"

#include <algorithm>

#include "server/http/sse.h"

namespace quire::server {
namespace {

// At most how long an io thread works on one request's events before it looks at other connections;
// one event may be behind that.
constexpr auto kTurn = std::chrono::milliseconds(2);

}  // namespace

Generation::Generation(http::ExchangePtr exchange, EngineClient& engine, Metrics& metrics,
                       GenerationRegistry& registry, GenerationPlan plan)
    : exchange_(std::move(exchange)),
      engine_(engine),
      metrics_(metrics),
      registry_(registry),
      plan_(std::move(plan)),
      collected_(plan_.sessions.size()),
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
  if (!registry_.add(shared_from_this())) return fail({503, "The server is shutting down", ""});
  auto ids = engine_.submit_all(std::move(plan_.requests));
  if (!ids) {
    registry_.remove(shared_from_this());
    return fail(to_api_error(ids.error()));
  }
  ids_ = std::move(*ids);
  if (!plan_.stream) return;
  first_events_ = plan_.format->first_events();
  // What fails before there is anything else to send gets a status of its own.
  exchange_->begin_stream_later([self = shared_from_this()] { self->begin_stream(); });
}

void Generation::begin_stream() {
  http::Response head;
  head.content_type = http::kEventStream;
  plan_.format->add_headers(head);
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would hold events back
  exchange_->begin_stream(std::move(head));
  exchange_->write(std::exchange(first_events_, {}));
}

void Generation::on_event(size_t choice, engine::TokenEvent&& event) {
  const std::scoped_lock lock(mutex_);
  queue_.push_back({choice, std::move(event), Clock::now()});
  post_drain();
}

// With mutex_.
void Generation::post_drain() {
  if (std::exchange(drain_posted_, true)) return;
  exchange_->post([self = shared_from_this()] { self->drain(); });
}

// In turns: the thread serves other connections too, and this one has to send what is there.
void Generation::drain() {
  {
    const std::scoped_lock lock(mutex_);
    std::move(queue_.begin(), queue_.end(), std::back_inserter(events_));
    queue_.clear();
    drain_posted_ = false;
  }
  const TimePoint end = Clock::now() + kTurn;
  while (!events_.empty()) {
    QueuedEvent event = std::move(events_.front());
    events_.pop_front();
    process(std::move(event));
    if (events_.empty() || Clock::now() < end) continue;
    const std::scoped_lock lock(mutex_);
    return post_drain();
  }
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
  if (++num_engine_done_ < plan_.sessions.size()) return;
  int64_t longest = 0;
  for (const auto& one : plan_.sessions) longest = std::max(longest, one->num_output_tokens());
  metrics_.answers_finished(longest);
  registry_.remove(shared_from_this());
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
  if (delta.finish && delta.finish->reason == engine::FinishReason::kRefused)
    return fail({400, std::move(delta.finish->error), plan_.constraint_param});
  if (delta.finish && delta.finish->reason == engine::FinishReason::kOverloaded)
    return fail({503, std::move(delta.finish->error), plan_.constraint_param});
  if (delta.finish && delta.finish->reason == engine::FinishReason::kAbort &&
      !plan_.format->takes_aborted())
    return fail({503, "The request was aborted before it was computed", ""});
  const bool finished = delta.finish.has_value();
  if (!plan_.stream) {
    if (!plan_.format->writes_tokens()) delta.tokens.clear();
    collected_[choice].append(std::move(delta));
  } else {
    exchange_->write(plan_.format->events(static_cast<int64_t>(choice), *plan_.sessions[choice],
                                          delta, usage_of(choice, choice + 1)));
  }
  if (finished && ++num_finished_ == plan_.sessions.size()) complete();
}

void Generation::complete() {
  answered_ = true;
  note_usage();
  plan_.admission.reset();
  const Usage usage = usage_of(0, plan_.sessions.size());
  if (!plan_.stream) return send_body(usage);
  exchange_->write(plan_.format->last_events(usage));
  exchange_->end_stream();
}

// A large body is written piece by piece on worker threads, as fast as the client reads it: its
// text would be many times what it is made from. Nothing else looks at the sessions any more.
void Generation::send_body(const Usage& usage) {
  auto body = plan_.format->body(plan_.sessions, collected_, usage);
  http::Response response;
  plan_.format->add_headers(response);
  if (!body.is_large()) {
    while (body.next(response.body)) {
    }
    return exchange_->respond(std::move(response));
  }
  const auto shared = std::make_shared<AnswerBody>(std::move(body));
  exchange_->respond_in_pieces(
      std::move(response),
      [self = shared_from_this(), shared](std::string& out) { return shared->next(out); });
}

void Generation::fail(const ApiError& error) {
  if (std::exchange(answered_, true)) return;
  note_usage();
  plan_.admission.reset();
  abort_running();
  if (!exchange_->answered()) return respond_with(*exchange_, error);
  exchange_->write(plan_.format->error_events(error));
  exchange_->end_stream();
}

void Generation::client_gone() {
  answered_ = true;
  note_usage();
  plan_.admission.reset();
  abort_running();
}

void Generation::abort_running() {
  for (size_t i = 0; i < ids_.size(); ++i)
    if (!plan_.sessions[i]->finished()) engine_.abort(ids_[i]);
}

void Generation::give_up(ApiError error) {
  exchange_->post([self = shared_from_this(), error = std::move(error)] { self->fail(error); });
}

// For the access log.
void Generation::note_usage() {
  const Usage usage = usage_of(0, plan_.sessions.size());
  const std::string adapter = plan_.adapter.empty() ? "" : "adapter=" + plan_.adapter + " ";
  exchange_->set_note(adapter + "prompt=" + std::to_string(usage.prompt_tokens) +
                      " cached=" + std::to_string(usage.cached_tokens) +
                      " output=" + std::to_string(usage.completion_tokens));
}

Usage Generation::usage_of(size_t begin, size_t end) const {
  Usage usage;
  for (size_t i = begin; i < end; ++i) {
    const Session& session = *plan_.sessions[i];
    usage.completion_tokens += session.num_output_tokens();
    if (const auto reasoning = session.num_reasoning_tokens())
      usage.reasoning_tokens = usage.reasoning_tokens.value_or(0) + *reasoning;
    // A prompt counts once, however many answers it has.
    if (i != begin && i % static_cast<size_t>(plan_.n) != 0) continue;
    usage.prompt_tokens += static_cast<int64_t>(session.prompt().size());
    usage.cached_tokens += session.stats().cached_tokens;
  }
  return usage;
}

bool GenerationRegistry::add(std::shared_ptr<Generation> generation) {
  const std::scoped_lock lock(mutex_);
  if (closed_) return false;
  generations_.insert(std::move(generation));
  return true;
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

std::vector<std::shared_ptr<Generation>> GenerationRegistry::close() {
  const std::scoped_lock lock(mutex_);
  closed_ = true;
  return {generations_.begin(), generations_.end()};
}

bool GenerationRegistry::wait_until_empty(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return generations_.empty(); });
}

}  // namespace quire::server
