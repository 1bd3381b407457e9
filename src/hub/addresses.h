#pragma once
#include <sys/socket.h>

#include <string>
#include <string_view>

namespace quire::hub {

// Whether an address is one that anybody on the net may reach: no loopback, private, link-local,
// shared (RFC 6598), multicast, reserved or unspecified one, IPv4 also inside IPv6 (IANA's
// special-purpose registries).
bool is_public(const sockaddr& address);

// The same for the host of a URL. A name counts as public, unless it is localhost or ends with
// .localhost, .local or .internal: which address it has shows when it is connected.
bool is_public_host(std::string_view host);

}  // namespace quire::hub
