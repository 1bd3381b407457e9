#include "server/http/connection_exchange.h"

#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>

namespace quire::server::http {

namespace asio = boost::asio;
namespace {

// While a client's going away could not be seen otherwise.
constexpr auto kShortPingInterval = std::chrono::milliseconds(1000);
// A client that has no more than so much of a stream unread keeps up with it.
constexpr size_t kKeepsUp = 32u << 10;

}  // namespace

ConnectionExchange::ConnectionExchange(asio::any_io_executor strand,
                                       std::shared_ptr<ConnectionContext> context,
                                       std::shared_ptr<Account> account, Request request)
    : context_(std::move(context)),
      strand_(std::move(strand)),
      account_(std::move(account)),
      owner_(account_->owner()),
      request_(std::move(request)),
      budget_(context_->options.max_text_time),
      is_large_(request_.body.size() >= context_->options.large_body_bytes),
      wakeup_(strand_, asio::steady_timer::time_point::max()),
      ping_interval_(context_->options.ping_interval),
      last_write_(Clock::now()) {
  context_->active_exchanges.fetch_add(1);
}

ConnectionExchange::~ConnectionExchange() {
  account_->remove(Held::kAnswers, unsent_);
  context_->active_exchanges.fetch_sub(1);
}

Body ConnectionExchange::take_body() {
  return {std::exchange(request_.body, {}), std::move(body_charge_)};
}

WorkQueue::Size ConnectionExchange::size() const {
  return is_large_ ? WorkQueue::Size::kLarge : WorkQueue::Size::kSmall;
}

void ConnectionExchange::append(std::string_view data) {
  output_ += data;
  unsent_ += data.size();
  account_->add(Held::kAnswers, data.size());
  last_write_ = Clock::now();
  wakeup_.cancel();
}

void ConnectionExchange::append_chunk(std::string_view data) {
  if (!request_.head.http_1_1) return append(data);
  char size[24];
  char* end = std::to_chars(size, size + 20, data.size(), 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  append({size, static_cast<size_t>(end - size)});
  append(data);
  append("\r\n");
}

void ConnectionExchange::append_head(Response response, std::optional<size_t> body_bytes) {
  response.headers.emplace_back("X-Request-Id", request_.head.id);
  for (auto& header : context_->handler.headers_for(request_.head))
    response.headers.push_back(std::move(header));
  append(format_head(response, body_bytes, request_.head.http_1_1, request_.head.keep_alive));
}

void ConnectionExchange::respond(Response response) {
  if (closed_ || answered()) return;
  status_ = response.status;
  ended_ = true;
  const std::string body = std::exchange(response.body, {});
  append_head(std::move(response), body.size());
  if (request_.head.method != "HEAD") append(body);
  release_callbacks();
}

void ConnectionExchange::begin_stream(Response head) {
  if (closed_ || answered()) return;
  status_ = head.status;
  streaming_ = true;
  // Without chunks only the end of the connection ends the stream.
  if (!request_.head.http_1_1) request_.head.keep_alive = false;
  is_event_stream_ = head.content_type.starts_with("text/event-stream");
  append_head(std::move(head), std::nullopt);
}

void ConnectionExchange::begin_stream_later(std::function<void()> begin) {
  if (closed_ || answered()) return;
  begin_ = std::move(begin);
  // Without pings a client would wait for ever; and one that may be gone gets something to answer.
  if (ping_interval_.count() == 0 || half_closed_) begin_now();
}

void ConnectionExchange::begin_now() {
  if (const auto begin = std::exchange(begin_, nullptr)) guarded(begin);
}

void ConnectionExchange::write(std::string_view data) {
  if (!data.empty()) begin_now();
  // An empty chunk would end the stream.
  if (closed_ || given_up_ || ended_ || !streaming_ || data.empty()) return;
  // What others hold, and how large an event is, is no fault of a client that reads. The pieces of
  // a large answer come one by one, and are small.
  const bool keeps_up = unsent_ <= kKeepsUp || source_ != nullptr;
  const bool fits = keeps_up || account_->would_fit(data.size());
  append_chunk(data);
  if (keeps_up || (unsent_ <= context_->options.max_unsent_bytes && fits)) return;
  spdlog::warn("{} leaves {} bytes unread{}: closing the connection", request_.peer, unsent_,
               fits ? "" : ", and what is held for clients is at its limit");
  given_up_ = true;
  // Later, since the caller of write() does not expect its own on_close in the middle of it.
  post([this] { close(); });
}

void ConnectionExchange::end_stream() {
  begin_now();
  if (closed_ || given_up_ || ended_ || !streaming_) return;
  if (request_.head.http_1_1) append("0\r\n\r\n");
  ended_ = true;
  wakeup_.cancel();
  release_callbacks();
}

// They may own the object that calls us: it must not die before that call returns.
void ConnectionExchange::release_callbacks() {
  if (on_close_ || begin_)
    post([callback = std::exchange(on_close_, nullptr), begin = std::exchange(begin_, nullptr)] {});
}

void ConnectionExchange::on_close(std::function<void()> callback) {
  if (closed_) return callback();
  on_close_ = std::move(callback);
}

void ConnectionExchange::post(std::function<void()> task) {
  if (context_->stopped) return;
  asio::post(strand_, [self = shared_from_this(), task = std::move(task)] { self->guarded(task); });
}

void ConnectionExchange::run_in_background(std::function<void()> task) {
  run_in(size(), std::move(task));
}

void ConnectionExchange::run_beside_large(std::function<void()> task) {
  run_in(WorkQueue::Size::kLarge, std::move(task));
}

void ConnectionExchange::run_beside_grammars(std::function<void()> task) {
  run_in(WorkQueue::Size::kGrammar, std::move(task));
}

void ConnectionExchange::run_in(WorkQueue::Size size, std::function<void()> task) {
  auto job = [self = shared_from_this(), task = std::move(task)] {
    if (self->budget_.cancelled) return;
    try {
      task();
    } catch (const std::exception& error) {
      self->post([self, what = std::string(error.what())] { self->fail(what); });
    }
  };
  auto refuse = [self = shared_from_this()] { self->post([self] { self->refuse_work(); }); };
  if (!context_->workers.try_post(size, owner_, std::move(job), refuse)) refuse();
}

void ConnectionExchange::refuse_work() {
  respond(context_->handler.error_for(
      request_.head, 429, "Too many requests wait for their text to be read; try again later"));
}

void ConnectionExchange::respond_in_pieces(Response head, PieceSource next) {
  begin_stream(std::move(head));
  if (!closed_) source_ = std::move(next);
}

void ConnectionExchange::ask_for_piece() {
  if (!source_ || std::exchange(piece_asked_, true)) return;
  auto job = [self = shared_from_this(), next = source_] {
    const auto piece = std::make_shared<std::string>();
    try {
      const bool more = next(*piece);
      self->post([self, piece, more] { self->take_piece(*piece, more); });
    } catch (const std::exception& error) {
      self->post([self, what = std::string(error.what())] { self->fail(what); });
    }
  };
  context_->workers.post(WorkQueue::Size::kLarge, owner_, std::move(job));
}

void ConnectionExchange::take_piece(const std::string& piece, bool more) {
  piece_asked_ = false;
  write(piece);
  if (more) return;
  source_ = nullptr;
  end_stream();
}

void ConnectionExchange::guarded(const std::function<void()>& task) {
  if (context_->stopped) return;
  try {
    task();
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

// What the exception says stays in the log: it is ours, not the client's.
void ConnectionExchange::fail(const std::string& message) {
  spdlog::error("{} {} failed: {}", request_.head.method, request_.head.path, message);
  if (!answered()) {
    respond(context_->handler.error_for(request_.head, 500, "Internal server error"));
  } else if (!ended_) {
    close();
  }
}

std::string ConnectionExchange::take_output() { return std::exchange(output_, {}); }

void ConnectionExchange::sent(size_t bytes) {
  unsent_ -= bytes;
  account_->remove(Held::kAnswers, bytes);
}

asio::awaitable<void> ConnectionExchange::wait_for_output() {
  // The timer never expires; append() and close() cancel the wait. Nothing can come between the
  // check and the wait: both are on the strand.
  if (has_output() || ended_ || closed_) co_return;
  ask_for_piece();
#ifndef __clang_analyzer__  // it takes Asio's own pointer to a coroutine's context for undefined
  co_await wakeup_.async_wait(asio::as_tuple(asio::use_awaitable));
#endif
}

void ConnectionExchange::close() {
  if (closed_) return;
  const bool unfinished = !ended_;
  closed_ = true;
  budget_.cancelled = true;
  source_ = nullptr;
  wakeup_.cancel();
  const auto begin = std::exchange(begin_, nullptr);
  const auto callback = std::exchange(on_close_, nullptr);
  if (callback && unfinished) guarded(callback);
}

bool ConnectionExchange::client_ended_sending() {
  half_closed_ = true;
  begin_now();
  if (!answered() && !request_.head.http_1_1) return false;
  ping();
  return true;
}

bool ConnectionExchange::client_sent_too_far_ahead() {
  if (ping_interval_.count() > 0) ping_interval_ = std::min(ping_interval_, kShortPingInterval);
  return client_ended_sending();
}

// Bytes without a meaning: a comment in an event stream, an interim response before any answer
// (which a client of HTTP/1.1 must be able to skip; RFC 9110, section 15.2).
void ConnectionExchange::ping() {
  if (ended_ || closed_ || unsent_ > 0) return;
  if (begin_) {
    begin_now();
  } else if (is_event_stream_) {
    write(": ping\n\n");
  } else if (half_closed_ && !answered()) {
    append("HTTP/1.1 100 Continue\r\n\r\n");
  }
}

void ConnectionExchange::ping_if_silent(TimePoint now) {
  if (ping_interval_.count() > 0 && now - last_write_ >= ping_interval_) ping();
}

}  // namespace quire::server::http
