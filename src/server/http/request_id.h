#pragma once
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace quire::server::http {

// Whether a client's id may go into headers, logs and answers as it is: 1 to 128 visible ASCII
// characters, no quotation marks or backslashes.
bool is_usable_request_id(std::string_view id);

// The request's X-Request-Id if it is usable; otherwise 32 random hexadecimal digits.
std::string choose_request_id(const RequestHead& head);

}  // namespace quire::server::http
