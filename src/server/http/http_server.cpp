#include "server/http/http_server.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <future>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "server/http/connection.h"

namespace quire::server::http {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;

namespace {

constexpr auto kReturnError = asio::as_tuple(asio::use_awaitable);
// How late a timeout may fire.
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr int kTicksToLookCloser = 5;
// After accept() failed, mostly for want of file descriptors.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// Every connection needs a file descriptor, and the usual soft limit of 1024 is a historical one.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, HttpHandler& handler)
      : context_(std::make_shared<ConnectionContext>(options, handler)),
        listen_strand_(asio::make_strand(context_->io)),
        acceptor_(listen_strand_) {}

  uint16_t start();
  void drain();
  void stop(std::chrono::milliseconds timeout);
  size_t num_connections() const;
  size_t buffered_bytes() const { return context_->buffered_bytes; }

 private:
  using ConnectionPtr = std::shared_ptr<Connection>;

  void bind();
  void close_acceptor();
  awaitable<void> accept_loop();
  awaitable<void> tick_loop();
  void adopt(Connection::Socket socket);
  std::vector<ConnectionPtr> connections() const;
  bool wait_until_none(TimePoint until) const;

  std::shared_ptr<ConnectionContext> context_;
  asio::strand<asio::io_context::executor_type> listen_strand_;
  tcp::acceptor acceptor_;
  std::vector<std::thread> threads_;
  mutable std::mutex mutex_;
  std::vector<ConnectionPtr> connections_;
  bool started_ = false;
};

void HttpServer::Impl::bind() {
  const HttpOptions& options = context_->options;
  tcp::resolver resolver(context_->io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service);
  const tcp::endpoint endpoint = *found.begin();
  acceptor_.open(endpoint.protocol());
  acceptor_.set_option(tcp::acceptor::reuse_address(true));
  acceptor_.bind(endpoint);
  acceptor_.listen(asio::socket_base::max_listen_connections);
}

uint16_t HttpServer::Impl::start() {
  const HttpOptions& options = context_->options;
  raise_file_limit();
  try {
    bind();
  } catch (const boost::system::system_error& error) {
    throw LoadError("cannot listen on " + options.host + ":" + std::to_string(options.port) + ": " +
                    error.code().message() + "; choose another --host or --port");
  }
  started_ = true;
  asio::co_spawn(listen_strand_, accept_loop(), asio::detached);
  asio::co_spawn(listen_strand_, tick_loop(), asio::detached);
  for (int i = 0; i < std::max(1, options.io_threads); ++i)
    threads_.emplace_back([context = context_.get()] { context->io.run(); });
  return acceptor_.local_endpoint().port();
}

awaitable<void> HttpServer::Impl::accept_loop() {
  asio::steady_timer pause(listen_strand_);
  while (acceptor_.is_open()) {
    Connection::Socket socket(asio::make_strand(context_->io));
    const auto [code] = co_await acceptor_.async_accept(socket, kReturnError);
    if (!acceptor_.is_open()) co_return;
    if (code) {
      spdlog::warn("accepting a connection failed: {}", code.message());
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(kReturnError);
    } else if (num_connections() < context_->options.max_connections) {
      adopt(std::move(socket));
    } else {
      // Closed at once: a client that can connect but gets no answer would wait for nothing.
      spdlog::warn("more than {} connections: one is turned away",
                   context_->options.max_connections);
    }
  }
}

void HttpServer::Impl::adopt(Connection::Socket socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const auto strand = socket.get_executor();
  const auto connection = std::make_shared<Connection>(std::move(socket), context_);
  {
    const std::scoped_lock lock(mutex_);
    connections_.push_back(connection);
  }
  asio::co_spawn(strand, connection->run(), [this, connection](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::exception& e) {
      spdlog::error("a connection failed: {}", e.what());
    }
    const std::scoped_lock lock(mutex_);
    std::erase(connections_, connection);
  });
}

awaitable<void> HttpServer::Impl::tick_loop() {
  asio::steady_timer timer(listen_strand_);
  for (int tick = 0;; ++tick) {  // until the io_context stops
    timer.expires_after(kTick);
    co_await timer.async_wait(kReturnError);
    const TimePoint now = Clock::now();
    const bool look_closer = tick % kTicksToLookCloser == 0;
    for (const auto& connection : connections()) connection->check(now, look_closer);
  }
}

std::vector<HttpServer::Impl::ConnectionPtr> HttpServer::Impl::connections() const {
  const std::scoped_lock lock(mutex_);
  return connections_;
}

size_t HttpServer::Impl::num_connections() const {
  const std::scoped_lock lock(mutex_);
  return connections_.size();
}

void HttpServer::Impl::drain() {
  context_->draining = true;
  for (const auto& connection : connections()) connection->close_if_idle();
}

bool HttpServer::Impl::wait_until_none(TimePoint until) const {
  while (num_connections() > 0) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void HttpServer::Impl::close_acceptor() {
  std::promise<void> closed;
  asio::post(listen_strand_, [this, &closed] {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    closed.set_value();
  });
  closed.get_future().wait();
}

void HttpServer::Impl::stop(std::chrono::milliseconds timeout) {
  if (!std::exchange(started_, false)) return;
  close_acceptor();
  drain();
  if (!wait_until_none(Clock::now() + timeout)) {
    for (const auto& connection : connections()) connection->abort();
    // Closed sockets end their coroutines at once; the wait is only for a handler that is busy.
    wait_until_none(Clock::now() + std::chrono::seconds(1));
  }
  context_->workers.join();
  context_->io.stop();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
  // Tasks that are still queued own exchanges, which own the queue: they must go, unrun.
  context_->stopped = true;
  context_->io.restart();
  context_->io.poll();
  const std::scoped_lock lock(mutex_);
  connections_.clear();
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(options, handler)) {}
HttpServer::~HttpServer() { impl_->stop(std::chrono::milliseconds(0)); }
uint16_t HttpServer::start() { return impl_->start(); }
void HttpServer::drain() { impl_->drain(); }
void HttpServer::stop(std::chrono::milliseconds timeout) { impl_->stop(timeout); }
size_t HttpServer::num_connections() const { return impl_->num_connections(); }
size_t HttpServer::buffered_bytes() const { return impl_->buffered_bytes(); }

}  // namespace quire::server::http
