#pragma once
#include <optional>
#include <string>

#include "server/http/message.h"

namespace quire::server::http {

// Whether a body can be read as JSON, by its head: Content-Type application/json, in UTF-8, not
// compressed; names and values without regard to case. The sentence says what is wrong.
//
// The type also keeps web pages of other origins from posting: they may send a few plain types
// without asking.
std::optional<std::string> why_unreadable(const RequestHead& head);

}  // namespace quire::server::http
