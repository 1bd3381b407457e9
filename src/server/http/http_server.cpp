#include "server/http/http_server.h"

#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/freed_memory.h"
#include "server/http/bind.h"
#include "server/http/connection.h"

namespace quire::server::http {

namespace asio = boost::asio;
using asio::awaitable;

namespace {

constexpr auto kReturnError = asio::as_tuple(asio::use_awaitable);
// How late a timeout may fire.
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr int kTicksToLookCloser = 5;
// Connections that no client with all others gets, of as many as by default.
constexpr size_t kKeptForOthers = 16;
constexpr int kAcceptsAtOnce = 64;
// Files that a server opens beside its connections, once it listens.
constexpr size_t kOtherFiles = 32;
constexpr size_t kFewestConnections = 4;
// After accept() failed, mostly for want of file descriptors.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
// After how many bytes given back by requests, and how often, the allocator is asked to do the
// same.
constexpr size_t kReleasedBytes = 16u << 20;
constexpr auto kMemoryPause = std::chrono::seconds(1);
// The same for small pieces: they are used again, but over hours each arena would keep its largest.
constexpr size_t kAllReleasedBytes = 4u << 20;
constexpr auto kLongMemoryPause = std::chrono::minutes(1);
// The same when there are so many connections fewer than there were: inside TLS each takes up to
// 45 KiB. Not when one comes after the other: what they leave is used again.
constexpr size_t kManyEnded = 256;

// How many files this process may have open, once that is raised as far as it may be: the usual
// soft limit of 1024 is a historical one.
size_t raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return SIZE_MAX;
  rlimit raised = limit;
  raised.rlim_cur = limit.rlim_max;
#ifdef __APPLE__  // which refuses more, though it calls that the limit
  raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, OPEN_MAX);
#endif
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

size_t open_files() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/dev/fd", error);
  return error ? 0 : static_cast<size_t>(std::distance(begin(files), end(files)));
}

// As many as asked for, or as open files leave room for: each is one.
size_t connections_within_file_limit(size_t wanted) {
  const size_t limit = raise_file_limit();
  const size_t taken = open_files() + kOtherFiles;
  if (limit - std::min(limit, taken) >= wanted) return wanted;
  if (limit < taken + kFewestConnections)
    throw LoadError("the limit of open files is " + std::to_string(limit) +
                    " (ulimit -n); a server needs at least " +
                    std::to_string(taken + kFewestConnections));
  spdlog::warn(
      "{} connections at a time at most, not {}: the limit of open files is {} (ulimit -n)",
      limit - taken, wanted, limit);
  return limit - taken;
}

uint16_t port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return 0;
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
  ConnectionContext& context() { return *context_; }

 private:
  using ConnectionPtr = std::shared_ptr<Connection>;

  void listen();
  void close_acceptor();
  awaitable<void> accept_loop();
  awaitable<void> tick_loop();
  void receive(Connection::Socket socket);
  void adopt(const ConnectionPtr& connection);
  bool has_room(const std::string& client);
  static ConnectionPtr choose(const std::vector<ConnectionPtr>& all,
                              const std::function<bool(const Connection&)>& may_be);
  bool many_ended();
  void give_memory_back(TimePoint now);
  std::vector<ConnectionPtr> connections() const;
  bool wait_until_none(TimePoint until) const;

  std::shared_ptr<ConnectionContext> context_;
  asio::strand<asio::io_context::executor_type> listen_strand_;
  // Of TCP, or of a Unix socket.
  asio::basic_socket_acceptor<asio::generic::stream_protocol> acceptor_;
  uint16_t port_ = 0;
  std::vector<std::thread> threads_;
  mutable std::mutex mutex_;
  std::vector<ConnectionPtr> connections_;
  size_t max_connections_ = 0;
  size_t most_connections_ = 0;  // at a time, since many_ended()
  TimePoint memory_given_back_;
  bool started_ = false;
};

void HttpServer::Impl::listen() {
  const HttpOptions& options = context_->options;
  const int socket =
      options.bound_socket >= 0 ? options.bound_socket : bind_address(options.host, options.port);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = port_of(address);
  acceptor_.assign({address.ss_family, 0}, socket);
  try {
    acceptor_.set_option(asio::socket_base::reuse_address(true));  // see bind_address
    acceptor_.listen(asio::socket_base::max_listen_connections);
    acceptor_.non_blocking(true);
  } catch (const boost::system::system_error& error) {  // bound by two, and the other one listens
    throw LoadError("cannot listen on port " + std::to_string(port_) + ": " +
                    error.code().message());
  }
}

uint16_t HttpServer::Impl::start() {
  const HttpOptions& options = context_->options;
  max_connections_ = connections_within_file_limit(options.max_connections);
  listen();
  started_ = true;
  asio::co_spawn(listen_strand_, accept_loop(), asio::detached);
  asio::co_spawn(listen_strand_, tick_loop(), asio::detached);
  for (int i = 0; i < std::max(1, options.io_threads); ++i)
    threads_.emplace_back([context = context_.get()] { context->io.run(); });
  return port_;
}

