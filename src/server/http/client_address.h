#pragma once
#include <boost/asio/ip/address.hpp>
#include <string>

namespace quire::server::http {

// The client for whom limits of an address count. An IPv6 client has 2^64 addresses, so it is known
// by the network of 64 bits ("2001:db8:1:2::/64"); an IPv4 address is one in IPv6's notation too
// ("::ffff:192.0.2.1").
std::string client_of(const boost::asio::ip::address& address);

}  // namespace quire::server::http
