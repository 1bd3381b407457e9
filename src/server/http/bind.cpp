#include "server/http/bind.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/error.h"
#include "base/printable.h"

namespace quire::server::http {

using boost::asio::ip::tcp;

namespace {

// Two sockets with SO_REUSEADDR may be bound to one port until one of them listens: the second of
// two servers would learn only after loading its model that it came too late. So a socket has the
// option while it is bound only to pass the closed connections of an earlier server, which the
// system remembers for a minute, and again when it listens (HttpServer), for later ones to pass.
void bind_alone(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
  acceptor.set_option(tcp::acceptor::reuse_address(false));
  boost::system::error_code in_use;
  acceptor.bind(endpoint, in_use);
  if (!in_use) return;
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  acceptor.bind(endpoint);
  acceptor.set_option(tcp::acceptor::reuse_address(false));
}

}  // namespace

int bind_address(const std::string& host, uint16_t port) {
  try {
    boost::asio::io_context io;
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(host, std::to_string(port),
                                        tcp::resolver::passive | tcp::resolver::numeric_service);
    const tcp::endpoint endpoint = *found.begin();
    tcp::acceptor acceptor(io, endpoint.protocol());
    bind_alone(acceptor, endpoint);
    return acceptor.release();
  } catch (const boost::system::system_error& error) {
    throw LoadError("cannot listen on " + printable(host) + ":" + std::to_string(port) + ": " +
                    error.code().message() + "; choose another --host or --port");
  }
}

}  // namespace quire::server::http
