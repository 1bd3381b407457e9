#include "server/http/bind.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/error.h"
#include "base/printable.h"

namespace quire::server::http {

using boost::asio::ip::tcp;

int bind_address(const std::string& host, uint16_t port) {
  try {
    boost::asio::io_context io;
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(host, std::to_string(port),
                                        tcp::resolver::passive | tcp::resolver::numeric_service);
    const tcp::endpoint endpoint = *found.begin();
    tcp::acceptor acceptor(io, endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    return acceptor.release();
  } catch (const boost::system::system_error& error) {
    throw LoadError("cannot listen on " + printable(host) + ":" + std::to_string(port) + ": " +
                    error.code().message() + "; choose another --host or --port");
  }
}

}  // namespace quire::server::http
