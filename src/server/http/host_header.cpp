#include "server/http/host_header.h"

#include <algorithm>
#include <boost/asio/ip/address_v6.hpp>
#include <string>

namespace quire::server::http {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
// `unreserved` and `sub-delims`.
constexpr std::string_view kNameLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=";

bool consists_of(std::string_view text, std::string_view letters) {
  return text.find_first_not_of(letters) == std::string_view::npos;
}

bool is_letter(char c) { return kNameLetters.find(c) != std::string_view::npos; }

bool is_name(std::string_view text) {
  while (!text.empty()) {
    if (text.front() != '%') {
      if (!is_letter(text.front())) return false;
      text.remove_prefix(1);
    } else {
      if (text.size() < 3 || !consists_of(text.substr(1, 2), kHexDigits)) return false;
      text.remove_prefix(3);
    }
  }
  return true;
}

// What stands between brackets.
bool is_address(std::string_view text) {
  if (text.starts_with('v') || text.starts_with('V')) {  // of a later version
    const size_t dot = std::min(text.find('.'), text.size());
    const std::string_view version = text.substr(1, std::max<size_t>(dot, 1) - 1);
    const std::string_view rest = text.substr(std::min(dot + 1, text.size()));
    return !version.empty() && consists_of(version, kHexDigits) && !rest.empty() &&
           std::ranges::all_of(rest, [](char c) { return c == ':' || is_letter(c); });
  }
  // "fe80::1%25eth0" (RFC 6874), or with a bare "%", as some clients send it.
  const size_t zone = std::min(text.find('%'), text.size());
  if (zone + 1 == text.size() || !consists_of(text.substr(zone), std::string(kNameLetters) + '%'))
    return false;
  const std::string address(text.substr(0, zone));
  boost::system::error_code no_address;
  boost::asio::ip::make_address_v6(address, no_address);
  return !no_address && address.find('\0') == std::string::npos;  // where Asio would end
}

}  // namespace

bool is_host_value(std::string_view value) {
  size_t end = std::min(value.find(':'), value.size());
  if (value.starts_with('[')) {
    const size_t bracket = value.find(']');
    if (bracket == std::string_view::npos || !is_address(value.substr(1, bracket - 1)))
      return false;
    end = bracket + 1;
  } else if (!is_name(value.substr(0, end))) {
    return false;
  }
  const std::string_view port = value.substr(end);
  return port.empty() || (port.front() == ':' && consists_of(port.substr(1), kDigits));
}

}  // namespace quire::server::http
