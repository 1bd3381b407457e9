#pragma once
#include <algorithm>
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <mutex>

#include "base/clock.h"
#include "server/http/exchange.h"
#include "server/http/options.h"
#include "server/http/turns.h"
#include "server/http/work_queue.h"

namespace quire::server::http {

// What all connections of a server share. Exchanges own it too: the last one may be dropped by
// another thread after the server is gone, and its timer needs the io_context.
struct ConnectionContext {
  ConnectionContext(const HttpOptions& options, HttpHandler& handler)
      : options(options),
        handler(handler),
        ledger(std::make_shared<Ledger>(options.max_buffered_bytes, options.max_connections)),
        turns(2 * static_cast<size_t>(std::max(1, options.io_threads))),
        workers(options.worker_threads, {options.max_waiting_jobs, options.max_job_wait}),
        tls_(options.tls) {}

  // What a new connection speaks; null: no TLS. Thread-safe.
  TlsContext tls() const {
    const std::scoped_lock lock(tls_mutex_);
    return tls_;
  }
  void replace_tls(TlsContext tls) {
    const std::scoped_lock lock(tls_mutex_);
    tls_ = std::move(tls);
  }

  const HttpOptions options;
  HttpHandler& handler;  // used only while the server runs
  boost::asio::io_context io;
  const std::shared_ptr<Ledger> ledger;
  Turns turns;  // two for each thread, so that it always has one to go on with
  WorkQueue workers;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopped{false};  // posted tasks are dropped
  std::atomic<int64_t> active_exchanges{0};
  std::atomic<int> lingering{0};  // connections that are about to be closed

 private:
  mutable std::mutex tls_mutex_;
  TlsContext tls_;
};

// The Exchange of a real connection: collects output for the connection's writer.
class ConnectionExchange final : public Exchange,
                                 public std::enable_shared_from_this<ConnectionExchange> {
 public:
  ConnectionExchange(boost::asio::any_io_executor strand,
                     std::shared_ptr<ConnectionContext> context, std::shared_ptr<Account> account,
                     Request request);
  ~ConnectionExchange() override;

  const Request& request() const override { return request_; }
  Body take_body() override;
  const std::shared_ptr<Account>& account() const override { return account_; }
  WorkBudget& budget() override { return budget_; }
  void set_request_id(std::string id) override { request_.head.id = std::move(id); }
  void set_note(std::string note) override { note_ = std::move(note); }
  void respond(Response response) override;
  void respond_in_pieces(Response head, PieceSource next) override;
  void begin_stream(Response head) override;
  void begin_stream_later(std::function<void()> begin) override;
  void write(std::string_view data) override;
  void end_stream() override;
  bool answered() const override { return status_ != 0; }
  void on_close(std::function<void()> callback) override;
  void post(std::function<void()> task) override;
  void run_in_background(std::function<void()> task) override;
  void run_beside_large(std::function<void()> task) override;
  void run_beside_grammars(std::function<void()> task) override;

  // For the connection, on the strand.
  void set_body_charge(Charge charge) { body_charge_ = std::move(charge); }
  bool has_output() const { return !output_.empty(); }
  std::string take_output();
  void sent(size_t bytes);
  bool all_sent() const { return unsent_ == 0; }
  bool ended() const { return ended_; }
  bool closed() const { return closed_; }
  bool given_up() const { return given_up_; }
  // Asks for the next piece of a large answer, if this is one.
  boost::asio::awaitable<void> wait_for_output();
  void close();  // the client is gone
  void ping_if_silent(TimePoint now);
  // The client has ended its sending: it waits for the answer, or it has gone. Only bytes that it
  // need not expect tell these apart, since a client that has gone answers them with a reset.
  // False: no such bytes exist here (HTTP/1.0 before an answer), so that the client counts as gone.
  bool client_ended_sending();
  // The same for a client whose end of sending could not be seen; it is looked for more often.
  bool client_sent_too_far_ahead();
  void fail(const std::string& message);
  int status() const { return status_; }
  const std::string& note() const { return note_; }

 private:
  WorkQueue::Size size() const;
  void run_in(WorkQueue::Size size, std::function<void()> task);
  void append(std::string_view data);
  void begin_now();
  void ping();
  void append_head(Response response, std::optional<size_t> body_bytes);
  void append_chunk(std::string_view data);
  void guarded(const std::function<void()>& task);
  void ask_for_piece();
  void take_piece(const std::string& piece, bool more);
  void release_callbacks();
  void refuse_work();

  std::shared_ptr<ConnectionContext> context_;  // first: destroyed last
  boost::asio::any_io_executor strand_;
  const std::shared_ptr<Account> account_;
  const std::string owner_;
  Request request_;
  Charge body_charge_;
  WorkBudget budget_;
  const bool is_large_;
  boost::asio::steady_timer wakeup_;
  std::string output_;
  size_t unsent_ = 0;  // output_ and what the connection has taken and not sent
  int status_ = 0;
  bool streaming_ = false, is_event_stream_ = false;
  bool ended_ = false, closed_ = false;
  bool given_up_ = false;     // too much is unread: closed_ follows
  bool half_closed_ = false;  // the client sends no more, for all we know
  std::chrono::milliseconds ping_interval_;
  TimePoint last_write_;
  std::string note_;
  std::function<void()> on_close_;
  std::function<void()> begin_;  // of a stream that has not begun
  PieceSource source_;           // of the rest of a large answer
  bool piece_asked_ = false;     // a worker makes one
};

}  // namespace quire::server::http
