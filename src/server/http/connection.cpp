#include "server/http/connection.h"

#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <tuple>

#include "server/http/request_id.h"

namespace quire::server::http {

namespace asio = boost::asio;
using asio::awaitable;
using namespace asio::experimental::awaitable_operators;

namespace {

constexpr auto kReturnError = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadSize = 16u << 10;
// How far a client may send ahead while an answer is being made.
constexpr size_t kMaxReadAhead = 64u << 10;
// A client takes that much, or all there is, in the time that a write may take.
constexpr size_t kPace = 64u << 10;
// After a refusal, how long and how much of the rest of the request is read and dropped. Closing a
// socket with unread bytes would destroy the refusal before the client has read it.
constexpr auto kLingerTime = std::chrono::milliseconds(2000);
constexpr size_t kLingerBytes = 64u << 20;
// So many connections at a time are read then; more would keep the threads from everybody else.
constexpr int kMaxReadWhileLingering = 4;

}  // namespace

Connection::Connection(Socket socket, std::shared_ptr<ConnectionContext> context)
    : context_(std::move(context)),
      stream_(std::move(socket)),
      peer_(stream_.peer_name()),
      client_(stream_.client_name()),
      account_(std::make_shared<Account>(context_->ledger, client_)),
      waits_since_(Clock::now()),
      turn_comes_(strand(), TimePoint::max()) {
  boost::system::error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.socket().non_blocking(true, ignored);
}

Connection::~Connection() { end_turn(); }

awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  const TlsContext tls = context_->tls();
  const bool agreed = tls == nullptr || co_await agree_on_tls(tls);
  for (Next next = agreed ? Next::kServe : Next::kClose; next == Next::kServe;) {
    {
      RequestParser parser({context_->options.max_header_bytes, context_->options.max_body_bytes});
      next = co_await read_request(parser);
      if (next == Next::kServe) next = co_await serve(parser);
    }  // what was read of a refused body goes here
    end_turn();
    if (next == Next::kCloseGently) co_await close_gently();
  }
  end_turn();
  if (whole_) stream_.say_goodbye();
  stream_.close();
}

void Connection::set_deadline(std::chrono::milliseconds timeout) {
  deadline_ = Clock::now() + timeout;
}

void Connection::check(TimePoint now, bool look_closer) {
  const bool late = now >= deadline_.load();
  if (!late && !look_closer) return;
  asio::post(strand(), [self = shared_from_this(), now, late] {
    if (self->exchange_) self->exchange_->ping_if_silent(now);
    const bool cut = self->exchange_ && self->exchange_->closed();
    // Looked at again: the bytes may have come in between.
    if (!cut && (!late || now < self->deadline_.load())) return;
    self->timed_out_ = true;
    self->clear_deadline();
    self->stream_.cancel();
  });
}

void Connection::close_if_idle(Unused unused) {
  asio::post(strand(), [self = shared_from_this(), unused] {
    if (!self->idle_ || (self->first_ && unused == Unused::kStays)) return;
    boost::system::error_code failed;
    if (self->stream_.socket().available(failed) > 0 && !failed) return;  // a request has come
    self->stream_.cancel();
  });
}

std::optional<Clock::duration> Connection::waits(TimePoint now) const {
  const TimePoint since = waits_since_;
  if (since == TimePoint::max()) return std::nullopt;
  return now - since;
}

void Connection::make_room() {
  gives_room_ = true;
  abort();
}

void Connection::abort() {
  asio::post(strand(), [self = shared_from_this()] { self->stream_.close(); });
}

// False: the client is gone, took too long, or speaks another TLS. One that speaks no TLS gets a
// readable answer. The work of a handshake takes turns like that of requests.
awaitable<bool> Connection::agree_on_tls(const TlsContext& tls) {
  set_deadline(context_->options.header_timeout);
  const auto [gone, is_tls] = co_await stream_.begins_with_tls();
  if (gone || timed_out_) co_return false;
  idle_ = false;
  if (!is_tls) {
    refusal_ = context_->handler.error_response(400, "This port speaks TLS: its URLs are https://");
    co_return true;
  }
  stream_.start_tls(tls);
  for (;;) {
    co_await take_turn();
    const auto error = stream_.handshake();
    end_turn();
    if (!error) co_return true;
    if (error != asio::error::would_block) {
      if (error != asio::error::eof) spdlog::info("{} TLS: {}", peer_, stream_.failure());
      co_return false;
    }
    const auto [cut] = co_await stream_.wait_for_handshake();
    if (cut || timed_out_) co_return false;
  }
}