awaitable<void> HttpServer::Impl::accept_loop() {
  asio::steady_timer pause(listen_strand_);
  while (acceptor_.is_open()) {
    Connection::Socket socket(asio::make_strand(context_->io));
    auto [code] = co_await acceptor_.async_accept(socket, kReturnError);
    if (!acceptor_.is_open()) co_return;
    // Those behind it too: if the threads came by for each, the last would wait for long.
    for (int i = 0; !code; ++i) {
      receive(std::move(socket));
      if (i == kAcceptsAtOnce) break;
      socket = Connection::Socket(asio::make_strand(context_->io));
      acceptor_.accept(socket, code);
    }
    if (!code || code == asio::error::would_block) continue;
    spdlog::warn("accepting a connection failed: {}", code.message());
    pause.expires_after(kAcceptPause);
    co_await pause.async_wait(kReturnError);
  }
}

void HttpServer::Impl::receive(Connection::Socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(socket), context_);
  if (has_room(connection->client())) return adopt(connection);
  // Closed at once: a client that can connect but gets no answer would wait for nothing.
  spdlog::warn("too many connections: one of {} is turned away", connection->client());
}

void HttpServer::Impl::adopt(const ConnectionPtr& connection) {
  {
    const std::scoped_lock lock(mutex_);
    connections_.push_back(connection);
    most_connections_ = std::max(most_connections_, connections_.size());
  }
  asio::co_spawn(connection->strand(), connection->run(),
                 [this, connection](std::exception_ptr error) {
                   try {
                     if (error) std::rethrow_exception(error);
                   } catch (const std::exception& e) {
                     spdlog::error("a connection failed: {}", e.what());
                   }
                   const std::scoped_lock lock(mutex_);
                   std::erase(connections_, connection);
                 });
}

// Whether there is a place for one more connection of `client`. When there are as many as may be, a
// client with most of them gives one up: the one that has kept the server waiting longest, between
// requests or within one, or if all are being answered the newest, unless `client` would then have
// as many. The last places are not for one client alone.
bool HttpServer::Impl::has_room(const std::string& client) {
  const size_t limit = max_connections_;
  const size_t limit_of_one = limit - std::min(kKeptForOthers, limit / 64);
  if (num_connections() < limit_of_one) return true;
  auto all = connections();
  std::erase_if(all, [](const auto& connection) { return connection->gives_room(); });
  std::map<std::string_view, size_t> counts;
  for (const auto& connection : all) ++counts[connection->client()];
  const size_t own = counts[client];
  if (all.size() < limit && own < limit_of_one) return true;
  size_t most = 0;
  for (const auto& [_, count] : counts) most = std::max(most, count);
  if (own >= limit_of_one) most = own;
  const auto chosen = choose(
      all, [&](const Connection& connection) { return counts[connection.client()] == most; });
  if (!chosen || (!chosen->waits(Clock::now()) && own + 1 >= most)) return false;
  chosen->make_room();
  return true;
}

// Of those that may be chosen the one that has waited longest, or if none waits the newest.
HttpServer::Impl::ConnectionPtr HttpServer::Impl::choose(
    const std::vector<ConnectionPtr>& all, const std::function<bool(const Connection&)>& may_be) {
  const TimePoint now = Clock::now();
  ConnectionPtr chosen;
  std::optional<Clock::duration> longest;
  for (const auto& connection : all) {  // the newest is the last
    if (!may_be(*connection)) continue;
    const auto waits = connection->waits(now);
    if (longest && (!waits || *waits <= *longest)) continue;
    longest = waits;
    chosen = connection;
  }
  return chosen;
}

// Whether there are many connections fewer than there were when this was last true.
bool HttpServer::Impl::many_ended() {
  const std::scoped_lock lock(mutex_);
  if (connections_.size() + kManyEnded > most_connections_) return false;
  most_connections_ = connections_.size();
  return true;
}

// glibc keeps what is freed: after large requests that would be most of the process.
void HttpServer::Impl::give_memory_back(TimePoint now) {
  if (now - memory_given_back_ < kMemoryPause) return;
  Ledger& ledger = *context_->ledger;
  const bool is_long_ago = now - memory_given_back_ >= kLongMemoryPause;
  if (!many_ended() && ledger.take_released(kReleasedBytes) == 0 &&
      (!is_long_ago || ledger.take_all_released(kAllReleasedBytes) == 0))
    return;
  memory_given_back_ = now;
  context_->workers.post(WorkQueue::Size::kLarge, "", give_back_freed_memory);
}

awaitable<void> HttpServer::Impl::tick_loop() {
  asio::steady_timer timer(listen_strand_);
  for (int tick = 0;; ++tick) {  // until the io_context stops
    timer.expires_after(kTick);
    co_await timer.async_wait(kReturnError);
    const TimePoint now = Clock::now();
    const bool look_closer = tick % kTicksToLookCloser == 0;
    for (const auto& connection : connections()) connection->check(now, look_closer);
    context_->workers.refuse_late(now);
    give_memory_back(now);
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
  for (const auto& connection : connections())
    connection->close_if_idle(Connection::Unused::kStays);
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
  for (const auto& connection : connections()) connection->close_if_idle(Connection::Unused::kGoes);
  if (!wait_until_none(Clock::now() + timeout)) {
    for (const auto& connection : connections()) connection->abort();
    context_->turns.open();
    // Closed sockets end their coroutines at once; the wait is only for a handler that is busy.
    wait_until_none(Clock::now() + std::chrono::seconds(1));
  }
  context_->workers.stop();
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
void HttpServer::replace_tls(TlsContext tls) { impl_->context().replace_tls(std::move(tls)); }
size_t HttpServer::num_connections() const { return impl_->num_connections(); }
const Ledger& HttpServer::ledger() const { return *impl_->context().ledger; }
size_t HttpServer::num_waiting_jobs() const { return impl_->context().workers.num_waiting(); }

}  // namespace quire::server::http
