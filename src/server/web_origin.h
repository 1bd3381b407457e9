#pragma once
#include <string_view>

namespace quire::server {

// Whether `host` is an IP address; IPv6 with or without brackets.
bool is_address(std::string_view host);

// Whether `host` (a name or an address, IPv6 with or without brackets) is this machine's own.
bool is_loopback(std::string_view host);

// The host in an authority (RFC 3986: "host" or "host:port"; IPv6 keeps its brackets).
std::string_view host_of(std::string_view authority);

// Whether a request with this `Origin` (RFC 6454; empty if there was none) comes from a web page
// that another machine has served. Pages whose name has been made to point to this machine (DNS
// rebinding) are known by it. Programs, browser extensions and local pages are not such pages.
bool is_foreign_page(std::string_view origin);

}  // namespace quire::server