// Reads once into the buffer. False: the client is gone, or the time is up (timed_out_).
awaitable<bool> Connection::read_more() {
  end_turn();
  if (client_ended_) co_return false;  // nothing would wake a second read
  const auto space = buffer_.prepare(kReadSize);
  for (;;) {
    const auto [code, n] = co_await stream_.read_some(space);
    buffer_.commit(n);
    if (timed_out_ || code != asio::error::would_block) co_return !code && !timed_out_;
    // A part of a record is the beginning of a request, too.
    if (std::exchange(idle_, false)) set_deadline(context_->options.header_timeout);
  }
}

// The client's clock stands still while it waits for others.
awaitable<void> Connection::take_turn() {
  if (turn_ != Turn::kNone) co_return;
  // The connection may be gone when its turn comes, or whatever it was for.
  const uint64_t number = ++turn_number_;
  auto grant = [strand = strand(), context = context_, connection = weak_from_this(), number] {
    asio::post(strand, [context, connection, number] {
      const auto self = connection.lock();
      if (!self || self->turn_ != Turn::kWaits || self->turn_number_ != number)
        return context->turns.give_back();
      self->turn_ = Turn::kHas;
      self->turn_comes_.cancel();
    });
  };
  turn_ = Turn::kWaits;
  if (context_->turns.take(client_, std::move(grant))) {
    turn_ = Turn::kHas;
    co_return;
  }
  const TimePoint deadline = deadline_, start = Clock::now();
  clear_deadline();
  while (turn_ == Turn::kWaits) co_await turn_comes_.async_wait(kReturnError);
  if (deadline != TimePoint::max()) deadline_ = deadline + (Clock::now() - start);
}

void Connection::end_turn() {
  if (std::exchange(turn_, Turn::kNone) == Turn::kHas) context_->turns.give_back();
}

void Connection::use_buffer(RequestParser& parser) {
  const auto data = buffer_.data();
  const std::string_view bytes(static_cast<const char*>(data.data()), data.size());
  buffer_.consume(parser.put(bytes));
}

void Connection::refuse(const RequestParser& parser, int status, const std::string& message) {
  HttpHandler& handler = context_->handler;
  refusal_ = parser.has_head() ? handler.error_for(parser.head(), status, message)
                               : handler.error_response(status, message);
}

// What has come of the body is held by the ledger, or the request is refused.
void Connection::charge_body(const RequestParser& parser) {
  const size_t more = parser.held_bytes() - std::min(parser.held_bytes(), body_charge_.bytes());
  if (!body_charge_.try_add(more))
    refuse(parser, 503, "The server holds too many bytes of this and other requests");
}

// Reads until there is a whole request, or a reason to refuse it (refusal_).
awaitable<Connection::Next> Connection::read_request(RequestParser& parser) {
  const HttpOptions& options = context_->options;
  idle_ = true;
  body_charge_ = Charge(account_, Held::kBodies);
  for (bool head_accepted = false; !refusal_;) {
    if (buffer_.size() > 0) co_await take_turn();
    if (!stream_.socket().is_open()) co_return Next::kClose;  // meanwhile
    use_buffer(parser);
    if (parser.has_head() && !parser.error() && !head_accepted) {
      if (!co_await judge(parser)) co_return Next::kClose;
      head_accepted = true;
      set_deadline(options.body_timeout);
      if (refusal_) break;
      use_buffer(parser);
    }
    charge_body(parser);
    if (refusal_) break;
    if (parser.error()) refuse(parser, parser.error()->status, parser.error()->message);
    if (parser.error() || parser.done()) break;

    const bool was_idle = std::exchange(idle_, !parser.started() && buffer_.size() == 0);
    // A new client still learns that the server is going away.
    if (idle_ && !first_ && context_->draining) co_return Next::kClose;
    // The head's clock runs from its first byte and is not restarted by later ones.
    if (idle_ || (was_idle && !head_accepted))
      set_deadline(idle_ ? options.idle_timeout : options.header_timeout);
    if (!co_await read_more()) {
      if (!timed_out_ || idle_) co_return Next::kClose;
      refuse(parser, 408, "The request took too long to arrive");
    }
  }
  waits_since_ = TimePoint::max();
  idle_ = timed_out_ = false;
  clear_deadline();
  co_return Next::kServe;
}

