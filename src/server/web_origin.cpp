#include "server/web_origin.h"

#include <boost/asio/ip/address.hpp>
#include <optional>
#include <string>

#include "server/http/message.h"

namespace quire::server {

namespace {

std::optional<boost::asio::ip::address> address_of(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code no_address;
  const auto address = boost::asio::ip::make_address(std::string(host), no_address);
  if (no_address) return std::nullopt;
  return address;
}

}  // namespace

bool is_address(std::string_view host) { return address_of(host).has_value(); }

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  const auto address = address_of(host);
  return address && address->is_loopback();
}

std::string_view host_of(std::string_view authority) {
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  return authority.substr(0, authority.find(':', bracket));
}

bool is_foreign_page(std::string_view origin) {
  const std::string text = http::lower_case(origin);
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string::npos) return false;
  const std::string_view scheme = std::string_view(text).substr(0, scheme_end);
  if (scheme != "http" && scheme != "https") return false;
  return !is_loopback(host_of(std::string_view(text).substr(scheme_end + 3)));
}

}  // namespace quire::server
