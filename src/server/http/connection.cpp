#include "server/http/connection.h"

#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace quire::server::http {

namespace asio = boost::asio;
using asio::awaitable;
using namespace asio::experimental::awaitable_operators;

namespace {

constexpr auto kReturnError = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadSize = 16u << 10;
// How far a client may send ahead while an answer is being made.
constexpr size_t kMaxReadAhead = 64u << 10;
// After a refusal, how long and how much of the rest of the request is read and dropped. Closing a
// socket with unread bytes would destroy the refusal before the client has read it.
constexpr auto kLingerTime = std::chrono::milliseconds(2000);
constexpr size_t kLingerBytes = 64u << 20;

std::string peer_of(const Connection::Socket& socket) {
  boost::system::error_code code;
  const auto endpoint = socket.remote_endpoint(code);
  return code ? "?" : endpoint.address().to_string() + ":" + std::to_string(endpoint.port());
}

}  // namespace

Connection::Connection(Socket socket, std::shared_ptr<ConnectionContext> context)
    : context_(std::move(context)), socket_(std::move(socket)), peer_(peer_of(socket_)) {}

awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  for (Next next = Next::kServe; next == Next::kServe;) {
    RequestParser parser({context_->options.max_header_bytes, context_->options.max_body_bytes});
    next = co_await read_request(parser);
    if (next == Next::kServe) next = co_await serve(parser);
    if (next == Next::kCloseGently) co_await close_gently();
  }
  closed_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void Connection::set_deadline(std::chrono::milliseconds timeout) {
  deadline_ = Clock::now() + timeout;
}

void Connection::check(TimePoint now, bool look_closer) {
  const bool late = now >= deadline_.load();
  if (!late && !look_closer) return;
  asio::post(socket_.get_executor(), [self = shared_from_this(), now, late] {
    if (self->exchange_) self->exchange_->ping_if_silent(now);
    const bool cut = self->exchange_ && self->exchange_->closed();
    // Looked at again: the bytes may have come in between.
    if (!cut && (!late || now < self->deadline_.load())) return;
    self->timed_out_ = true;
    self->clear_deadline();
    boost::system::error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::close_if_idle() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    boost::system::error_code ignored;
    if (self->idle_) self->socket_.cancel(ignored);
  });
}

void Connection::abort() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    boost::system::error_code ignored;
    self->socket_.close(ignored);
  });
}

// Reads once into the buffer. False: the client is gone, or the time is up (timed_out_).
awaitable<bool> Connection::read_more() {
  const auto space = buffer_.prepare(kReadSize);
  const auto [code, n] = co_await socket_.async_read_some(space, kReturnError);
  buffer_.commit(n);
  co_return !code && !timed_out_;
}

void Connection::use_buffer(RequestParser& parser) {
  const auto data = buffer_.data();
  const std::string_view bytes(static_cast<const char*>(data.data()), data.size());
  buffer_.consume(parser.put(bytes));
}

void Connection::refuse(int status, const std::string& message) {
  refusal_ = context_->handler.error_response(status, message);
}

// Reads until there is a whole request, or a reason to refuse it (refusal_).
awaitable<Connection::Next> Connection::read_request(RequestParser& parser) {
  const HttpOptions& options = context_->options;
  idle_ = true;
  for (bool head_accepted = false; !refusal_;) {
    use_buffer(parser);
    if (parser.has_head() && !parser.error() && !head_accepted) {
      if (!co_await judge(parser)) co_return Next::kClose;
      head_accepted = true;
      set_deadline(options.body_timeout);
      if (refusal_) break;
      use_buffer(parser);
    }
    if (parser.error()) refuse(parser.error()->status, parser.error()->message);
    if (parser.error() || parser.done()) break;

    const bool was_idle = std::exchange(idle_, !parser.started() && buffer_.size() == 0);
    // A new client still learns that the server is going away.
    if (idle_ && !first_ && context_->draining) co_return Next::kClose;
    // The head's clock runs from its first byte and is not restarted by later ones.
    if (idle_ || (was_idle && !head_accepted))
      set_deadline(idle_ ? options.idle_timeout : options.header_timeout);
    if (!co_await read_more()) {
      if (!timed_out_ || idle_) co_return Next::kClose;
      refuse(408, "The request took too long to arrive");
    } else if (context_->buffered_bytes + parser.body_bytes() > options.max_buffered_bytes) {
      refuse(503, "The server holds too many bytes of other requests");
    }
  }
  idle_ = timed_out_ = false;
  clear_deadline();
  co_return Next::kServe;
}

