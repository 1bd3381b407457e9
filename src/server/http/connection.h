#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "server/http/client_stream.h"
#include "server/http/connection_exchange.h"
#include "server/http/request_parser.h"

namespace quire::server::http {

// One client's socket: reads a request, has it handled, writes the answer, and again. Requests
// that a client sends ahead wait in the buffer, in order. Whatever has come waits for a turn before
// it is looked at. Everything runs on one strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Strand = ClientStream::Strand;
  using Socket = ClientStream::Socket;

  Connection(Socket socket, std::shared_ptr<ConnectionContext> context);
  ~Connection();
  boost::asio::awaitable<void> run();

  // Any thread.
  // Ends what has taken too long. With `look_closer` also sends pings and closes connections whose
  // exchange was given up; that costs a task on the strand.
  void check(TimePoint now, bool look_closer);
  // Unless a request has come. A connection that has not been used yet stays if it shall: its
  // client has just come, and its first request is answered.
  enum class Unused { kStays, kGoes };
  void close_if_idle(Unused unused);
  void abort();  // closes
  // See client_of().
  const std::string& client() const { return client_; }
  Strand strand() { return stream_.socket().get_executor(); }
  // How long the server has waited for a request, or for the rest of one; nothing while it works
  // on an answer.
  std::optional<Clock::duration> waits(TimePoint now) const;
  // Closes it, to make room for others.
  void make_room();
  bool gives_room() const { return gives_room_; }

 private:
  enum class Next { kClose, kCloseGently, kServe };

  boost::asio::awaitable<bool> agree_on_tls(const TlsContext& tls);
  boost::asio::awaitable<Next> read_request(RequestParser& parser);
  boost::asio::awaitable<bool> read_more();
  boost::asio::awaitable<void> take_turn();
  void end_turn();
  boost::asio::awaitable<bool> judge(const RequestParser& parser);
  boost::asio::awaitable<Next> serve(RequestParser& parser);
  boost::asio::awaitable<void> write_answer();
  boost::asio::awaitable<void> watch_client();
  boost::asio::awaitable<bool> write_all(std::string data);
  boost::asio::awaitable<void> close_gently();

  void set_deadline(std::chrono::milliseconds timeout);
  void clear_deadline() { deadline_ = TimePoint::max(); }
  void charge_body(const RequestParser& parser);
  void use_buffer(RequestParser& parser);
  void refuse(const RequestParser& parser, int status, const std::string& message);
  Request take_request(RequestParser& parser);
  void finish_exchange(TimePoint start, bool complete);

  std::shared_ptr<ConnectionContext> context_;
  ClientStream stream_;
  boost::beast::flat_buffer buffer_;
  const std::string peer_, client_;
  const std::shared_ptr<Account> account_;
  Charge body_charge_;                            // for what has come of a body
  std::shared_ptr<ConnectionExchange> exchange_;  // of the request in progress
  std::optional<Response> refusal_;               // answers a request that was not read to its end
  std::atomic<TimePoint> deadline_{TimePoint::max()};
  // When the request before was answered; max() while there is one to answer.
  std::atomic<TimePoint> waits_since_;
  std::atomic<bool> gives_room_{false};
  // While it has one, a request is read, handled, and answered as far as that needs no waiting: who
  // has none is not in line for the threads either. See Turns.
  enum class Turn { kNone, kWaits, kHas } turn_ = Turn::kNone;
  uint64_t turn_number_ = 0;  // of the one that it has or waits for
  boost::asio::steady_timer turn_comes_;
  bool timed_out_ = false;
  bool client_ended_ = false;  // its sending; it may still wait for answers
  bool idle_ = true;           // between requests, without a byte of the next
  bool first_ = true;          // no request has been answered yet
  bool whole_ = true;          // no answer was cut
};

}  // namespace quire::server::http
