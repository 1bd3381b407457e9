#include "server/http/client_address.h"

#include <algorithm>

namespace quire::server::http {

namespace ip = boost::asio::ip;

std::string client_of(const ip::address& address) {
  if (!address.is_v6()) return address.to_string();
  const ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, v6).to_string();
  auto bytes = v6.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return ip::address_v6(bytes).to_string() + "/64";
}

}  // namespace quire::server::http
