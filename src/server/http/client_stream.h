#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>

#include "server/http/tls.h"

struct ssl_st;  // OpenSSL's SSL

namespace quire::server::http {

// The bytes that a client and the server exchange over a socket, bare or inside TLS. Used on the
// socket's strand only; one coroutine may read while another one writes.
//
// OpenSSL works on the socket itself, so that a connection that waits holds no buffer (those of
// asio::ssl::stream are 70 KiB a connection, for as long as it lives). SIGPIPE must be ignored.
class ClientStream {
 public:
  using Error = boost::system::error_code;
  using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
  using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, Strand>;
  // What was read or written; without an error it is a byte at least. would_block of a read: inside
  // TLS something has come, but not a whole record yet; to be read again.
  using Transferred = std::tuple<Error, size_t>;

  explicit ClientStream(Socket socket);  // which must not block
  ~ClientStream();

  Socket& socket() { return socket_; }
  // What the address of the socket is in logs, and for what counts clients. On a Unix socket all
  // programs of a user are one client.
  std::string peer_name() const;
  std::string client_name() const;

  // Waits for a first byte and looks at it: false if it begins no TLS.
  boost::asio::awaitable<std::tuple<Error, bool>> begins_with_tls();
  // From now on bytes go through TLS, once handshake() is done.
  void start_tls(const TlsContext& context);
  // One step of it; would_block: wait_for_handshake(), then again. Costs a millisecond of a
  // processor's time.
  Error handshake();
  boost::asio::awaitable<std::tuple<Error>> wait_for_handshake();
  // Why the last handshake() failed.
  const std::string& failure() const { return failure_; }

  boost::asio::awaitable<Transferred> read_some(boost::asio::mutable_buffer into);
  size_t write_some(boost::asio::const_buffer data, Error& error);  // would_block: does not wait
  boost::asio::awaitable<Transferred> async_write_some(boost::asio::const_buffer data);

  // Tells a client inside TLS that what it has got is all. Does not wait.
  void say_goodbye();
  // The client still sees all that was written; what it sends now comes as it is on the socket.
  void end_sending();
  void cancel();
  void close();

 private:
  bool is_inside_tls() const { return ssl_ != nullptr; }
  // What a call of OpenSSL that returned `result` <= 0 means; would_block with waits_for_ set.
  Error error_of(int result);
  boost::asio::awaitable<Transferred> read_tls(boost::asio::mutable_buffer into);
  boost::asio::awaitable<Transferred> write_tls(boost::asio::const_buffer data);

  Socket socket_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
  Socket::wait_type waits_for_ = Socket::wait_read;  // of the last call that would have blocked
  Socket::wait_type read_waits_for_ = Socket::wait_read;
  bool is_sound_ = false;  // TLS: agreed on, and nothing has failed since
  // A wait that is over when it is cancelled does not tell, and must not be followed by another.
  uint64_t cancels_ = 0;
  std::string failure_;
};

}  // namespace quire::server::http
