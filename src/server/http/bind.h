#pragma once
#include <cstdint>
#include <string>

namespace quire::server::http {

// A TCP socket bound to the address, which does not listen yet: clients are refused until it does,
// but the port is taken. Port 0: any free one. Throws LoadError if the address cannot be used.
int bind_address(const std::string& host, uint16_t port);

}  // namespace quire::server::http
