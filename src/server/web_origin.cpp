#include "server/web_origin.h"

#include <boost/asio/ip/address.hpp>
#include <string>

#include "server/http/message.h"

namespace quire::server {

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code no_address;
  const auto address = boost::asio::ip::make_address(std::string(host), no_address);
  return !no_address && address.is_loopback();
}

bool is_foreign_page(std::string_view origin) {
  const std::string text = http::lower_case(origin);
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string::npos) return false;
  const std::string_view scheme = std::string_view(text).substr(0, scheme_end);
  if (scheme != "http" && scheme != "https") return false;
  std::string_view host = std::string_view(text).substr(scheme_end + 3);
  const size_t port = host.starts_with('[') ? host.find(':', host.find(']')) : host.find(':');
  return !is_loopback(host.substr(0, port));
}

}  // namespace quire::server