// Decides by the head whether the body will be read; sets refusal_ if not. False: the client is
// gone.
awaitable<bool> Connection::judge(const RequestParser& parser) {
  const RequestHead& head = parser.head();
  refusal_ = context_->handler.check(head);
  const std::string_view expect = head.header("expect");
  if (refusal_ || expect.empty() || parser.done()) co_return true;
  if (expect != "100-continue") {
    refuse(417, "Unknown expectation");
    co_return true;
  }
  co_return co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
}

Request Connection::take_request(RequestParser& parser) {
  Request request;
  if (parser.done()) {
    request = parser.take();
  } else if (parser.has_head()) {
    request.head = parser.head();
  } else {
    request.head.method = request.head.path = "?";
  }
  // The rest of a request that was not read cannot be told from the next one.
  request.head.keep_alive &= parser.done() && !context_->draining;
  request.peer = peer_;
  return request;
}

awaitable<Connection::Next> Connection::serve(RequestParser& parser) {
  const TimePoint start = Clock::now();
  const bool read_whole = parser.done();
  const auto exchange =
      std::make_shared<ConnectionExchange>(socket_.get_executor(), context_, take_request(parser));
  exchange_ = exchange;
  try {
    if (refusal_) {
      exchange->respond(*std::exchange(refusal_, std::nullopt));
    } else {
      context_->handler.handle(exchange);
    }
  } catch (const std::exception& error) {
    exchange->fail(error.what());
  }
  co_await (write_answer() || watch_client());
  const bool complete = exchange->ended() && exchange->all_sent();
  finish_exchange(start, complete);
  first_ = false;
  if (!complete || timed_out_) co_return Next::kClose;
  if (!read_whole) co_return Next::kCloseGently;
  co_return exchange->request().head.keep_alive && !context_->draining ? Next::kServe
                                                                       : Next::kClose;
}

void Connection::finish_exchange(TimePoint start, bool complete) {
  const auto exchange = std::exchange(exchange_, nullptr);
  exchange->close();
  clear_deadline();
  HttpHandler::Outcome outcome;
  outcome.status = exchange->status();
  outcome.seconds = seconds_since(start);
  outcome.complete = complete;
  context_->handler.finished(exchange->request(), outcome);
}

awaitable<void> Connection::write_answer() {
  const auto exchange = exchange_;
  while (!exchange->closed()) {
    if (exchange->has_output()) {
      if (!co_await write_all(exchange->take_output())) co_return;
    } else if (exchange->ended()) {
      co_return;
    } else {
      co_await exchange->wait_for_output();
    }
  }
}

// Returns when the client has gone. What it sends ahead stays in the buffer for later.
awaitable<void> Connection::watch_client() {
  while (buffer_.size() < kMaxReadAhead) {
    const auto space = buffer_.prepare(kReadSize);
    const auto [code, n] = co_await socket_.async_read_some(space, kReturnError);
    buffer_.commit(n);
    if (code) co_return;
  }
  co_await socket_.async_wait(asio::socket_base::wait_error, kReturnError);
}

awaitable<bool> Connection::write_all(std::string data) {
  const auto exchange = exchange_;
  for (size_t done = 0; done < data.size();) {
    set_deadline(context_->options.write_timeout);
    const auto rest = asio::buffer(data.data() + done, data.size() - done);
    const auto [code, n] = co_await socket_.async_write_some(rest, kReturnError);
    if (exchange) exchange->sent(n);
    done += n;
    if (code || timed_out_) co_return false;
  }
  clear_deadline();
  co_return true;
}

awaitable<void> Connection::close_gently() {
  boost::system::error_code ignored;
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  set_deadline(kLingerTime);
  for (size_t dropped = 0; dropped < kLingerBytes;) {
    buffer_.clear();
    if (!co_await read_more()) break;
    dropped += buffer_.size();
  }
}

}  // namespace quire::server::http