// Decides by the head whether the body will be read, and for whom; sets refusal_ if not. False: the
// client is gone.
awaitable<bool> Connection::judge(const RequestParser& parser) {
  const RequestHead& head = parser.head();
  refusal_ = context_->handler.check(head);
  // Behind a proxy all clients have one address.
  const std::string owner = refusal_ ? std::string() : context_->handler.owner(head);
  account_->set_owner(owner.empty() ? client_ : owner);
  if (!refusal_ && !account_->would_fit(head.content_length.value_or(0)))
    refuse(parser, 503, "The server holds too many bytes of this and other requests");
  const std::string_view expect = head.header("expect");
  // An expectation of an HTTP/1.0 client is ignored (RFC 9110, section 10.1.1).
  if (refusal_ || expect.empty() || parser.done() || !head.http_1_1) co_return true;
  if (lower_case(expect) != "100-continue") {
    refuse(parser, 417, "Unknown expectation");
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
    request.head.id = choose_request_id(request.head);
  }
  // The rest of a request that was not read cannot be told from the next one.
  request.head.keep_alive &= parser.done() && !context_->draining;
  request.peer = peer_;
  request.client = client_;
  return request;
}

awaitable<Connection::Next> Connection::serve(RequestParser& parser) {
  const TimePoint start = Clock::now();
  const bool read_whole = parser.done();
  const auto exchange =
      std::make_shared<ConnectionExchange>(strand(), context_, account_, take_request(parser));
  exchange->set_body_charge(std::move(body_charge_));
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
  end_turn();
  const bool complete = exchange->ended() && exchange->all_sent();
  finish_exchange(start, complete);
  waits_since_ = Clock::now();
  first_ = false;
  whole_ = complete && !timed_out_;
  if (!whole_) co_return Next::kClose;
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
  outcome.given_up = exchange->given_up();
  outcome.note = exchange->note();
  context_->handler.finished(exchange->request(), outcome);
}

// What a worker's answer still takes here needs a turn like its request: however many connections a
// client has answered at once, others are not behind them. The later parts of a stream need none.
awaitable<void> Connection::write_answer() {
  const auto exchange = exchange_;
  bool has_begun = false;
  while (!exchange->closed()) {
    if (exchange->has_output()) {
      if (!co_await write_all(exchange->take_output())) co_return;
    } else if (exchange->ended()) {
      co_return;
    } else {
      end_turn();
      co_await exchange->wait_for_output();
      if (!std::exchange(has_begun, true)) co_await take_turn();
    }
  }
}

// Returns when the client has gone. What it sends ahead stays in the buffer for later, within what
// the ledger has room for. A client that has only ended its sending is still there.
awaitable<void> Connection::watch_client() {
  Charge ahead(account_, Held::kBodies);
  if (buffer_.size() == 0) buffer_.shrink_to_fit();  // a large request may have made it large
  bool has_room = ahead.try_add(buffer_.size());
  while (!client_ended_ && has_room && buffer_.size() < kMaxReadAhead) {
    const auto space = buffer_.prepare(kReadSize);
    const auto [code, n] = co_await stream_.read_some(space);
    if (code == asio::error::would_block) continue;
    buffer_.commit(n);
    client_ended_ = code == asio::error::eof;
    if (code && !client_ended_) co_return;
    has_room = ahead.try_add(n);
  }
  // The end of its sending would not be seen behind what is left in the socket.
  const bool is_there =
      client_ended_ ? exchange_->client_ended_sending() : exchange_->client_sent_too_far_ahead();
  if (is_there) co_await stream_.socket().async_wait(asio::socket_base::wait_error, kReturnError);
}

awaitable<bool> Connection::write_all(std::string data) {
  const auto exchange = exchange_;
  set_deadline(context_->options.write_timeout);
  for (size_t done = 0, in_time = 0; done < data.size();) {
    const auto rest = asio::buffer(data.data() + done, data.size() - done);
    boost::system::error_code code;
    size_t n = stream_.write_some(rest, code);
    if (code == asio::error::would_block) {
      end_turn();
      std::tie(code, n) = co_await stream_.async_write_some(rest);
    }
    if (exchange) exchange->sent(n);
    done += n;
    in_time += n;
    if (code || timed_out_) co_return false;
    if (in_time < kPace) continue;
    set_deadline(context_->options.write_timeout);
    in_time = 0;
  }
  clear_deadline();
  co_return true;
}

awaitable<void> Connection::close_gently() {
  stream_.end_sending();
  set_deadline(kLingerTime);
  if (context_->lingering.fetch_add(1) < kMaxReadWhileLingering) {
    for (size_t dropped = 0; dropped < kLingerBytes;) {
      buffer_.clear();
      if (!co_await read_more()) break;
      dropped += buffer_.size();
    }
  } else {
    co_await stream_.socket().async_wait(asio::socket_base::wait_error, kReturnError);
  }
  context_->lingering.fetch_sub(1);
}

}  // namespace quire::server::http
