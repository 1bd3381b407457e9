#include "server/http/client_address.h"

#include <gtest/gtest.h>

namespace quire::server::http {
namespace {

std::string client(const char* text) { return client_of(boost::asio::ip::make_address(text)); }

TEST(ClientAddress, IsTheNetworkOfAnIpv6Client) {
  EXPECT_EQ(client("2001:db8:1:2::1"), "2001:db8:1:2::/64");
  EXPECT_EQ(client("2001:db8:1:2:ffff:ffff:ffff:ffff"), "2001:db8:1:2::/64");
  EXPECT_EQ(client("2001:db8:1:3::1"), "2001:db8:1:3::/64");
  EXPECT_EQ(client("::1"), "::/64");
  EXPECT_EQ(client("fe80::1%1"), client("fe80::2"));
}

TEST(ClientAddress, IsTheSameForIpv4InEitherNotation) {
  EXPECT_EQ(client("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(client("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_NE(client("192.0.2.2"), client("192.0.2.1"));
}

}  // namespace
}  // namespace quire::server::http
