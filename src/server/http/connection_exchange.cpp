#include "server/http/connection_exchange.h"

#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>

namespace quire::server::http {

namespace asio = boost::asio;

ConnectionExchange::ConnectionExchange(asio::any_io_executor strand,
                                       std::shared_ptr<ConnectionContext> context, Request request)
    : context_(std::move(context)),
      strand_(std::move(strand)),
      request_(std::move(request)),
      body_bytes_(request_.body.size()),
      wakeup_(strand_, asio::steady_timer::time_point::max()),
      last_write_(Clock::now()) {
  context_->active_exchanges.fetch_add(1);
  context_->buffered_bytes.fetch_add(body_bytes_);
}

ConnectionExchange::~ConnectionExchange() {
  context_->buffered_bytes.fetch_sub(body_bytes_ + unsent_);
  context_->active_exchanges.fetch_sub(1);
}

std::string ConnectionExchange::take_body() {
  context_->buffered_bytes.fetch_sub(std::exchange(body_bytes_, 0));
  return std::exchange(request_.body, {});
}

void ConnectionExchange::append(std::string_view data) {
  output_ += data;
  unsent_ += data.size();
  context_->buffered_bytes.fetch_add(data.size());
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

void ConnectionExchange::respond(Response response) {
  if (closed_ || answered()) return;
  status_ = response.status;
  ended_ = true;
  append(format_head(response, response.body.size(), request_.head.http_1_1,
                     request_.head.keep_alive));
  if (request_.head.method != "HEAD") append(response.body);
  release_callback();
}

void ConnectionExchange::begin_stream(Response head) {
  if (closed_ || answered()) return;
  status_ = head.status;
  streaming_ = true;
  // Without chunks only the end of the connection ends the stream.
  if (!request_.head.http_1_1) request_.head.keep_alive = false;
  is_event_stream_ = head.content_type.starts_with("text/event-stream");
  append(format_head(head, std::nullopt, request_.head.http_1_1, request_.head.keep_alive));
}

void ConnectionExchange::write(std::string_view data) {
  // An empty chunk would end the stream.
  if (closed_ || given_up_ || ended_ || !streaming_ || data.empty()) return;
  append_chunk(data);
  if (unsent_ <= context_->options.max_unsent_bytes &&
      context_->buffered_bytes.load() <= context_->options.max_buffered_bytes) {
    return;
  }
  spdlog::warn("{} leaves {} bytes unread: closing the connection", request_.peer, unsent_);
  given_up_ = true;
  // Later, since the caller of write() does not expect its own on_close in the middle of it.
  post([this] { close(); });
}

void ConnectionExchange::end_stream() {
  if (closed_ || given_up_ || ended_ || !streaming_) return;
  if (request_.head.http_1_1) append("0\r\n\r\n");
  ended_ = true;
  wakeup_.cancel();
  release_callback();
}

// The callback may own the object that calls us: it must not die before that call returns.
void ConnectionExchange::release_callback() {
  if (on_close_) post([callback = std::exchange(on_close_, nullptr)] {});
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
  asio::post(context_->workers, [self = shared_from_this(), task = std::move(task)] {
    try {
      task();
    } catch (const std::exception& error) {
      self->post([self, what = std::string(error.what())] { self->fail(what); });
    }
  });
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
    respond(context_->handler.error_response(500, "Internal server error"));
  } else if (!ended_) {
    close();
  }
}

std::string ConnectionExchange::take_output() { return std::exchange(output_, {}); }

void ConnectionExchange::sent(size_t bytes) {
  unsent_ -= bytes;
  context_->buffered_bytes.fetch_sub(bytes);
}

asio::awaitable<void> ConnectionExchange::wait_for_output() {
  // The timer never expires; append() and close() cancel the wait. Nothing can come between the
  // check and the wait: both are on the strand.
  if (has_output() || ended_ || closed_) co_return;
  co_await wakeup_.async_wait(asio::as_tuple(asio::use_awaitable));
}

void ConnectionExchange::close() {
  if (closed_) return;
  const bool unfinished = !ended_;
  closed_ = true;
  wakeup_.cancel();
  const auto callback = std::exchange(on_close_, nullptr);
  if (callback && unfinished) guarded(callback);
}

void ConnectionExchange::ping_if_silent(TimePoint now) {
  const auto interval = context_->options.ping_interval;
  if (!is_event_stream_ || ended_ || closed_ || interval.count() == 0) return;
  if (now - last_write_ >= interval && unsent_ == 0) write(": ping\n\n");
}

}  // namespace quire::server::http
