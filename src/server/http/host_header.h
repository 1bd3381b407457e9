#pragma once
#include <string_view>

namespace quire::server::http {

// Whether this can be the value of a Host header: `uri-host [ ":" port ]` (RFC 9110, section 7.2;
// RFC 3986, section 3.2), which may be empty.
bool is_host_value(std::string_view value);

}  // namespace quire::server::http
