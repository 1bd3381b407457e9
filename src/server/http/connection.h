#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "server/http/connection_exchange.h"
#include "server/http/request_parser.h"

namespace quire::server::http {

// One client's socket: reads a request, has it handled, writes the answer, and again. Requests
// that a client sends ahead wait in the buffer, in order. Everything runs on one strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, Strand>;

  Connection(Socket socket, std::shared_ptr<ConnectionContext> context);
  boost::asio::awaitable<void> run();

  // Any thread.
  // Ends what has taken too long. With `look_closer` also sends pings and closes connections whose
  // exchange was given up; that costs a task on the strand.
  void check(TimePoint now, bool look_closer);
  void close_if_idle();
  void abort();  // closes
  bool is_closed() const { return closed_; }

 private:
  enum class Next { kClose, kCloseGently, kServe };

  boost::asio::awaitable<Next> read_request(RequestParser& parser);
  boost::asio::awaitable<bool> read_more();
  boost::asio::awaitable<bool> judge(const RequestParser& parser);
  boost::asio::awaitable<Next> serve(RequestParser& parser);
  boost::asio::awaitable<void> write_answer();
  boost::asio::awaitable<void> watch_client();
  boost::asio::awaitable<bool> write_all(std::string data);
  boost::asio::awaitable<void> close_gently();

  void set_deadline(std::chrono::milliseconds timeout);
  void clear_deadline() { deadline_ = TimePoint::max(); }
  void use_buffer(RequestParser& parser);
  void refuse(int status, const std::string& message);
  Request take_request(RequestParser& parser);
  void finish_exchange(TimePoint start, bool complete);

  std::shared_ptr<ConnectionContext> context_;
  Socket socket_;
  boost::beast::flat_buffer buffer_;
  std::string peer_;
  std::shared_ptr<ConnectionExchange> exchange_;  // of the request in progress
  std::optional<Response> refusal_;               // answers a request that was not read to its end
  std::atomic<TimePoint> deadline_{TimePoint::max()};
  std::atomic<bool> closed_{false};
  bool timed_out_ = false;
  bool idle_ = true;   // between requests, without a byte of the next
  bool first_ = true;  // no request has been answered yet
};

}  // namespace quire::server::http
