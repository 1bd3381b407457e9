#pragma once
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/clock.h"
#include "server/http/exchange.h"
#include "server/http/options.h"

namespace quire::server::http {

// What all connections of a server share. Exchanges own it too: the last one may be dropped by
// another thread after the server is gone, and its timer needs the io_context.
struct ConnectionContext {
  ConnectionContext(const HttpOptions& options, HttpHandler& handler)
      : options(options), handler(handler), workers(static_cast<size_t>(options.worker_threads)) {}

  const HttpOptions options;
  HttpHandler& handler;  // used only while the server runs
  boost::asio::io_context io;
  boost::asio::thread_pool workers;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopped{false};       // posted tasks are dropped
  std::atomic<size_t> buffered_bytes{0};  // received bodies and unsent output
  std::atomic<int64_t> active_exchanges{0};
};

// The Exchange of a real connection: collects output for the connection's writer.
class ConnectionExchange final : public Exchange,
                                 public std::enable_shared_from_this<ConnectionExchange> {
 public:
  ConnectionExchange(boost::asio::any_io_executor strand,
                     std::shared_ptr<ConnectionContext> context, Request request);
  ~ConnectionExchange() override;

  const Request& request() const override { return request_; }
  std::string take_body() override;
  void respond(Response response) override;
  void begin_stream(Response head) override;
  void write(std::string_view data) override;
  void end_stream() override;
  bool answered() const override { return status_ != 0; }
  void on_close(std::function<void()> callback) override;
  void post(std::function<void()> task) override;
  void run_in_background(std::function<void()> task) override;

  // For the connection, on the strand.
  bool has_output() const { return !output_.empty(); }
  std::string take_output();
  void sent(size_t bytes);
  bool all_sent() const { return unsent_ == 0; }
  bool ended() const { return ended_; }
  bool closed() const { return closed_; }
  boost::asio::awaitable<void> wait_for_output();
  void close();  // the client is gone
  void ping_if_silent(TimePoint now);
  void fail(const std::string& message);
  int status() const { return status_; }

 private:
  void append(std::string_view data);
  void append_chunk(std::string_view data);
  void guarded(const std::function<void()>& task);

  void release_callback();

  std::shared_ptr<ConnectionContext> context_;  // first: destroyed last
  boost::asio::any_io_executor strand_;
  Request request_;
  size_t body_bytes_;  // counted in buffered_bytes
  boost::asio::steady_timer wakeup_;
  std::string output_;
  size_t unsent_ = 0;  // output_ and what the connection has taken and not sent
  int status_ = 0;
  bool streaming_ = false, is_event_stream_ = false;
  bool ended_ = false, closed_ = false;
  bool given_up_ = false;  // too much is unread: closed_ follows
  TimePoint last_write_;
  std::function<void()> on_close_;
};

}  // namespace quire::server::http
