#include "server/http/client_stream.h"

#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <optional>

#include "server/http/client_address.h"

namespace quire::server::http {

namespace asio = boost::asio;
using asio::awaitable;

namespace {

constexpr auto kReturnError = asio::as_tuple(asio::use_awaitable);
// The type of the record that a handshake begins with (RFC 8446, section 5.1).
constexpr char kHandshakeRecord = 22;

struct IpEndpoint {
  asio::ip::address address;
  uint16_t port;
};

std::optional<IpEndpoint> ip_endpoint_of(const ClientStream::Socket& socket) {
  ClientStream::Error error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return std::nullopt;
  if (endpoint.protocol().family() == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, endpoint.data(), sizeof in);
    return IpEndpoint{asio::ip::address_v4(ntohl(in.sin_addr.s_addr)), ntohs(in.sin_port)};
  }
  if (endpoint.protocol().family() != AF_INET6) return std::nullopt;
  sockaddr_in6 in{};
  std::memcpy(&in, endpoint.data(), sizeof in);
  asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), &in.sin6_addr, bytes.size());
  return IpEndpoint{asio::ip::address_v6(bytes, in.sin6_scope_id), ntohs(in.sin6_port)};
}

// The user at the other end of a Unix socket.
std::optional<uid_t> user_behind(int socket) {
#ifdef __APPLE__
  uid_t user = 0;
  gid_t group = 0;
  if (::getpeereid(socket, &user, &group) != 0) return std::nullopt;
  return user;
#else
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 ||
      who.uid == static_cast<uid_t>(-1))  // another kind of socket
    return std::nullopt;
  return who.uid;
#endif
}

std::string unix_client_of(const ClientStream::Socket& socket) {
  auto& handle = const_cast<ClientStream::Socket&>(socket);
  const auto user = user_behind(handle.native_handle());
  return user ? "unix:" + std::to_string(*user) : "?";
}

}  // namespace

ClientStream::ClientStream(Socket socket) : socket_(std::move(socket)), ssl_(nullptr, SSL_free) {}
ClientStream::~ClientStream() = default;

std::string ClientStream::client_name() const {
  const auto endpoint = ip_endpoint_of(socket_);
  return endpoint ? client_of(endpoint->address) : unix_client_of(socket_);
}

// Connections of a Unix socket have no port to tell them apart.
std::string ClientStream::peer_name() const {
  static std::atomic<uint64_t> count{0};
  if (const auto endpoint = ip_endpoint_of(socket_))
    return endpoint->address.to_string() + ":" + std::to_string(endpoint->port);
  const std::string client = unix_client_of(socket_);
  return client == "?" ? client : client + ":" + std::to_string(++count);
}

awaitable<std::tuple<ClientStream::Error, bool>> ClientStream::begins_with_tls() {
  const auto [waited] = co_await socket_.async_wait(Socket::wait_read, kReturnError);
  if (waited) co_return std::tuple(waited, false);
  char first = 0;
  Error error;
  socket_.receive(asio::buffer(&first, 1), Socket::message_peek, error);
  co_return std::tuple(error, first == kHandshakeRecord);
}

void ClientStream::start_tls(const TlsContext& context) {
  ERR_clear_error();
  ssl_.reset(SSL_new(context.get()));
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), socket_.native_handle()) != 1)
    throw std::bad_alloc();
  SSL_set_accept_state(ssl_.get());
}

// SSL_get_error reads the thread's queue of errors, so each call begins with an empty one.
ClientStream::Error ClientStream::error_of(int result) {
  const int system_error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      waits_for_ = Socket::wait_read;
      return asio::error::would_block;
    case SSL_ERROR_WANT_WRITE:
      waits_for_ = Socket::wait_write;
      return asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return asio::error::eof;
    case SSL_ERROR_SYSCALL:
      is_sound_ = false;
      return {system_error != 0 ? system_error : ECONNRESET, boost::system::system_category()};
    default:
      is_sound_ = false;
      return asio::error::connection_aborted;
  }
}

ClientStream::Error ClientStream::handshake() {
  if (!ssl_ || !socket_.is_open()) return asio::error::bad_descriptor;
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    is_sound_ = true;
    return {};
  }
  const Error error = error_of(result);
  const unsigned long code = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(code);
  if (error != asio::error::would_block) failure_ = reason != nullptr ? reason : error.message();
  ERR_clear_error();
  return error;
}

awaitable<std::tuple<ClientStream::Error>> ClientStream::wait_for_handshake() {
  return socket_.async_wait(waits_for_, kReturnError);
}

awaitable<ClientStream::Transferred> ClientStream::read_some(asio::mutable_buffer into) {
  return is_inside_tls() ? read_tls(into) : socket_.async_read_some(into, kReturnError);
}

// Waits before it reads, like a bare socket: a client that always has more to send would keep the
// thread otherwise. Only what OpenSSL has decrypted already is there without waiting.
awaitable<ClientStream::Transferred> ClientStream::read_tls(asio::mutable_buffer into) {
  const uint64_t cancels = cancels_;
  if (SSL_pending(ssl_.get()) == 0) {
    const auto [waited] = co_await socket_.async_wait(read_waits_for_, kReturnError);
    if (waited) co_return Transferred(waited, 0);
  }
  if (!is_inside_tls()) co_return Transferred(asio::error::bad_descriptor, 0);
  read_waits_for_ = Socket::wait_read;
  ERR_clear_error();
  errno = 0;
  const int n = SSL_read(ssl_.get(), into.data(), static_cast<int>(into.size()));
  if (n > 0) co_return Transferred(Error(), n);
  const Error error = error_of(n);
  if (error != asio::error::would_block) co_return Transferred(error, 0);
  read_waits_for_ = waits_for_;
  co_return Transferred(cancels == cancels_ ? error : asio::error::operation_aborted, 0);
}

size_t ClientStream::write_some(asio::const_buffer data, Error& error) {
  if (!is_inside_tls()) return socket_.write_some(data, error);
  ERR_clear_error();
  errno = 0;
  const int n = SSL_write(ssl_.get(), data.data(), static_cast<int>(data.size()));
  error = n > 0 ? Error() : error_of(n);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

awaitable<ClientStream::Transferred> ClientStream::async_write_some(asio::const_buffer data) {
  return is_inside_tls() ? write_tls(data) : socket_.async_write_some(data, kReturnError);
}

awaitable<ClientStream::Transferred> ClientStream::write_tls(asio::const_buffer data) {
  const uint64_t cancels = cancels_;
  for (;;) {
    const auto [waited] = co_await socket_.async_wait(waits_for_, kReturnError);
    if (waited) co_return Transferred(waited, 0);
    if (!is_inside_tls()) co_return Transferred(asio::error::bad_descriptor, 0);
    Error error;
    const size_t n = write_some(data, error);
    if (error != asio::error::would_block) co_return Transferred(error, n);
    if (cancels != cancels_) co_return Transferred(asio::error::operation_aborted, 0);
  }
}

void ClientStream::say_goodbye() {
  if (!is_inside_tls() || !std::exchange(is_sound_, false)) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

void ClientStream::end_sending() {
  say_goodbye();
  ssl_.reset();
  Error ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void ClientStream::cancel() {
  ++cancels_;
  Error ignored;
  socket_.cancel(ignored);
}

// OpenSSL would use the number of a closed socket, which may soon be another connection's.
void ClientStream::close() {
  ssl_.reset();
  Error ignored;
  socket_.close(ignored);
}

}  // namespace quire::server::http
