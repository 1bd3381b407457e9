#include "server/http/bind.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "server/http/test_http_server.h"
#include "server/test_client.h"

namespace quire::server::http {
namespace {

uint16_t port_of(int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

TEST(BindAddress, TwoCannotHaveOnePort) {
  const int first = bind_address("127.0.0.1", 0);
  const uint16_t port = port_of(first);
  EXPECT_THROW(bind_address("127.0.0.1", port), LoadError);
  ::close(first);
  ::close(bind_address("127.0.0.1", port));
}

// The system remembers connections that the server has closed for a minute.
TEST_F(HttpServerTest, APortCanBeTakenAgainAtOnceAndByOneOnly) {
  start();
  for (int i = 0; i < 3; ++i) {
    TestClient client(port_);
    client.send("GET /x HTTP/1.0\r\n\r\n");
    EXPECT_EQ(client.receive().status, 200);
    EXPECT_TRUE(client.closed_by_server());
    server_.reset();
    const int next = bind_address("127.0.0.1", port_);
    EXPECT_THROW(bind_address("127.0.0.1", port_), LoadError);
    start([next](HttpOptions& options) { options.bound_socket = next; });
  }
}

}  // namespace
}  // namespace quire::server::http
